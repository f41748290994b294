"""What istiod would tell an Envoy of a small mesh, as values.

Mutual TLS everywhere, and nothing else let in, but for ports that say otherwise. Every service has
an address of its own, which only Envoys know: what reaches it went through one.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from tests.envoy.identity_envoy import secret

Json = dict[str, Any]

PREFIX: Final = "type.googleapis.com/envoy"
CLUSTER: Final = f"{PREFIX}.config.cluster.v3.Cluster"
ENDPOINTS: Final = f"{PREFIX}.config.endpoint.v3.ClusterLoadAssignment"
LISTENER: Final = f"{PREFIX}.config.listener.v3.Listener"
NAME_TABLE: Final = "type.googleapis.com/istio.networking.nds.v1.NameTable"
NETWORK: Final = f"{PREFIX}.extensions.filters.network"
TLS: Final = f"{PREFIX}.extensions.transport_sockets.tls.v3"
OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
TRUST_DOMAIN: Final = "cluster.local"
INBOUND_PORT, OUTBOUND_PORT = 15006, 15001
#: By IP version: where Envoy's connections to the application come from, and all there are.
#: Source: traffic-capture.md section 6.2.
PASSTHROUGH_SOURCES: Final = {4: "127.0.0.6", 6: "::6"}
WILDCARDS: Final = {4: "0.0.0.0", 6: "::"}
ORIGINAL_DST: Final = {"type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED"}


class Service(NamedTuple):
    """A service with one port."""

    name: str
    address: str  #: its own, of IPv4
    port: int
    target_port: int
    speaks_http: bool = True
    is_plain: bool = False  #: clients come without mutual TLS
    lets_plain_in: bool = False  #: and sidecars of it let them
    namespace: str = "default"
    versions: str = "4"  #: of IP: those of its pods, and of its own addresses
    endpoints: tuple[str, ...] = ()  #: addresses of ready pods

    @property
    def host(self) -> str:
        return f"{self.name}.{self.namespace}.svc.cluster.local"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return its own addresses; that of IPv6 ends like the other one."""
        own = {"4": self.address, "6": str(ip_address(f"fd00:96::{self.address}"))}
        return tuple(own[version] for version in self.versions)

    @property
    def cluster(self) -> str:
        return f"outbound|{self.port}||{self.host}"


class Proxy(NamedTuple):
    """An Envoy, by what its node says."""

    kind: str  #: "sidecar" or "router"
    ips: tuple[str, ...]
    namespace: str
    is_transparent: bool = False  #: interception mode TPROXY

    @property
    def versions(self) -> tuple[int, ...]:
        """Return the IP versions that it has, its main one first."""
        return tuple(dict.fromkeys(ip_address(each).version for each in self.ips))

    def usable(self, addresses: Iterable[str]) -> list[str]:
        """Return those of the addresses that are of its IP versions, its main one first."""
        found = [each for each in addresses if ip_address(each).version in self.versions]
        return sorted(found, key=lambda each: self.versions.index(ip_address(each).version))


class Mesh(NamedTuple):
    """All that is known."""

    services: tuple[Service, ...] = ()
    #: What a gateway serves on its port: the service behind it.
    gateway_port: int = 80
    behind_gateway: str = ""


Resources = Mapping[str, Mapping[str, Json]]


def resources(mesh: Mesh, proxy: Proxy) -> Resources:
    """Return what an Envoy is to have, by type URL and name."""
    clusters = [_outbound_cluster(service) for service in mesh.services]
    own = _gateway(mesh, proxy) if proxy.kind == "router" else list(_sidecar(mesh, proxy))
    assignments = [_assignment(service, proxy) for service in mesh.services]
    return {
        CLUSTER: {each["name"]: each for each in (*clusters, *_passthrough(proxy))},
        LISTENER: {each["name"]: each for each in own},
        ENDPOINTS: {each["cluster_name"]: each for each in assignments},
    }


def _passthrough(proxy: Proxy) -> Iterator[Json]:
    first, *more = ({"address": PASSTHROUGH_SOURCES[v], "port_value": 0} for v in proxy.versions)
    bind = {"source_address": first, "extra_source_addresses": [{"address": each} for each in more]}
    yield {"name": "PassthroughCluster", "connect_timeout": "10s", **ORIGINAL_DST}
    yield {
        "name": "InboundPassthroughCluster",
        "connect_timeout": "10s",
        "upstream_bind_config": bind,
        **ORIGINAL_DST,
        **_same_protocol(),
    }
    yield {
        "name": "InboundTransparentCluster",
        "connect_timeout": "10s",
        **ORIGINAL_DST,
        **_same_protocol(),
    }


def _same_protocol() -> Json:
    """Return what has a cluster speak to the upstream what the downstream has spoken."""
    use: Json = {"http_protocol_options": {}, "http2_protocol_options": {}}
    options = {"@type": f"type.googleapis.com/{OPTIONS}", "use_downstream_protocol_config": use}
    return {"typed_extension_protocol_options": {OPTIONS: options}}


def _outbound_cluster(service: Service) -> Json:
    cluster = {
        "name": service.cluster,
        "type": "EDS",
        "connect_timeout": "10s",
        "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}},
    }
    if service.speaks_http:
        cluster.update(_same_protocol())
    if not service.is_plain:
        sni = f"outbound_.{service.port}_._.{service.host}"
        cluster["transport_socket"] = _tls("UpstreamTlsContext", {}, sni=sni)
    return cluster


