"""What annotations of a pod may say.

Source: status-lifecycle.md section 11.13; traffic-capture.md section 4.2.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_network
from typing import Final

from agent.inject.api.form import shown
from agent.inject.api.quantity import canonical

#: Returns nothing; ValueError says what was expected.
Check = Callable[[str], object]

INTERCEPTION_MODE: Final = "sidecar.istio.io/interceptionMode"
STATUS_PORT: Final = "status.sidecar.istio.io/port"
READINESS: Final = "readiness.status.sidecar.istio.io/"
TRAFFIC: Final = "traffic.sidecar.istio.io/"
VIRTUAL_INTERFACES: Final = "istio.io/reroute-virtual-interfaces"
MERGE_METRICS: Final = "prometheus.istio.io/merge-metrics"
#: In the order of requests and limits, CPU before memory.
PROXY_RESOURCES: Final = {
    "sidecar.istio.io/proxyCPU": ("requests", "cpu"),
    "sidecar.istio.io/proxyMemory": ("requests", "memory"),
    "sidecar.istio.io/proxyCPULimit": ("limits", "cpu"),
    "sidecar.istio.io/proxyMemoryLimit": ("limits", "memory"),
}
MODES: Final = ("REDIRECT", "TPROXY", "NONE")
MAX_PORT: Final = 65535
MAX_UINT32: Final = 2**32 - 1
LONGEST_INTERFACE: Final = 15
INTERFACE: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_.\-]*")
TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")


def check_annotations(annotations: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each annotation that injection reads and cannot use."""
    for name, check in CHECKS.items():
        if name in annotations:
            try:
                check(annotations[name])
            except ValueError as error:
                yield f"annotation {name}={shown(annotations[name])}: {error}"


def parse_bool(text: str) -> bool | None:
    """Return a boolean, None for what is none."""
    return True if text in TRUE else False if text in FALSE else None


def _mode(text: str) -> None:
    if text not in MODES:
        raise ValueError(f"expected one of {', '.join(MODES)}")


def _boolean(text: str) -> None:
    if parse_bool(text) is None:
        raise ValueError("expected 'true' or 'false'")


def _port(text: str) -> None:
    if not _is_number(text.strip(), MAX_PORT):
        raise ValueError(f"expected a port in 0..{MAX_PORT}")


def _count(text: str) -> None:
    if not _is_number(text, MAX_UINT32):
        raise ValueError("expected a whole number that is not negative")


def _is_number(text: str, largest: int) -> bool:
    return (
        text.isascii()
        and text.isdigit()
        and len(text) <= len("4294967295")
        and int(text) <= largest
    )


def _ports(text: str) -> None:
    for item in text.split(",") if text else ():
        if not _is_number(item.strip(), MAX_PORT):
            raise ValueError(f"item {item!r}: expected a list of ports such as '80,8080'")


def _ports_or_all(text: str) -> None:
    if text != "*":
        _ports(text)


def _ranges(text: str) -> None:
    for item in text.split(",") if text else ():
        address, slash, length = item.partition("/")
        try:
            ip_network(item, strict=False)
            good = bool(slash) and length.isdigit() and "%" not in address
        except ValueError:
            good = False
        if not good:
            raise ValueError(f"item {item!r}: expected a list of CIDRs such as '10.0.0.0/8'")


def _ranges_or_all(text: str) -> None:
    if text != "*":
        _ranges(text)


def _interfaces(text: str) -> None:
    for item in map(str.strip, text.split(",") if text else ()):
        if len(item) > LONGEST_INTERFACE or not INTERFACE.fullmatch(item):
            raise ValueError(
                f"item {item!r}: expected a list of interfaces such as 'eth0,net1', each of at "
                f"most {LONGEST_INTERFACE} characters"
            )


def _proxy_quantity(text: str) -> None:
    if not text.isprintable():
        raise ValueError("expected a quantity without control characters")
    canonical(text)


CHECKS: Final[Mapping[str, Check]] = {
    INTERCEPTION_MODE: _mode,
    STATUS_PORT: _port,
    f"{READINESS}initialDelaySeconds": _count,
    f"{READINESS}periodSeconds": _count,
    f"{READINESS}failureThreshold": _count,
    f"{TRAFFIC}includeOutboundIPRanges": _ranges_or_all,
    f"{TRAFFIC}excludeOutboundIPRanges": _ranges,
    f"{TRAFFIC}includeInboundPorts": _ports_or_all,
    f"{TRAFFIC}excludeInboundPorts": _ports,
    f"{TRAFFIC}includeOutboundPorts": _ports,
    f"{TRAFFIC}excludeOutboundPorts": _ports,
    f"{TRAFFIC}excludeInterfaces": _interfaces,
    f"{TRAFFIC}kubevirtInterfaces": _interfaces,
    VIRTUAL_INTERFACES: _interfaces,
    MERGE_METRICS: _boolean,
    **dict.fromkeys(PROXY_RESOURCES, _proxy_quantity),
}
