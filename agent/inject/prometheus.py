"""The application's metrics: scraped by the agent, and shown in one page with its own.

The reference leaves `prometheus.io/scheme` where it is: Prometheus asks the agent by HTTPS, which
it does not speak. Here it is the application's, as the other annotations are.

Source: status-lifecycle.md sections 4.1 and 11.11.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from agent.inject.annotations import MERGE_METRICS, parse_bool
from agent.inject.api.types import Object
from agent.inject.text import compact_json

VARIABLE: Final = "ISTIO_PROMETHEUS_ANNOTATIONS"
SCRAPE: Final = "prometheus.io/scrape"
PATH: Final = "prometheus.io/path"
PORT: Final = "prometheus.io/port"
SCHEME: Final = "prometheus.io/scheme"
TARGETS: Final = "prometheus.istio.io/scrape-targets"
SECURE_PORT: Final = "prometheus.istio.io/secure-port"
SECURE_PORT_VARIABLE: Final = "ENVOY_SECURE_MERGED_METRICS_PORT"
HTTPS: Final = "https"
MERGED_PATH: Final = "/stats/prometheus"
DEFAULT_PATH: Final = "/metrics"
MAX_PORT: Final = 65535
RESERVED_PORTS: Final = {
    15000: "Envoy admin",
    15001: "outbound traffic capture",
    15004: "pilot debug",
    15006: "inbound traffic capture",
    15008: "HBONE tunnel",
    15020: "pilot-agent status / merged Prometheus",
    15021: "Envoy health",
    15053: "DNS proxy",
    15090: "Envoy Prometheus (already merged)",
}


class Scraped(NamedTuple):
    """What the user's annotations say."""

    scrape: str = ""
    path: str = ""
    port: str = ""
    targets: tuple[tuple[str, str], ...] = ()  #: port and path
    is_tls: bool = False


def merge_metrics(
    annotations: Mapping[str, str], proxy: Object | None, *, status_port: int, enabled: bool
) -> tuple[dict[str, str], list[str]]:
    """Return the pod's annotations with the agent's page in them, and warnings.

    Args:
        annotations: of the merged pod.
        proxy: the agent's container, which is told what to scrape; None where there is none.
        status_port: the agent's, 0 if it has none.
        enabled: the mesh merges metrics unless a pod says otherwise.

    Raises:
        ValueError: the agent could not scrape what is asked for.
    """
    kept = dict(annotations)
    asked = parse_bool(annotations.get(MERGE_METRICS, ""))
    wanted = enabled if asked is None else asked
    unwanted = parse_bool(_get(annotations, SCRAPE)) is False
    if unwanted or not wanted or not status_port or _get(annotations, PORT) == str(status_port):
        return kept, []
    targets, warnings = parse_targets(_get(annotations, TARGETS))
    found = Scraped(
        scrape=_get(annotations, SCRAPE),
        path=targets[0][1] if targets else _get(annotations, PATH),
        port=targets[0][0] if targets else _get(annotations, PORT),
        targets=targets,
        is_tls=_get(annotations, SCHEME).lower() == HTTPS,
    )
    if found not in (Scraped(), Scraped(is_tls=True)):
        _check(found, status_port)
        if proxy is not None:
            proxy.setdefault("env", []).append({"name": VARIABLE, "value": _variable(found)})
    gone = (SCRAPE, PATH, PORT, TARGETS, *([SCHEME] if found.is_tls else []))
    names = {_plain(name) for name in gone}
    kept = {name: value for name, value in kept.items() if _plain(name) not in names}
    kept |= {PORT: str(status_port), PATH: MERGED_PATH, SCRAPE: "true"}
    return kept, warnings


def secure_port(annotations: Mapping[str, str], proxy: Object) -> dict[str, str]:
    """Return the annotation with the port of merged metrics over mutual TLS, if there is one."""
    if any(_plain(name) == _plain(SECURE_PORT) for name in annotations):
        return {}
    environment = proxy.get("env", ())
    ports = [item.get("value") for item in environment if item.get("name") == SECURE_PORT_VARIABLE]
    return {SECURE_PORT: ports[-1]} if ports and ports[-1] not in (None, "", "0") else {}


def parse_targets(text: str) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Return ports and paths of a list such as '8080:/metrics,9090', and warnings."""
    targets = []
    for item in filter(None, map(str.strip, text.split(","))):
        port, _, path = item.partition(":")
        if not port:
            return (), [f"annotation {TARGETS}={text!r}: expected port[:path] items; it is ignored"]
        targets.append((port, path or DEFAULT_PATH))
    return tuple(targets), []


def clear(annotations: Mapping[str, str], status_port: int) -> dict[str, str]:
    """Return the annotations without those that an earlier injection wrote."""
    if annotations.get(PORT) != str(status_port):
        return dict(annotations)
    return {name: value for name, value in annotations.items() if name not in (SCRAPE, PATH, PORT)}


def _get(annotations: Mapping[str, str], wanted: str) -> str:
    """Return an annotation in any of its spellings."""
    plain = _plain(wanted)
    return next((value for name, value in annotations.items() if _plain(name) == plain), "")


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _check(found: Scraped, status_port: int) -> None:
    what = "targets" if found.targets else "configuration"
    ports = [port for port, _ in found.targets] or ([found.port] if found.port else [])
    for port in ports:
        if trouble := _port_trouble(port, status_port):
            raise ValueError(f"invalid prometheus scrape {what}: port {port!r}: {trouble}")


def _port_trouble(text: str, status_port: int) -> str:
    if not re.fullmatch("[0-9]{1,9}", text) or not 0 < int(text) <= MAX_PORT:
        return f"expected a port in 1..{MAX_PORT}"
    port = int(text)
    if port == status_port:
        return "it is the agent's own status port, scraping it would never end; name another"
    reserved = RESERVED_PORTS.get(port)
    return f"it is reserved for {reserved}; name another" if reserved else ""


def _variable(found: Scraped) -> str:
    value: Object = {"scrape": found.scrape, "path": found.path, "port": found.port}
    if found.is_tls:
        value["scheme"] = HTTPS
    if found.targets:
        value["targets"] = [{"port": port, "path": path} for port, path in found.targets]
    return compact_json(value)
