"""What the environment says about the bootstrap and the node.

Source: bootstrap.md sections 2 and 2.2.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))
MAX_PORT: Final = 65535


class Options(NamedTuple):
    """Environment variables that shape the bootstrap, with the values of an empty environment."""

    #: Envoy's health listener. ENVOY_STATUS_PORT.
    status_port: int = 15021
    #: Envoy's metrics listener. ENVOY_PROMETHEUS_PORT.
    prometheus_port: int = 15090
    #: Envoy's metrics over mutual TLS, 0 for none. ENVOY_SECURE_METRICS_PORT.
    secure_metrics_port: int = 0
    #: Merged metrics over mutual TLS, 0 for none. ENVOY_SECURE_MERGED_METRICS_PORT.
    secure_merged_metrics_port: int = 0
    #: The health listener takes the PROXY protocol. ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL.
    status_proxy_protocol: bool = False
    #: EXIT_ON_ZERO_ACTIVE_CONNECTIONS
    exit_on_zero_active_connections: bool = False
    #: ENVOY_SKIP_DEPRECATED_LOGS
    skip_deprecated_logs: bool = True
    #: Incremental ADS. ISTIO_DELTA_XDS.
    delta_xds: bool = True
    #: ISTIO_DUAL_STACK
    dual_stack: bool = False
    #: HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED
    strip_fragment: bool = True
    #: None follows metadata ENABLE_HBONE. PEER_METADATA_DISCOVERY.
    peer_metadata_discovery: bool | None = None
    #: COMPLIANCE_POLICY
    compliance_policy: str = ""
    #: The node's address, for `$(HOST_IP)`. HOST_IP.
    host_ip: str = ""


def read_options(environ: Mapping[str, str]) -> tuple[Options, list[str]]:
    """Return the options and a warning for each value that its default replaced."""
    warnings: list[str] = []

    def port(name: str, default: int) -> int:
        text = environ.get(name)
        if text is None:
            return default
        if text.isascii() and text.isdigit() and int(text[:6]) <= MAX_PORT:
            return int(text)
        warnings.append(f"{name}={text!r}: expected a port in 0..{MAX_PORT}; using {default}")
        return default

    def switch(name: str, *, default: bool) -> bool:
        text = environ.get(name)
        if text is None:
            return default
        if text in TRUE or text in FALSE:
            return text in TRUE
        value = str(default).lower()
        warnings.append(f"{name}={text!r}: expected 'true' or 'false'; using {value}")
        return default

    discovery = None
    if "PEER_METADATA_DISCOVERY" in environ:
        discovery = switch("PEER_METADATA_DISCOVERY", default=False)
    options = Options(
        status_port=port("ENVOY_STATUS_PORT", 15021),
        prometheus_port=port("ENVOY_PROMETHEUS_PORT", 15090),
        secure_metrics_port=port("ENVOY_SECURE_METRICS_PORT", 0),
        secure_merged_metrics_port=port("ENVOY_SECURE_MERGED_METRICS_PORT", 0),
        status_proxy_protocol=switch("ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL", default=False),
        exit_on_zero_active_connections=switch("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", default=False),
        skip_deprecated_logs=switch("ENVOY_SKIP_DEPRECATED_LOGS", default=True),
        delta_xds=switch("ISTIO_DELTA_XDS", default=True),
        dual_stack=switch("ISTIO_DUAL_STACK", default=False),
        strip_fragment=switch("HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED", default=True),
        peer_metadata_discovery=discovery,
        compliance_policy=environ.get("COMPLIANCE_POLICY", ""),
        host_ip=environ.get("HOST_IP", ""),
    )
    return options, warnings
