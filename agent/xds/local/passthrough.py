"""The built-in configuration: all captured traffic goes on to where it was going.

It lets a pod with captured traffic work without a control plane, and its inbound HTTP take part in
a drain. Names are those that istiod gives to the same things.

The journey. Inbound: 15006, original destination, HTTP or not?, then from 127.0.0.6 (`::6`), by
which the rules of capture know that it was here. Outbound: 15001, original destination, out.
What was sent to 15001 or 15006 itself goes nowhere: passing it on would come back for ever.
Neither listener has `use_original_dst`, which istiod sets: it would hand a connection to port
15021 of another pod to this pod's own listener on that port.

The messages are written field by field: `(4, chain)` is field 4. Numbers are those of Envoy's API,
version 3; a test compares the bytes, decoded by the generated classes, with a readable file.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from agent.protobuf.wire import Value, message
from agent.xds.discovery import Resource
from agent.xds.resources import CLUSTER, LISTENER, PREFIX
from agent.xds.snapshot import Snapshot, make_snapshot

VERSION: Final = "builtin"
OUTBOUND_PORT: Final = 15001
INBOUND_PORT: Final = 15006
PASSTHROUGH: Final = "PassthroughCluster"
BLACK_HOLE: Final = "BlackHoleCluster"
#: The mark by which TPROXY rules know Envoy's own connections. traffic-capture.md section 6.5.
TPROXY_MARK: Final = 1337
#: After it a connection on which the client says nothing passes as TCP: its server speaks first.
DETECTION_NANOSECONDS: Final = 100_000_000
CONNECT_SECONDS: Final = 10
UNLIMITED: Final = 0xFFFFFFFF
#: The largest limits that Envoy accepts: what is too long is for the application to say.
MAX_HEADERS_KB: Final = 8192
MAX_HEADERS: Final = 65536

# Values of enums.
INBOUND, OUTBOUND = 1, 2  # core.v3.TrafficDirection
ORIGINAL_DST = 4  # Cluster.DiscoveryType
CLUSTER_PROVIDED = 6  # Cluster.LbPolicy
HIGH_PRIORITY = 1  # core.v3.RoutingPriority
PASS_THROUGH = 2  # HttpConnectionManager.ServerHeaderTransformation
KEEP_UNCHANGED = 1  # HttpConnectionManager.PathWithEscapedSlashesAction

EXTENSIONS: Final = "envoy.extensions"
HTTP_OPTIONS: Final = f"{EXTENSIONS}.upstreams.http.v3.HttpProtocolOptions"
TRUE: Final = message((1, 1))  # BoolValue
FALSE: Final = b""
ZERO: Final = b""  # Duration


class Family(NamedTuple):
    """One address family of the pod."""

    wildcard: str
    inbound_cluster: str
    inbound_source: str
    suffix: str  #: of the names of filter chains


IPV4: Final = Family("0.0.0.0", "InboundPassthroughCluster", "127.0.0.6", "")  # noqa: S104 - a listener's address
IPV6: Final = Family("::", "InboundPassthroughClusterIpv6", "::6", "-ipv6")


def passthrough(*, ipv4: bool, ipv6: bool, tproxy: bool = False) -> Snapshot:
    """Return listeners and clusters for a pod with these address families.

    With TPROXY the application sees the client's own address, so inbound connections are made
    from that and not from 127.0.0.6.
    """
    families = [family for family, present in ((IPV4, ipv4), (IPV6, ipv6)) if present] or [IPV4]
    clusters = {
        PASSTHROUGH: _original_destination(PASSTHROUGH),
        BLACK_HOLE: message((1, BLACK_HOLE), (4, _seconds(CONNECT_SECONDS))),
    }
    for family in families:
        name = family.inbound_cluster
        source = [] if tproxy else [(21, message((1, _socket_address(family.inbound_source, 0))))]
        clusters[name] = _original_destination(name, (36, _http_options()), *source)
    listeners = {
        "virtualInbound": _inbound(families, tproxy=tproxy),
        "virtualOutbound": _outbound(families),
    }
    return make_snapshot(
        VERSION,
        [
            *(Resource(CLUSTER, name, VERSION, body) for name, body in clusters.items()),
            *(Resource(LISTENER, name, VERSION, body) for name, body in listeners.items()),
        ],
    )


def _inbound(families: Sequence[Family], *, tproxy: bool) -> bytes:
    chains = [_guard("virtualInbound-blackhole", INBOUND_PORT)]
    for family in families:
        chains += _inbound_chains(family)
    filters = [_listener_filter("original_dst", "OriginalDst")]
    if tproxy:
        filters.append(_listener_filter("original_src", "OriginalSrc", (2, TPROXY_MARK)))
    filters.append(_listener_filter("http_inspector", "HttpInspector"))
    return message(
        *_listener("virtualInbound", families, INBOUND_PORT, chains, filters),
        *[(10, TRUE)] * tproxy,  # transparent
        (15, message((2, DETECTION_NANOSECONDS))),  # listener_filters_timeout
        (16, INBOUND),
        (17, 1),  # continue_on_listener_filters_timeout
    )


def _inbound_chains(family: Family) -> list[bytes]:
    """Return the chains for HTTP and for everything else."""
    to_family = (3, message((1, family.wildcard), (2, b"")))  # prefix of length 0
    cluster, suffix = family.inbound_cluster, family.suffix
    # No transport protocol: Envoy would not come back from it to the chain for everything else.
    match = message(to_family, (10, "http/1.1"), (10, "h2c"))
    return [
        _chain(f"virtualInbound-catchall-http{suffix}", match, _http_connection_manager(cluster)),
        _chain(f"virtualInbound{suffix}", message(to_family), _tcp_proxy(cluster)),
    ]


def _outbound(families: Sequence[Family]) -> bytes:
    chains = [
        _guard("virtualOutbound-blackhole", OUTBOUND_PORT),
        _chain("virtualOutbound-catchall-tcp", b"", _tcp_proxy(PASSTHROUGH)),
    ]
    filters = [_listener_filter("original_dst", "OriginalDst")]
    return message(
        *_listener("virtualOutbound", families, OUTBOUND_PORT, chains, filters),
        (16, OUTBOUND),
    )


def _listener(
    name: str,
    families: Sequence[Family],
    port: int,
    chains: Sequence[bytes],
    filters: Sequence[bytes],
) -> list[tuple[int, Value]]:
    first, *others = (message((1, _socket_address(each.wildcard, port))) for each in families)
    return [
        (1, name),
        (2, first),
        *((33, message((1, address))) for address in others),  # additional_addresses
        *((3, chain) for chain in chains),
        *((9, item) for item in filters),
    ]


def _guard(name: str, port: int) -> bytes:
    """Return the chain for connections that were made to the capture port itself."""
    return _chain(name, message((8, message((1, port)))), _tcp_proxy(BLACK_HOLE))


def _chain(name: str, match: bytes, network_filter: bytes) -> bytes:
    matched = [(1, match)] if match else []
    return message(*matched, (3, network_filter), (7, name))


def _listener_filter(name: str, message_name: str, *content: tuple[int, Value]) -> bytes:
    filter_name = f"envoy.filters.listener.{name}"
    type_name = f"{EXTENSIONS}.filters.listener.{name}.v3.{message_name}"
    return message((1, filter_name), (3, _any(type_name, *content)))


def _tcp_proxy(cluster: str) -> bytes:
    """Return TCP to a cluster; an idle connection is closed after Envoy's default of one hour."""
    type_name = f"{EXTENSIONS}.filters.network.tcp_proxy.v3.TcpProxy"
    return message(
        (1, "envoy.filters.network.tcp_proxy"),
        (4, _any(type_name, (1, cluster), (2, cluster))),  # stat_prefix, cluster
    )


