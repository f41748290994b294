"""How an application is checked: ProxyConfig's readinessProbe, typed and complete.

Source: xds-identity-dns.md sections 9.1 and 9.2, deviation D-10.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agent.http.message import Headers
from agent.reader import Reader

FIELD: Final = "readinessProbe"
KINDS: Final = ("httpGet", "tcpSocket", "exec", "grpc")
SCHEMES: Final = ("http", "https")
MAX_PORT: Final = 65535
HEADER_NAME: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
#: Neither control characters nor what a header cannot carry.
HEADER_VALUE: Final = r"[\t\x20-\x7e\x80-\xff]*"


class HttpCheck(NamedTuple):
    """Healthy where a GET ends with a status of 200 to 399."""

    host: str
    port: int
    path: str = "/"  #: begins with '/', may have a query
    is_tls: bool = False
    headers: Headers = ()  #: in their order; Host may be among them


class TcpCheck(NamedTuple):
    """Healthy where a connection can be made."""

    host: str
    port: int


class ExecCheck(NamedTuple):
    """Healthy where a command ends with status 0."""

    command: tuple[str, ...]  #: at least the program


class GrpcCheck(NamedTuple):
    """Healthy where gRPC's health service says SERVING."""

    host: str
    port: int
    service: str = ""


Check = HttpCheck | TcpCheck | ExecCheck | GrpcCheck


class Thresholds(NamedTuple):
    """How many results in a row make a report."""

    success: int = 1
    failure: int = 1


class HealthSettings(NamedTuple):
    """What is checked, and when."""

    check: Check
    initial_delay_seconds: float = 0.0
    period_seconds: float = 10.0
    timeout_seconds: float = 1.0  #: of one check
    thresholds: Thresholds = Thresholds()
    source: str = "127.0.0.6"  #: address to check from, which capture lets pass
    offers_alpn: bool = True  #: whether TLS negotiates the version of HTTP


def parse_health(
    read: Reader, probe: Mapping[str, Any], *, host: str, source: str, offers_alpn: bool
) -> HealthSettings | None:
    """Return the settings; None, with a warning, where the probe says nothing to do.

    Args:
        read: gains a line for each unusable value.
        probe: the field's value as canonical proto JSON.
        host: what is checked where the probe names no host.
        source: address to check from.
        offers_alpn: whether HTTPS negotiates the version of HTTP.
    """
    kind = next((kind for kind in KINDS if kind in probe), "")
    action = probe.get(kind, {})
    if not kind or (kind == "exec" and not action.get("command")):
        expected = f"a command in {kind}" if kind else f"one of {', '.join(KINDS)}"
        read.warnings.append(f"{FIELD}: expected {expected}; no health is reported")
        return None
    return HealthSettings(
        check=_check(read, kind, action, host),
        initial_delay_seconds=_whole(read, probe, "initialDelaySeconds", default=0),
        period_seconds=_whole(read, probe, "periodSeconds", default=10),
        timeout_seconds=_whole(read, probe, "timeoutSeconds", default=1),
        thresholds=Thresholds(
            success=_whole(read, probe, "successThreshold", default=1),
            failure=_whole(read, probe, "failureThreshold", default=1),
        ),
        source=source,
        offers_alpn=offers_alpn,
    )


def _check(read: Reader, kind: str, action: Mapping[str, Any], host: str) -> Check:
    where = f"{FIELD}.{kind}"
    if kind == "exec":
        return ExecCheck(tuple(action["command"]))
    port = action.get("port", 0)
    if not 0 < port <= MAX_PORT:
        read.errors.append(f"{where}.port={port}: expected a port in 1..{MAX_PORT}")
    if kind == "grpc":
        return GrpcCheck(host, port, action.get("service", ""))
    host = action.get("host") or host
    if kind == "tcpSocket":
        return TcpCheck(host, port)
    scheme = str(action.get("scheme") or "http")
    if scheme.lower() not in SCHEMES:
        read.errors.append(f"{where}.scheme={scheme!r}: expected one of {', '.join(SCHEMES)}")
    path = str(action.get("path") or "/")
    return HttpCheck(
        host,
        port,
        path=path if path.startswith("/") else f"/{path}",
        is_tls=scheme.lower() == "https",  # whatever its case: D-11
        headers=_headers(read, action.get("httpHeaders", ()), f"{where}.httpHeaders"),
    )


def _headers(read: Reader, entries: Any, where: str) -> Headers:  # noqa: ANN401 -- JSON enters
    headers: list[tuple[str, str]] = []
    for index, entry in enumerate(entries):
        name, value = entry.get("name", ""), entry.get("value", "")
        if not re.fullmatch(HEADER_NAME, name):
            read.errors.append(f"{where}[{index}].name={name!r}: expected a header's name")
        elif not re.fullmatch(HEADER_VALUE, value):
            # The value may be a secret.
            read.errors.append(f"{where}[{index}].value: expected printable ISO 8859-1 text")
        headers.append((name, value))
    return tuple(headers)


def _whole(read: Reader, probe: Mapping[str, Any], name: str, *, default: int) -> int:
    """Return a number of the probe; 0 stands for the default."""
    number: int = probe.get(name, 0)
    if number < 0:
        read.errors.append(f"{FIELD}.{name}={number}: expected 0 or more")
    return number or default
