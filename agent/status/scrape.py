"""What of the application is scraped: ISTIO_PROMETHEUS_ANNOTATIONS.

The key `scheme` is our own: the reference passes over it, and scrapes HTTP alone.

Source: status-lifecycle.md section 4.1.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

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
    is_tls: bool = False


class ScrapePlan(NamedTuple):
    """The targets in their order, or why there are none."""

    targets: tuple[Target, ...] = ()
    error: str | None = None


class _Annotations(NamedTuple):
    scrape: str
    path: str
    port: str
    is_tls: bool
    targets: tuple[tuple[str, str, bool], ...]  #: port, path and whether over TLS


def parse_annotations(text: str, status_port: int, https_ports: Collection[int] = ()) -> ScrapePlan:
    """Return what to scrape.

    Args:
        text: the variable, which is set; being empty is an error.
        status_port: our own, which must not be scraped.
        https_ports: where HTTPS is spoken, whatever the variable says.
    """
    try:
        found = _decode(text)
    except ValueError as error:
        return ScrapePlan(error=f"failed to unmarshal ISTIO_PROMETHEUS_ANNOTATIONS: {error}")
    if found.scrape == "false":
        return ScrapePlan()
    try:
        targets = _targets(found, status_port)
    except ValueError as error:
        return ScrapePlan(error=INVALID + str(error))
    return ScrapePlan(
        tuple(each._replace(is_tls=each.is_tls or each.port in https_ports) for each in targets)
    )


def _targets(found: _Annotations, status_port: int) -> tuple[Target, ...]:
    declared = found.targets or ((found.port or "80", found.path, False),)
    targets = tuple(
        Target(
            _checked_port(port, status_port),
            path or "/metrics",
            is_tls=is_tls or found.is_tls,
        )
        for port, path, is_tls in declared
    )
    if len(targets) > 1:
        return targets
    # The older keys win over the only target, as they always did.
    port = _checked_port(found.port, status_port) if found.port else targets[0].port
    return (targets[0]._replace(port=port, path=found.path or targets[0].path),)


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
        _is_https(values),
        tuple(
            (get_text(entry, "port"), get_text(entry, "path"), _is_https(entry))
            for entry in entries
        ),
    )


def _is_https(values: Mapping[str, Any]) -> bool:
    """Return whether HTTPS is asked for; anything else is HTTP, as it is of probes."""
    return str(get_value(values, "scheme")).lower() == "https"
