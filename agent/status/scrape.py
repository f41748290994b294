"""What of the application is scraped: ISTIO_PROMETHEUS_ANNOTATIONS.

Source: status-lifecycle.md section 4.1.
"""

import json
import re
from typing import Final, NamedTuple

from agent.status.decode import as_list, as_object, get_text, get_value

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
INVALID: Final = "invalid prometheus scrape configuration: "
MAX_PORT: Final = 65535


class Target(NamedTuple):
    """A page of metrics of the application, on localhost."""

    port: int
    path: str


class ScrapePlan(NamedTuple):
    """The targets in their order, or why there are none."""

    targets: tuple[Target, ...] = ()
    error: str | None = None


class _Annotations(NamedTuple):
    scrape: str
    path: str
    port: str
    targets: tuple[tuple[str, str], ...]  #: port and path


def parse_annotations(text: str, status_port: int) -> ScrapePlan:
    """Return what to scrape.

    Args:
        text: the variable, which is set; being empty is an error.
        status_port: our own, which must not be scraped.
    """
    try:
        found = _decode(text)
    except ValueError as error:
        return ScrapePlan(error=f"failed to unmarshal ISTIO_PROMETHEUS_ANNOTATIONS: {error}")
    if found.scrape == "false":
        return ScrapePlan()
    try:
        return ScrapePlan(_targets(found, status_port))
    except ValueError as error:
        return ScrapePlan(error=INVALID + str(error))


def _targets(found: _Annotations, status_port: int) -> tuple[Target, ...]:
    declared = found.targets or ((found.port or "80", found.path or "/metrics"),)
    targets = tuple(
        Target(_checked_port(port, status_port), path or "/metrics") for port, path in declared
    )
    if len(targets) > 1:
        return targets
    # The older keys win over the only target, as they always did.
    port = _checked_port(found.port, status_port) if found.port else targets[0].port
    return (Target(port, found.path or targets[0].path),)


def _checked_port(text: str, status_port: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 0 < int(text) <= MAX_PORT:
        raise ValueError(f'invalid target port "{text}"')
    port = int(text)
    if port == status_port:
        raise ValueError(
            f"application port {port} equals the agent's own port, scraping it may recurse"
        )
    if port in RESERVED_PORTS:
        raise ValueError(f"port {port} is reserved: {RESERVED_PORTS[port]}")
    return port


def _decode(text: str) -> _Annotations:
    values = as_object(json.loads(text), "annotations")
    entries = [
        as_object(entry, "target") for entry in as_list(get_value(values, "targets"), "targets")
    ]
    return _Annotations(
        get_text(values, "scrape"),
        get_text(values, "path"),
        get_text(values, "port"),
        tuple((get_text(entry, "port"), get_text(entry, "path")) for entry in entries),
    )
