"""What a merged proxy configuration must hold, field by field.

A check returns what was expected, or None. The line that comes of it names the document that set
the field last. Source: bootstrap.md section 3.3, validation.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, cast

from bootstrap.addresses import MAX_PORT, check_address
from bootstrap.decode import INT32
from bootstrap.durations import MILLISECOND, SECOND, parse_duration

Fields = Mapping[str, object]
#: Path below the field ('' for itself), what was expected.
Finding = tuple[str, str]
Check = Callable[[object], Iterator[Finding]]

#: The origin of fields that no source set.
BUILT_IN: Final = "built-in value: "
#: The agent substitutes the node's address; only tracers of one node take it.
HOST_IP: Final = "$(HOST_IP)"
#: HTTP/2's initial window, below which no setting may go (RFC 9113, section 6.9.2).
SMALLEST_WINDOW: Final = 65535


def validate(document: Fields, origins: Mapping[str, str]) -> list[str]:
    """Return a line for each problem of a merged document.

    Args:
        document: canonical proto JSON of ProxyConfig, zero values allowed.
        origins: by field, how to begin a line about it: the source that set it last, and the path.
    """
    problems = [
        f"{origins.get(name, BUILT_IN)}{name}{path}{_shown(document, name, path)}:"
        f" expected {expected}"
        for name, check in CHECKS.items()
        for path, expected in check(document.get(name))
    ]
    if not document.get("serviceCluster") and "tracingServiceName" not in document:
        source = origins.get("serviceCluster", BUILT_IN)
        problems.append(f"{source}serviceCluster='': expected a name, or tracingServiceName")
    return problems


def _shown(document: Fields, name: str, path: str) -> str:
    """Return '=value' of a field that is neither missing nor an object, nor a secret."""
    value: object = document.get(name)
    for member in path.split(".")[1:]:
        value = value.get(member) if isinstance(value, dict) else None
    if isinstance(value, dict) or value is None or path.endswith("accessToken"):
        return ""
    return f"={value!r}"


def _required(value: object) -> Iterator[Finding]:
    if not value:
        yield "", "a path"


def _port(value: object) -> Iterator[Finding]:
    if not isinstance(value, int) or not 0 < value <= MAX_PORT:
        yield "", f"a port in 1..{MAX_PORT}"


def _address(value: object, path: str = "", *, host_ip: bool = False) -> Iterator[Finding]:
    text = value if isinstance(value, str) else ""
    host, _, port = text.rpartition(":")
    if host_ip and host == HOST_IP:
        text = f"localhost:{port}"
    try:
        check_address(text)
    except ValueError as error:
        yield path, str(error).removeprefix("expected ")


def _addresses(value: object) -> Iterator[Finding]:
    """Check a list of addresses: where the control plane is, in the order of trying."""
    text = value if isinstance(value, str) else ""
    for part in [part for part in text.split(",") if part.strip()] or [text]:
        yield from _address(part.strip())


def _drain(value: object) -> Iterator[Finding]:
    length = _nanoseconds(value)
    if length is None or length < MILLISECOND or length % SECOND:
        yield "", "whole seconds, at least 1s"


def _policy(value: object) -> Iterator[Finding]:
    if value not in (None, "NONE", "MUTUAL_TLS"):
        yield "", "NONE or MUTUAL_TLS"


def _tracing(value: object) -> Iterator[Finding]:
    tracing = _object(value)
    for name in ("zipkin", "datadog", "lightstep"):
        if name in tracing:
            tracer = _object(tracing[name])
            host_ip = name != "lightstep"
            yield from _address(tracer.get("address"), f".{name}.address", host_ip=host_ip)
    if "lightstep" in tracing and not _object(tracing["lightstep"]).get("accessToken"):
        yield ".lightstep.accessToken", "a token"
    yield from _tls(tracing.get("tlsSettings"))


def _tls(value: object) -> Iterator[Finding]:
    """Find settings that contradict each other."""
    tls = _object(value)
    mode, named = tls.get("mode"), bool(tls.get("credentialName"))
    if mode == "MUTUAL" and not named:
        for name in ("clientCertificate", "privateKey"):
            if not tls.get(name):
                yield f".tlsSettings.{name}", "a path in mode MUTUAL"
    rules = [
        ("credentialName", named, FILES_OF_A_CREDENTIAL),
        ("insecureSkipVerify", bool(tls.get("insecureSkipVerify")), UNCHECKED[mode == "SIMPLE"]),
    ]
    for cause, applies, forbidden in rules:
        for name in forbidden if applies else ():
            if tls.get(name):
                yield f".tlsSettings.{name}", f"nothing, because {cause} is set"


def _remote_service(value: object) -> Iterator[Finding]:
    address = _object(value).get("address")
    if address:
        yield from _address(address, ".address")


def _private_key_provider(value: object) -> Iterator[Finding]:
    if value is None:
        return
    engines = _object(value)
    if not engines:
        yield "", "cryptomb or qat"
    for name, engine in engines.items():
        if not _nanoseconds(_object(engine).get("pollDelay")):
            yield f".{name}.pollDelay", "a duration that is not zero"


def _connection_settings(value: object) -> Iterator[Finding]:
    settings = _object(value)
    for name, setting in settings.items():
        lowest = LOWEST.get(name)
        if lowest is not None and (not isinstance(setting, int) or setting < lowest):
            yield f".{name}", f"a whole number in {lowest}..{INT32[1]}"
        if name in TIMEOUTS and (_nanoseconds(setting) or 0) < 0:
            yield f".{name}", "a duration that is not negative"


def _object(value: object) -> Fields:
    return cast("Fields", value) if isinstance(value, dict) else {}


def _nanoseconds(value: object) -> int | None:
    return parse_duration(value) if isinstance(value, str) else None


FILES_OF_A_CREDENTIAL: Final = ("clientCertificate", "privateKey", "caCertificates", "caCrl")
#: What makes no sense for a peer that is not verified; by whether the mode is SIMPLE.
UNCHECKED: Final = (
    ("caCertificates", "subjectAltNames"),
    ("caCertificates", "subjectAltNames", "credentialName"),
)
TIMEOUTS: Final = frozenset(
    (
        "httpIdleTimeout",
        "httpRequestTimeout",
        "httpStreamIdleTimeout",
        "httpRequestHeadersTimeout",
        "httpMaxConnectionDuration",
        "httpMaxStreamDuration",
        "httpDrainTimeout",
    )
)
LOWEST: Final = {
    "listenerPerConnectionBufferLimitBytes": 0,
    "clusterPerConnectionBufferLimitBytes": 0,
    "httpMaxConcurrentStreams": 1,
    "listenerConnectionLimit": 1,
    "globalDownstreamConnectionLimit": 1,
    "http2InitialStreamWindowSize": SMALLEST_WINDOW,
    "http2InitialConnectionWindowSize": SMALLEST_WINDOW,
}
CHECKS: Final[Mapping[str, Check]] = {
    "configPath": _required,
    "binaryPath": _required,
    "drainDuration": _drain,
    "discoveryAddress": _addresses,
    "proxyAdminPort": _port,
    "statusPort": _port,
    "controlPlaneAuthPolicy": _policy,
    "tracing": _tracing,
    "envoyMetricsService": _remote_service,
    "envoyAccessLogService": _remote_service,
    "privateKeyProvider": _private_key_provider,
    "connectionSettings": _connection_settings,
}