def _assignment(service: Service, proxy: Proxy) -> Json:
    endpoints = [
        {"endpoint": {"address": _address(ip, service.target_port)}}
        for ip in proxy.usable(service.endpoints)
    ]
    return {"cluster_name": service.cluster, "endpoints": [{"lb_endpoints": endpoints}]}


def _sidecar(mesh: Mesh, proxy: Proxy) -> Iterator[Json]:
    yield {
        "name": "virtualOutbound",
        **_on(OUTBOUND_PORT, proxy.usable(WILDCARDS.values())),
        "use_original_dst": True,
        "filter_chains": [_tcp("PassthroughCluster")],
        "traffic_direction": "OUTBOUND",
        "transparent": proxy.is_transparent,
    }
    for service in mesh.services:
        addresses = proxy.usable(service.addresses)
        if not addresses:
            continue
        chain = (_http if service.speaks_http else _tcp)(service.cluster)
        yield {
            "name": f"{service.address}_{service.port}",
            **_on(service.port, addresses),
            "bind_to_port": False,
            "filter_chains": [chain],
            "traffic_direction": "OUTBOUND",
        }
    yield _virtual_inbound(mesh, proxy)


def _virtual_inbound(mesh: Mesh, proxy: Proxy) -> Json:
    cluster = "InboundPassthroughCluster"
    filters = ["original_dst", "tls_inspector"]
    if proxy.is_transparent:
        cluster = "InboundTransparentCluster"
        filters.insert(1, "original_src")
    mutual = {"transport_protocol": "tls"}
    socket = _tls(
        "DownstreamTlsContext",
        # clients of HTTP say which one they speak
        {"alpn_protocols": ["h2", "http/1.1"]},
        require_client_certificate=True,
    )
    chains = [
        {"filter_chain_match": mutual, "transport_socket": socket, **_http(cluster, client=True)}
    ]
    for port in sorted({each.target_port for each in mesh.services if not each.speaks_http}):
        match = {"destination_port": port, **mutual}
        chains.append({"filter_chain_match": match, "transport_socket": socket, **_tcp(cluster)})
    for port in sorted({each.target_port for each in mesh.services if each.lets_plain_in}):
        match = {"destination_port": port, "transport_protocol": "raw_buffer"}
        chains.append({"filter_chain_match": match, **_http(cluster)})
    return {
        "name": "virtualInbound",
        **_on(INBOUND_PORT, proxy.usable(WILDCARDS.values())),
        "filter_chains": chains,
        "listener_filters": [_listener_filter(name) for name in filters],
        "traffic_direction": "INBOUND",
        "transparent": proxy.is_transparent,
    }


def _listener_filter(name: str) -> Json:
    words = {"original_dst": "OriginalDst", "original_src": "OriginalSrc"}
    config = {
        "@type": f"{PREFIX}.extensions.filters.listener.{name}.v3.{words.get(name, 'TlsInspector')}"
    }
    # the mark by which answers of the application find their way back to Envoy
    mark = {"mark": 1337} if name == "original_src" else {}
    return {"name": f"envoy.filters.listener.{name}", "typed_config": {**config, **mark}}


def _gateway(mesh: Mesh, proxy: Proxy) -> list[Json]:
    behind = [each for each in mesh.services if each.name == mesh.behind_gateway]
    return [
        {
            "name": f"0.0.0.0_{mesh.gateway_port}",
            **_on(mesh.gateway_port, proxy.usable(WILDCARDS.values())),
            "filter_chains": [_http(each.cluster)],
            "traffic_direction": "OUTBOUND",
        }
        for each in behind
    ]


def _http(cluster: str, *, client: bool = False) -> Json:
    """Return a chain for HTTP; with `client`, the application is told who has called."""
    host = {
        "name": "all",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": cluster, "timeout": "0s"}}],
    }
    manager = {
        "@type": f"{NETWORK}.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": cluster,
        "route_config": {"name": cluster, "virtual_hosts": [host], "validate_clusters": False},
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{PREFIX}.extensions.filters.http.router.v3.Router"},
            }
        ],
    }
    if client:
        manager["forward_client_cert_details"] = "SANITIZE_SET"
        manager["set_current_client_cert_details"] = {"uri": True}
    return {"filters": [{"name": "http", "typed_config": manager}]}


def _tcp(cluster: str) -> Json:
    proxy = {
        "@type": f"{NETWORK}.tcp_proxy.v3.TcpProxy",
        "stat_prefix": cluster,
        "cluster": cluster,
    }
    return {"filters": [{"name": "tcp", "typed_config": proxy}]}


def _tls(context: str, common: Json, **more: Any) -> Json:  # noqa: ANN401 - JSON
    """Return mutual TLS, with what the agent's SDS calls by these names."""
    member = {"san_type": "URI", "matcher": {"prefix": f"spiffe://{TRUST_DOMAIN}/"}}
    common = {
        **common,
        "tls_certificate_sds_secret_configs": [secret("default")],
        "combined_validation_context": {
            "default_validation_context": {"match_typed_subject_alt_names": [member]},
            "validation_context_sds_secret_config": secret("ROOTCA"),
        },
    }
    config = {"@type": f"{TLS}.{context}", "common_tls_context": common, **more}
    return {"name": "envoy.transport_sockets.tls", "typed_config": config}


def _on(port: int, addresses: Iterable[str]) -> Json:
    """Return where a listener listens."""
    first, *more = (_address(each, port) for each in addresses)
    return {"address": first, "additional_addresses": [{"address": each} for each in more]}


def _address(ip: str, port: int) -> Json:
    return {"socket_address": {"address": ip, "port_value": port}}
