"""The settings of the DNS proxy.

Source: xds-identity-dns.md sections 8.1, 8.2, 8.4, 8.6 and 12.
"""

from typing import Final, NamedTuple

from agent.reader import Reader, parse_bool, parse_duration, parse_period, parse_port, parse_text

DEFAULT_HOST: Final = "localhost"
DEFAULT_PORT: Final = 15053
DNS_PORT: Final = 53


class DnsSettings(NamedTuple):
    """Where the proxy listens, and how it forwards."""

    #: ISTIO_META_DNS_CAPTURE of a sidecar, ISTIO_META_ENABLE_DNS_SERVER.
    enabled: bool = False
    #: 'localhost' for both loopback addresses. DNS_PROXY_ADDR.
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    #: It is the resolver of the machine: resolv.conf names the agent itself.
    is_resolver: bool = False
    #: No control plane will send a table.
    is_local: bool = False
    #: Ask all upstream resolvers at once. DNS_FORWARD_PARALLEL.
    parallel: bool = False
    #: In which a forwarded query is answered, if only with SERVFAIL. DNS_FORWARD_TIMEOUT.
    timeout_seconds: float = 5.0
    #: Keep upstream replies for their TTL. AGENT_DNS_CACHE.
    cache: bool = False
    #: After which a missing table keeps the pod unready no more; 0: never. AGENT_DNS_READY_TIMEOUT.
    ready_timeout_seconds: float = 0.0
    #: Of the pod.
    namespace: str = ""
    #: Of the proxy, such as 'ns1.svc.cluster.local'.
    domain: str = ""


def parse_dns(
    read: Reader, *, is_sidecar: bool, is_root: bool, is_local: bool, domain: str
) -> DnsSettings:
    """Return the DNS branch; unusable values are noted on the reader.

    Args:
        read: the environment.
        is_sidecar: whether the proxy is one.
        is_root: whether the agent has uid 0.
        is_local: whether Envoy gets its resources without a control plane.
        domain: as given by --domain, '' for the default.
    """
    capture = read.take("ISTIO_META_DNS_CAPTURE", parse_bool, default=False)
    enabled = read.take("ISTIO_META_ENABLE_DNS_SERVER", parse_bool, default=False)
    namespace = read.take("POD_NAMESPACE", parse_text, default="")
    if not (enabled or (capture and is_sidecar)):
        return DnsSettings()
    host, port = _address(read, is_root=is_root)
    return DnsSettings(
        enabled=True,
        host=host,
        port=port,
        is_resolver=port == DNS_PORT,
        is_local=is_local,
        parallel=read.take("DNS_FORWARD_PARALLEL", parse_bool, default=False),
        timeout_seconds=read.take("DNS_FORWARD_TIMEOUT", parse_period, default=5.0),
        cache=read.take("AGENT_DNS_CACHE", parse_bool, default=False),
        ready_timeout_seconds=read.take("AGENT_DNS_READY_TIMEOUT", parse_duration, default=0.0),
        namespace=namespace,
        domain=domain or f"{namespace}.svc.cluster.local",
    )


def _address(read: Reader, *, is_root: bool) -> tuple[str, int]:
    """Return where to listen; the port of DNS itself is for an agent that is root."""
    default = DEFAULT_HOST, DEFAULT_PORT
    host, port = read.require("DNS_PROXY_ADDR", parse_address, default=default)
    if port == DNS_PORT and not is_root:
        read.warnings.append(
            f"DNS_PROXY_ADDR={host}:{port}: only root may listen on port {DNS_PORT}; "
            f"using {DEFAULT_HOST}:{DEFAULT_PORT}"
        )
        return default
    return host, port


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of 'host:port' or '[::1]:port'; nothing is the default."""
    host, colon, port = (text or f"{DEFAULT_HOST}:{DEFAULT_PORT}").rpartition(":")
    has_brackets = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not has_brackets):
        raise ValueError(f"expected host:port, as {DEFAULT_HOST}:{DEFAULT_PORT}")
    return host.strip("[]"), parse_port(port)
