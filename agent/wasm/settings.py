"""The settings of Wasm modules.

Source: xds-identity-dns.md sections 3.4 to 3.7 and 12.
"""

from typing import Final, NamedTuple

from agent.reader import Reader, parse_bool, parse_int, parse_period, parse_text

DIRECTORY: Final = "/var/lib/istio/data"
MAX_BYTES: Final = 256 << 20


class FetchSettings(NamedTuple):
    """What the fetching process is told; nothing of it is secret."""

    #: Where modules are kept; it must exist. AGENT_WASM_DIRECTORY.
    directory: str = DIRECTORY
    #: Registries and servers, host[:port], whose certificate is not verified; '*' for all.
    #: WASM_INSECURE_REGISTRIES.
    insecure: tuple[str, ...] = ()
    #: Networks that nothing is fetched from, beside those of section 3.7.
    #: BLOCKED_CIDRS_IN_WASM_FETCH.
    blocked: tuple[str, ...] = ()
    #: Of one attempt over HTTP. WASM_HTTP_REQUEST_TIMEOUT.
    attempt_seconds: float = 15.0
    #: Over HTTP, in total. WASM_HTTP_REQUEST_MAX_RETRIES.
    attempts: int = 5
    #: Of a module, and of what it is packed in. ISTIO_WASM_MAX_BINARY_SIZE_BYTES.
    max_bytes: int = MAX_BYTES


class WasmSettings(NamedTuple):
    """Whether and how modules are fetched in Envoy's place."""

    #: ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION.
    enabled: bool = True
    #: After which a module that nothing uses goes. WASM_MODULE_EXPIRY.
    expiry_seconds: float = 24 * 3600.0
    #: Between two looks for such modules. WASM_PURGE_INTERVAL.
    purge_seconds: float = 3600.0
    #: An extension whose new module cannot be had keeps its last one. AGENT_WASM_KEEP_LAST.
    keep_last: bool = False
    fetch: FetchSettings = FetchSettings()


def parse_wasm(read: Reader) -> WasmSettings:
    """Return the Wasm branch; unusable values are noted on the reader."""
    return WasmSettings(
        enabled=read.take(
            "ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION", parse_bool, default=True
        ),
        expiry_seconds=read.take("WASM_MODULE_EXPIRY", parse_period, default=24 * 3600.0),
        purge_seconds=read.take("WASM_PURGE_INTERVAL", parse_period, default=3600.0),
        keep_last=read.take("AGENT_WASM_KEEP_LAST", parse_bool, default=False),
        fetch=FetchSettings(
            directory=read.take("AGENT_WASM_DIRECTORY", _parse_directory, default=DIRECTORY),
            insecure=_parse_list(read.take("WASM_INSECURE_REGISTRIES", parse_text, default="")),
            blocked=_parse_networks(
                read, read.take("BLOCKED_CIDRS_IN_WASM_FETCH", parse_text, default="")
            ),
            attempt_seconds=read.take("WASM_HTTP_REQUEST_TIMEOUT", parse_period, default=15.0),
            attempts=read.take("WASM_HTTP_REQUEST_MAX_RETRIES", _parse_positive, default=5),
            max_bytes=read.take(
                "ISTIO_WASM_MAX_BINARY_SIZE_BYTES", _parse_positive, default=MAX_BYTES
            ),
        ),
    )


def _parse_positive(text: str) -> int:
    number = parse_int(text)
    if number <= 0:
        raise ValueError("expected a number above zero")
    return number


def _parse_directory(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("expected an absolute path: Envoy is told it")
    return text.rstrip("/") or "/"


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _parse_networks(read: Reader, text: str) -> tuple[str, ...]:
    if not text:
        return ()
    import ipaddress  # noqa: PLC0415 - 3 ms before Envoy is spawned, for few pods

    networks = []
    for each in _parse_list(text):
        try:
            networks.append(str(ipaddress.ip_network(each, strict=False)))
        except ValueError:
            read.warnings.append(
                f"BLOCKED_CIDRS_IN_WASM_FETCH: {each!r}: expected a CIDR, as 10.0.0.0/8; ignored"
            )
    return tuple(networks)
