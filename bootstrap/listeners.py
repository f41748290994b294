"""The listeners that every bootstrap has: metrics and health. Source: bootstrap.md section 5.5."""

from collections.abc import Mapping, Sequence
from typing import Final

from bootstrap.addresses import Network
from bootstrap.clusters import TYPES, sds_secret, socket_address
from bootstrap.document import Document
from bootstrap.options import Options

HTTP_MANAGER: Final = "envoy.filters.network.http_connection_manager"
FILTERS: Final = "envoy.extensions.filters"
ROUTER: Final[Document] = {
    "name": "envoy.filters.http.router",
    "typed_config": {"@type": f"{TYPES}{FILTERS}.http.router.v3.Router"},
}
PROXY_PROTOCOL: Final[Document] = {
    "name": "envoy.listener.proxy_protocol",
    "typed_config": {
        "@type": f"{TYPES}{FILTERS}.listener.proxy_protocol.v3.ProxyProtocol",
        "allow_requests_without_proxy_protocol": True,
    },
}
TLS_INSPECTOR: Final[Document] = {
    "name": "envoy.filters.listener.tls_inspector",
    "typed_config": {"@type": f"{TYPES}{FILTERS}.listener.tls_inspector.v3.TlsInspector"},
}
NOTHING: Final[Mapping[str, object]] = {}
COMPRESSIONS: Final = ("brotli", "zstd", "gzip")
COMPRESSED_TYPES: Final = [
    "text/plain",
    "application/vnd.google.protobuf",
    "application/openmetrics-text",
    "application/openmetrics-protobuf",
]


def listeners(
    options: Options, network: Network, *, local_metrics: bool, compress: bool
) -> list[Document]:
    """Return the listeners, in order.

    Args:
        options: ports and the PROXY protocol.
        network: what the pod listens on.
        local_metrics: Envoy's metrics answer only inside the pod.
        compress: Envoy's metrics may be compressed.
    """
    local = network._replace(
        wildcard=network.localhost, additional_wildcard=network.additional_localhost
    )
    stats = _listener(
        local if local_metrics else network,
        options.prometheus_port,
        "stats",
        {"/stats/prometheus": "prometheus_stats"},
        filters=[_compressor(name) for name in COMPRESSIONS] if compress else [],
    )
    health = _listener(network, options.status_port, "agent", {"/healthz/ready": "agent"})
    if options.status_proxy_protocol:
        health["listener_filters"] = [PROXY_PROTOCOL]
    return [stats, *_secure_metrics(options, network), health]


def _secure_metrics(options: Options, network: Network) -> list[Document]:
    """Return the listeners for metrics that take only clients with a certificate of the mesh."""
    one_family = network._replace(additional_wildcard="")
    merged = {"/stats/prometheus": "agent", "/metrics": "agent"}
    wanted = (
        (options.secure_metrics_port, "secure_stats", {"/stats/prometheus": "prometheus_stats"}),
        (options.secure_merged_metrics_port, "secure_merged_stats", merged),
    )
    return [
        _listener(one_family, port, prefix, routes, chain=_mutual_tls())
        | {"listener_filters": [TLS_INSPECTOR]}
        for port, prefix, routes in wanted
        if port
    ]


def _listener(
    network: Network,
    port: int,
    stat_prefix: str,
    routes: Mapping[str, str],
    *,
    filters: Sequence[Document] = (),
    chain: Mapping[str, object] = NOTHING,
) -> Document:
    """Return a listener that routes path prefixes to clusters.

    No limit of the overload manager applies: metrics and probes matter most under load.

    Args:
        network: listens on its wildcards.
        port: of both families.
        stat_prefix: of the listener's own statistics.
        routes: clusters by prefix, tried in order.
        filters: HTTP filters before the router.
        chain: more members of the filter chain.
    """
    virtual_host = {
        "name": "backend",
        "domains": ["*"],
        "routes": [
            {"match": {"prefix": prefix}, "route": {"cluster": cluster}}
            for prefix, cluster in routes.items()
        ],
    }
    manager = {
        "@type": f"{TYPES}{FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        "codec_type": "AUTO",
        "stat_prefix": stat_prefix,
        "route_config": {"virtual_hosts": [virtual_host]},
        "http_filters": [*filters, ROUTER],
    }
    listener: Document = {
        "name": f"{network.wildcard}_{port}",
        "address": socket_address(network.wildcard, port, protocol="TCP"),
        "ignore_global_conn_limit": True,
        "bypass_overload_manager": True,
        "filter_chains": [{"filters": [{"name": HTTP_MANAGER, "typed_config": manager}], **chain}],
    }
    if network.additional_wildcard:
        address = socket_address(network.additional_wildcard, port, protocol="TCP")
        listener["additional_addresses"] = [{"address": address}]
    return listener


def _mutual_tls() -> Document:
    """Return the members of a filter chain that takes any client of the mesh."""
    tls = {
        "@type": f"{TYPES}envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "require_client_certificate": True,
        "common_tls_context": {
            "tls_certificate_sds_secret_configs": [sds_secret("default")],
            "combined_validation_context": {
                "default_validation_context": {},
                "validation_context_sds_secret_config": sds_secret("ROOTCA"),
            },
        },
    }
    return {
        "filter_chain_match": {"transport_protocol": "tls"},
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls},
    }


def _compressor(name: str) -> Document:
    kind = f"{TYPES}envoy.extensions.compression.{name}.compressor.v3.{name.capitalize()}"
    return {
        "name": f"envoy.filters.http.compressor.{name}",
        "typed_config": {
            "@type": f"{TYPES}{FILTERS}.http.compressor.v3.Compressor",
            "compressor_library": {"name": f"stats_{name}", "typed_config": {"@type": kind}},
            "response_direction_config": {
                "common_config": {"content_type": COMPRESSED_TYPES},
            },
        },
    }
