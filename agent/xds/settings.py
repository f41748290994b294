"""The settings of the relay between Envoy and the control plane.

Source: xds-identity-dns.md sections 2.1 to 2.4 and 12.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from agent.credentials.settings import (
    TokenSettings,
    is_loopback,
    parse_headers,
    parse_policy,
    parse_proxy,
)
from agent.reader import Reader, parse_bool, parse_duration, parse_int, parse_port, parse_text

BUILTIN: Final = "builtin"
DEFAULT_SERVER_NAME: Final = "istiod.istio-system.svc"
HEADER_PREFIX: Final = "XDS_HEADER_"
#: gRPC's numbers are 32-bit integers, its times milliseconds in such a number.
MAX_INT32: Final = 2**31 - 1
MAX_HOURS: Final = MAX_INT32 // 3_600_000
#: A control plane that is there has sent Envoy its first answer by then, hardly sooner.
MIN_AFTER_SECONDS: Final = 0.1
#: A mesh in which nothing happens must not be kept busy by streams that come and go.
MIN_SILENCE_SECONDS: Final = 10
#: In ProxyConfig configPath.
CACHE_DIRECTORY: Final = "known-good"
#: Envoy's first request has some 60 kB; with a lower limit the pod would never be ready.
MIN_RECEIVE_BYTES: Final = 256 * 1024


class KeepaliveSettings(NamedTuple):
    """HTTP/2 pings, on both sides of the relay."""

    interval_seconds: float = 30.0
    timeout_seconds: float = 10.0


class CredentialSettings(NamedTuple):
    """What names the files of certificates; credentials.py chooses among them."""

    #: A path, or SYSTEM. XDS_ROOT_CA.
    root: str = ""
    #: Directory of a machine's own certificates. PROV_CERT.
    provisioned: str = ""
    #: Certificates are mounted, not issued. FILE_MOUNTED_CERTS, CA_PROVIDER.
    file_mounted: bool = False
    #: ISTIO_META_TLS_CLIENT_{ROOT_CERT,CERT_CHAIN,KEY} of proxyMetadata, used when file-mounted.
    mounted_root: str = ""
    mounted_chain: str = ""
    mounted_key: str = ""
    #: PILOT_CERT_PROVIDER.
    provider: str = "istiod"


class UpstreamSettings(NamedTuple):
    """How the control plane is reached."""

    #: host:port, as configured.
    address: str
    tls: bool
    #: SNI and the name in the control plane's certificate.
    server_name: str
    credentials: CredentialSettings
    #: Sent with each stream: clusterid, and one per XDS_HEADER_*.
    metadata: tuple[tuple[str, str], ...]
    token: TokenSettings = TokenSettings()
    #: Whether the token may be sent on this connection (D-18). AGENT_XDS_PLAINTEXT_TOKEN.
    send_token: bool = True
    #: URL of an HTTP proxy in between; empty: none. HTTPS_PROXY, NO_PROXY.
    proxy: str = ""
    #: What TLS is restricted to; empty: nothing. COMPLIANCE_POLICY.
    policy: str = ""


class PatienceSettings(NamedTuple):
    """How long a control plane whose connection lives may do nothing."""

    #: Until it has taken a request.
    send_seconds: float = 30.0
    #: Until it sends something; zero: for ever. AGENT_XDS_MAX_SILENCE.
    silence_seconds: float = 0.0


class CacheSettings(NamedTuple):
    """What Envoy has accepted, kept for a start without a control plane."""

    #: Where; empty: nowhere. AGENT_XDS_CACHE.
    directory: str = ""
    #: An Envoy without any configuration gets it if there is no answer for so long.
    #: AGENT_XDS_CACHE_AFTER.
    after_seconds: float = 5.0


class XdsSettings(NamedTuple):
    """The relay, and who answers Envoy: the control plane or local resources."""

    socket_path: str
    upstream: UpstreamSettings
    keepalive: KeepaliveSettings = KeepaliveSettings()
    #: ISTIO_GPRC_MAXSTREAMS; the spelling is the contract.
    max_streams: int = 100_000
    #: Of one message from Envoy. ISTIO_GPRC_MAXRECVMSGSIZE.
    max_receive_bytes: int = 4_194_304
    #: Empty: the control plane; `builtin`: pass everything through; else a directory of resources.
    #: AGENT_LOCAL_XDS.
    local: str = ""
    #: Address families and interception of this pod, for `builtin`.
    ipv4: bool = True
    ipv6: bool = False
    tproxy: bool = False
    #: Where else the control plane is, in the order of trying; discoveryAddress is a list for us.
    others: tuple[UpstreamSettings, ...] = ()
    patience: PatienceSettings = PatienceSettings()
    cache: CacheSettings = CacheSettings()


def parse_xds(
    read: Reader,
    *,
    config_path: str,
    discovery_address: str,
    tls: bool,
    proxy_metadata: Mapping[str, str],
    ipv4: bool,
    ipv6: bool,
    token: TokenSettings = TokenSettings(),  # noqa: B008 - immutable
) -> XdsSettings:
    """Return the relay's branch; unusable values are noted on the reader.

    Args:
        read: the environment.
        config_path: ProxyConfig configPath, where the socket goes.
        discovery_address: ProxyConfig discoveryAddress, host:port.
        tls: whether ProxyConfig controlPlaneAuthPolicy is anything but NONE.
        proxy_metadata: ProxyConfig proxyMetadata.
        ipv4: the pod has an IPv4 address.
        ipv6: the pod has an IPv6 address.
        token: where the token comes from.
    """
    local = read.take("AGENT_LOCAL_XDS", parse_text, default="")
    first, *others = _upstreams(
        read, discovery_address, tls=tls, proxy_metadata=proxy_metadata, used=not local, token=token
    )
    return XdsSettings(
        socket_path=f"{config_path}/XDS",
        upstream=first,
        others=tuple(others),
        keepalive=KeepaliveSettings(
            interval_seconds=read.take("GRPC_KEEPALIVE_INTERVAL", _parse_interval, default=30.0),
            timeout_seconds=read.take("GRPC_KEEPALIVE_TIMEOUT", _parse_timeout, default=10.0),
        ),
        max_streams=read.take("ISTIO_GPRC_MAXSTREAMS", _parse_streams, default=100_000),
        max_receive_bytes=read.take("ISTIO_GPRC_MAXRECVMSGSIZE", _parse_size, default=4_194_304),
        local=local,
        ipv4=ipv4,
        ipv6=ipv6,
        tproxy=read.take("ISTIO_META_INTERCEPTION_MODE", parse_text, default="") == "TPROXY",
        patience=PatienceSettings(
            silence_seconds=read.take("AGENT_XDS_MAX_SILENCE", _parse_silence, default=0.0)
        ),
        cache=_cache(read, config_path, used=not local),
    )


def _cache(read: Reader, config_path: str, *, used: bool) -> CacheSettings:
    is_on = read.take("AGENT_XDS_CACHE", parse_bool, default=False) and used
    return CacheSettings(
        directory=f"{config_path}/{CACHE_DIRECTORY}" if is_on else "",
        after_seconds=read.take("AGENT_XDS_CACHE_AFTER", _parse_after, default=5.0),
    )


def _is_port(text: str) -> bool:
    try:
        return parse_port(text) > 0
    except ValueError:
        return False


def _parse_interval(text: str) -> float:
    seconds = parse_duration(text)
    if not 1 <= seconds <= MAX_HOURS * 3600:
        raise ValueError(f"expected a duration from 1s to {MAX_HOURS}h")
    return seconds


def _parse_timeout(text: str) -> float:
    seconds = parse_duration(text)
    if not 0.001 <= seconds <= MAX_HOURS * 3600:  # noqa: PLR2004 - gRPC counts milliseconds
        raise ValueError(f"expected a duration from 1ms to {MAX_HOURS}h")
    return seconds


def _parse_silence(text: str) -> float:
    seconds = parse_duration(text)
    if seconds and not MIN_SILENCE_SECONDS <= seconds <= MAX_HOURS * 3600:
        raise ValueError(f"expected 0s, or a duration from {MIN_SILENCE_SECONDS}s to {MAX_HOURS}h")
    return seconds


def _parse_after(text: str) -> float:
    seconds = parse_duration(text)
    if not MIN_AFTER_SECONDS <= seconds <= MAX_HOURS * 3600:
        raise ValueError(f"expected a duration from {MIN_AFTER_SECONDS}s to {MAX_HOURS}h")
    return seconds


def _parse_streams(text: str) -> int:
    streams = parse_int(text)
    if not 1 <= streams <= MAX_INT32:
        raise ValueError(f"expected a number of streams in 1..{MAX_INT32}")
    return streams


def _parse_size(text: str) -> int:
    size = parse_int(text)
    if not MIN_RECEIVE_BYTES <= size <= MAX_INT32:
        raise ValueError(f"expected a number of bytes in {MIN_RECEIVE_BYTES}..{MAX_INT32}")
    return size


def _upstreams(
    read: Reader,
    addresses: str,
    *,
    tls: bool,
    proxy_metadata: Mapping[str, str],
    used: bool,
    token: TokenSettings,
) -> list[UpstreamSettings]:
    """Return how each address is reached; at least one, whatever is wrong with it."""
    san = read.take("ISTIOD_SAN", parse_text, default="")
    anywhere = read.take("AGENT_XDS_PLAINTEXT_TOKEN", parse_bool, default=False)
    policy = read.take("COMPLIANCE_POLICY", parse_policy, default="")
    cluster_id = read.take("ISTIO_META_CLUSTER_ID", parse_text, default="")
    metadata = (("clusterid", cluster_id), *parse_headers(read, HEADER_PREFIX))
    credentials = _credentials(read, proxy_metadata)
    found = []
    for address in [part.strip() for part in addresses.split(",") if part.strip()] or [addresses]:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        is_usable = host and _is_port(port)
        if used and not is_usable:
            read.errors.append(
                f"discoveryAddress={address!r}: expected host:port, as {DEFAULT_SERVER_NAME}:15012"
            )
        found.append(
            UpstreamSettings(
                address=address,
                tls=tls,
                server_name=san or (DEFAULT_SERVER_NAME if "localhost" in host else host),
                credentials=credentials,
                metadata=metadata,
                token=token,
                send_token=tls or anywhere or is_loopback(host),
                proxy=parse_proxy(read, address) if used and is_usable else "",
                policy=policy,
            )
        )
    return found


def _credentials(read: Reader, proxy_metadata: Mapping[str, str]) -> CredentialSettings:
    mounted = read.take("FILE_MOUNTED_CERTS", parse_bool, default=False)
    provider = read.take("CA_PROVIDER", parse_text, default="Citadel")
    return CredentialSettings(
        root=read.take("XDS_ROOT_CA", parse_text, default=""),
        provisioned=read.take("PROV_CERT", parse_text, default=""),
        file_mounted=mounted or provider == "GkeWorkloadCertificate",
        mounted_root=proxy_metadata.get("ISTIO_META_TLS_CLIENT_ROOT_CERT", ""),
        mounted_chain=proxy_metadata.get("ISTIO_META_TLS_CLIENT_CERT_CHAIN", ""),
        mounted_key=proxy_metadata.get("ISTIO_META_TLS_CLIENT_KEY", ""),
        provider=read.take("PILOT_CERT_PROVIDER", parse_text, default="istiod"),
    )
