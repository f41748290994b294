"""The application's probes: the table that the injector wrote, checked, and looked up.

Source: status-lifecycle.md sections 5.1 to 5.3.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agent.status.decode import DecodeError, as_object, get_integer, get_text, get_value

PATH_PATTERN: Final = (
    r"^/(app-health|app-lifecycle)/[^/]+/(livez|readyz|startupz|prestopz|poststartz)$"
)
KINDS: Final = ("httpGet", "tcpSocket", "gRPC")
#: The API server's default, for pods that were injected without passing through it (D24).
GRPC_TIMEOUT_SECONDS: Final = 1.0


class HttpProbe(NamedTuple):
    """GET a path of the application."""

    path: str  #: begins with '/', may have a query
    port: int  #: not checked: 0 was not given, and fails when probed
    is_tls: bool = False
    timeout_seconds: float | None = None  #: None: as long as the caller waits


class TcpProbe(NamedTuple):
    """Connect to a port of the application."""

    port: int
    timeout_seconds: float | None = None


class GrpcProbe(NamedTuple):
    """Ask the application's gRPC health service."""

    port: int
    service: str = ""
    timeout_seconds: float = GRPC_TIMEOUT_SECONDS


Probe = HttpProbe | TcpProbe | GrpcProbe


class ProberTable(NamedTuple):
    """Probes by decoded request path, and what is wrong with the text they came from."""

    probes: Mapping[str, Probe]
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def parse_probers(text: str) -> ProberTable:
    """Return the table out of ISTIO_KUBE_APP_PROBERS; every problem is listed.

    Args:
        text: a JSON object of request path to prober; empty for none.

    Source: status-lifecycle.md section 5.2.
    """
    if not text:
        return ProberTable({})
    try:
        table = as_object(json.loads(text), "the table")
    except ValueError as error:
        return ProberTable({}, (_undecodable(error, text),))
    probes: dict[str, Probe] = {}
    errors: list[str] = []
    warnings: list[str] = []
    for path, value in table.items():
        try:
            probes[path] = _probe(path, value)
        except DecodeError as error:
            errors.append(_undecodable(error, text))
        except ValueError as error:
            errors.append(str(error))
        else:
            warnings += _ignored_host(path, value)
    return ProberTable(probes, tuple(errors), tuple(warnings))


def _undecodable(error: ValueError, text: str) -> str:
    return f"failed to decode app prober err = {error}, json string = {text}"


def _probe(path: str, value: Any) -> Probe:  # noqa: ANN401 -- JSON enters
    if not re.fullmatch(PATH_PATTERN, path):
        raise ValueError(
            f"invalid path, must be in form of regex pattern {PATH_PATTERN}, got {path!r}"
        )
    prober = as_object(value, path)
    found = [kind for kind in KINDS if get_value(prober, kind) is not None]
    if len(found) != 1:
        raise ValueError(
            "invalid prober type, must be one of type httpGet, tcpSocket or gRPC: "
            f"{path} has {' and '.join(found) or 'none'}"
        )
    action = as_object(get_value(prober, found[0]), found[0])
    seconds = float(get_integer(prober, "timeoutSeconds"))
    limit = seconds if seconds > 0 else None
    if found[0] == "gRPC":
        service = get_text(action, "service")
        return GrpcProbe(get_integer(action, "port"), service, limit or GRPC_TIMEOUT_SECONDS)
    if isinstance(get_value(action, "port"), str):
        raise ValueError(  # noqa: TRY004 -- it is the user's value, not the caller's type
            f"invalid prober config for {path}, the port must be int type"
        )
    port = get_integer(action, "port")
    if found[0] == "tcpSocket":
        return TcpProbe(port, limit)
    http_path = get_text(action, "path")
    if not http_path.startswith("/"):
        http_path = "/" + http_path
    return HttpProbe(http_path, port, get_text(action, "scheme") == "HTTPS", limit)


def _ignored_host(path: str, prober: Mapping[str, Any]) -> list[str]:
    action = get_value(prober, "httpGet") or get_value(prober, "tcpSocket") or {}
    host = get_value(action, "host")
    return [f"host {host!r} of {path} is ignored: the pod itself is probed"] if host else []
