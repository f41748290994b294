"""The agent's own metrics: a registry small enough for every pod.

A subject is given `metrics.count`, `metrics.set` or `metrics.observe` as a plain callable and
never sees the registry. A series appears only after it was first recorded.

Source: status-lifecycle.md section 8.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

PREFIX: Final = "istio_agent_"

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """What is known of a metric before it is recorded."""

    kind: str  #: counter, gauge or histogram
    help: str
    bounds: tuple[float, ...] = ()  #: of a histogram, ascending, without +Inf


FAMILIES: Final[Mapping[str, Family]] = {
    "scrapes_total": Family("counter", "The total number of scrapes of the merged endpoint."),
    "scrape_failures_total": Family("counter", "The total number of failed scrapes, by source."),
    "ready": Family("gauge", "Whether the pod was ready when it was last asked."),
    "readiness_failures_total": Family(
        "counter", "The total number of reasons found against being ready, by check."
    ),
    "startup_duration_seconds": Family("gauge", "Seconds from process start to first ready."),
    "istiod_connection_failures": Family(
        "counter", "The total number of channels to the control plane that could not be made."
    ),
    "istiod_connection_terminations": Family(
        "counter", "The total number of control-plane streams that ended, by how."
    ),
    "envoy_connection_terminations": Family(
        "counter", "The total number of streams from Envoy that ended, by how."
    ),
    "xds_proxy_requests": Family("counter", "The total number of xDS requests sent upstream."),
    "pilot_xds_recv_max": Family(
        "gauge", "The largest size in bytes of a message received from Envoy so far."
    ),
    "xds_serving_cached": Family(
        "gauge", "Whether Envoy has what the cache held, in place of an answer upstream."
    ),
    "xds_proxy_responses": Family("counter", "The total number of xDS responses received."),
    "num_outgoing_requests": Family("counter", "The total number of requests to the CA."),
    "num_failed_outgoing_requests": Family(
        "counter", "The total number of requests to the CA that failed."
    ),
    "num_outgoing_retries": Family(
        "counter", "The total number of further attempts within requests to the CA."
    ),
    "outgoing_latency": Family("counter", "Milliseconds spent on requests to the CA."),
    "cert_expiry_seconds": Family(
        "gauge", "Seconds until the workload's certificate expires, negative once it has."
    ),
    "num_file_watcher_failures_total": Family(
        "counter", "The total number of failures to watch the files of a secret."
    ),
    "num_file_secret_failures_total": Family(
        "counter", "The total number of failures to read the files of a secret."
    ),
    "xds_proxy_push_ack_seconds": Family(
        "histogram",
        "Seconds from a push of the control plane to its ACK, by type.",
        (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
    ),
    "pilot_total_xds_rejects": Family("counter", "The total number of pushes refused, by type."),
    "pilot_xds_expired_nonce": Family(
        "counter", "The total number of requests that answered no longer current responses."
    ),
    "pilot_total_xds_internal_errors": Family(
        "counter", "The total number of secrets that could not be served."
    ),
    "pilot_xds_send_time": Family(
        "histogram",
        "Seconds to send a response with secrets.",
        (0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0),
    ),
}


class Metrics:
    """Counters, gauges and histograms by short name, without the common prefix."""

    def __init__(self, families: Mapping[str, Family] = FAMILIES) -> None:
        self._families = dict(families)
        self._values: dict[str, dict[Labels, float]] = {}
        self._buckets: dict[str, dict[Labels, list[int]]] = {}
        self._collectors: list[Callable[[], None]] = []

    def describe(self, name: str, family: Family) -> None:
        """Make a further metric known; a subject does this for its own ones."""
        self._families[name] = family

    def before_render(self, collect: Callable[[], None]) -> None:
        """Have `collect` called before each rendering, to set what is computed at scrape."""
        self._collectors.append(collect)

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        series = self._values.setdefault(name, {})
        key = tuple(sorted(labels.items()))
        series[key] = series.get(key, 0) + amount

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge, or a counter that somebody else keeps."""
        self._values.setdefault(name, {})[tuple(sorted(labels.items()))] = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        bounds = self._families[name].bounds
        key = tuple(sorted(labels.items()))
        counts = self._buckets.setdefault(name, {}).setdefault(key, [0] * (len(bounds) + 1))
        counts[sum(value > bound for bound in bounds)] += 1
        self.count(name, value, **labels)

    def total(self, name: str) -> float | None:
        """Return the sum over all series of a counter, None if nothing was recorded."""
        series = self._values.get(name)
        return sum(series.values()) if series else None

    def render(self) -> str:
        """Return Prometheus text 0.0.4, families sorted by name, each with HELP and TYPE."""
        for collect in self._collectors:
            collect()
        lines: list[str] = []
        for name in sorted(self._values):
            family = self._families.get(name, Family("counter", name))
            lines.append(f"# HELP {PREFIX}{name} {_escape(family.help)}")
            lines.append(f"# TYPE {PREFIX}{name} {family.kind}")
            for labels, value in sorted(self._values[name].items()):
                if family.kind == "histogram":
                    counts = self._buckets[name][labels]
                    lines += _histogram_lines(name, family.bounds, labels, counts, value)
                else:
                    lines.append(f"{PREFIX}{name}{_label_text(labels)} {_number(value)}")
        return "".join(line + "\n" for line in lines)


def _histogram_lines(
    name: str, bounds: Sequence[float], labels: Labels, counts: Sequence[int], total: float
) -> list[str]:
    lines = []
    seen = 0
    for bound, count in zip((*bounds, float("inf")), counts, strict=True):
        seen += count
        text = _label_text((*labels, ("le", _number(bound))))
        lines.append(f"{PREFIX}{name}_bucket{text} {seen}")
    lines.append(f"{PREFIX}{name}_sum{_label_text(labels)} {_number(total)}")
    lines.append(f"{PREFIX}{name}_count{_label_text(labels)} {seen}")
    return lines


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = ((key, _escape(value).replace('"', r"\"")) for key, value in labels)
    return "{" + ",".join(f'{key}="{value}"' for key, value in pairs) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 -- NaN
        return {"inf": "+Inf", "-inf": "-Inf"}.get(str(value), "NaN")
    return str(int(value)) if value == int(value) else repr(value)