def _http_connection_manager(cluster: str) -> bytes:
    """Return HTTP to a cluster, as close to the bytes of both sides as Envoy gets.

    Its `;` ends the part of a statistic's name that becomes a tag. bootstrap.md section 5.7.
    """
    type_name = f"{EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager"
    return message(
        (1, "envoy.filters.network.http_connection_manager"),
        (
            4,
            _any(
                type_name,
                (2, "inbound_passthrough;"),  # stat_prefix
                (4, _route_configuration(cluster)),
                (5, _router()),
                (8, _http1_options()),
                (15, FALSE),  # generate_request_id
                (18, 1),  # proxy_100_continue
                (21, 1),  # skip_xff_append
                (23, message((1, "websocket"))),  # upgrade_configs
                (23, message((1, "CONNECT"))),
                (24, ZERO),  # stream_idle_timeout
                (25, b""),  # internal_address_config: nobody is told who is internal
                (29, message((1, MAX_HEADERS_KB))),
                (30, FALSE),  # normalize_path
                (32, 1),  # preserve_external_request_id
                (34, PASS_THROUGH),
                (35, message((2, message((1, MAX_HEADERS))))),
                (45, KEEP_UNCHANGED),
            ),
        ),
    )


def _route_configuration(cluster: str) -> bytes:
    to_cluster = (2, message((1, cluster), (8, ZERO)))  # timeout
    stat_prefix = (19, "passthrough")
    tunnel = message((1, message((12, b""))), to_cluster, (14, "connect"), stat_prefix)
    anything = message((1, message((1, "/"))), to_cluster, (14, "default"), stat_prefix)
    host = message((1, "inbound|http|0"), (2, "*"), (3, tunnel), (3, anything))
    return message((1, cluster), (2, host), (7, FALSE))  # validate_clusters


def _router() -> bytes:
    router = f"{EXTENSIONS}.filters.http.router.v3.Router"
    return message(
        (1, "envoy.filters.http.router"),
        (4, _any(router, (4, 1))),  # suppress_envoy_headers
    )


def _http1_options() -> bytes:
    """Return options that keep the case of header names, the reason phrase, and trailers."""
    formatter = f"{EXTENSIONS}.http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfig"
    preserve = message(
        (1, "envoy.http.stateful_header_formatters.preserve_case"),
        (2, _any(formatter, (1, 1))),
    )
    return message(
        (4, message((8, preserve))),  # header_key_format
        (5, 1),  # enable_trailers
    )


def _original_destination(name: str, *extras: tuple[int, Value]) -> bytes:
    most = message((1, UNLIMITED))
    limits = [(2, most), (3, most), (4, most), (5, most)]
    return message(
        (1, name),
        (2, ORIGINAL_DST),
        (4, _seconds(CONNECT_SECONDS)),
        (6, CLUSTER_PROVIDED),
        (10, message((1, message(*limits)), (1, message((1, HIGH_PRIORITY), *limits)))),
        (28, f"{name};"),  # alt_stat_name
        *extras,
    )


def _http_options() -> bytes:
    """Return the map entry that has a cluster speak the protocol of the incoming request."""
    options = _any(
        HTTP_OPTIONS,
        (1, message((2, message((1, MAX_HEADERS))), (7, message((1, MAX_HEADERS_KB))))),
        (4, message((1, _http1_options()), (2, b""))),
    )
    return message((1, HTTP_OPTIONS), (2, options))


def _any(type_name: str, *content: tuple[int, Value]) -> bytes:
    return message((1, f"{PREFIX}{type_name}"), (2, message(*content)))


def _socket_address(address: str, port: int) -> bytes:
    return message((2, address), (3, port))


def _seconds(seconds: int) -> bytes:
    return message((1, seconds))
