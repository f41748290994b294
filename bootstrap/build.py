"""The text Envoy starts from, as a function of configuration, node and options.

Parts that few pods configure are imported only for those. Source: bootstrap.md section 5.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

from bootstrap import clusters
from bootstrap.addresses import Network, network
from bootstrap.clusters import TYPES, socket_address
from bootstrap.config import ProxyConfig, bootstrap_path, clean_path, template_path
from bootstrap.document import Document, canonical_json, parse_object
from bootstrap.grpc import grpc_bootstrap
from bootstrap.listeners import listeners
from bootstrap.node import Node
from bootstrap.options import Options
from bootstrap.stats import intervals, stats_config

__all__ = [
    "BootstrapInputs",
    "bootstrap_path",
    "build_bootstrap",
    "build_document",
    "companion_files",
    "grpc_bootstrap",
    "localhost",
    "template_path",
]


TEXT_LOG_FORMAT: Final = "%Y-%m-%dT%T.%fZ\t%l\tenvoy %n %g:%#\t%v\tthread=%t"
JSON_LOG_FORMAT: Final = {
    "time": "%Y-%m-%dT%T.%fZ",
    "level": "%l",
    "scope": "envoy %n",
    "msg": "%j",
    "caller": "%g:%#",
    "thread": "%t",
}
RUNTIME: Final[Mapping[str, object]] = {
    "envoy.deprecated_features:envoy.config.listener.v3.Listener"
    ".hidden_envoy_deprecated_use_original_dst": True,
    "envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update": False,
    "envoy.reloadable_features.fixed_heap_use_allocated": True,
    "envoy.reloadable_features.http_reject_path_with_fragment": False,
    "re2.max_program_size.error_level": "32768",
}
BOOLEANS: Final[Mapping[str, object]] = {"true": True, "false": False}
CONNECTION_LIMIT_METADATA: Final = "ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS"
CONNECTION_LIMIT_RUNTIME: Final = "overload.global_downstream_max_connections"
UNLIMITED: Final = 2147483647
#: Digits of the first number beyond Envoy's 64 bits.
LONGEST: Final = 19
MONITORS: Final = "envoy.resource_monitors"
ADS: Final = {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
#: Every bootstrap's admin port but for its address.
ADMIN: Final[Mapping[str, object]] = {
    "access_log": [
        {
            "name": "envoy.access_loggers.file",
            "typed_config": {
                "@type": f"{TYPES}envoy.extensions.access_loggers.file.v3.FileAccessLog",
                "path": "/dev/null",
            },
        }
    ],
    "profile_path": "/var/lib/istio/data/envoy.prof",
}


class BootstrapInputs(NamedTuple):
    """What the bootstrap is made of."""

    config: ProxyConfig
    node: Node
    options: Options = Options()
    #: --log_as_json
    log_as_json: bool = False
    #: --outlierLogPath
    outlier_log_path: str = ""
    workload_socket_file: str = "socket"
    #: Suffixes of statistics that the agent counts at the end. An extension, AGENT_EXIT_ON.
    counted_statistics: tuple[str, ...] = ()
    #: Envoy stays below this by shedding load; 0 is no limit. An extension, cases.md K6.
    memory_limit_bytes: int = 0


def build_bootstrap(inputs: BootstrapInputs) -> tuple[str, list[str]]:
    """Return the bootstrap as canonical JSON (sorted keys, compact), and warnings.

    Raises:
        BootstrapError: Envoy cannot be configured as asked.
    """
    document, warnings = build_document(inputs)
    return canonical_json(document), warnings


def build_document(inputs: BootstrapInputs) -> tuple[Document, list[str]]:
    """Return the bootstrap as data, and warnings; otherwise as build_bootstrap."""
    warnings: list[str] = []
    config, node, options = inputs.config, inputs.node, inputs.options
    typed = node.typed_metadata()
    annotations = cast("Mapping[str, str]", typed.get("ANNOTATIONS", {}))
    net = network(node.addresses, dual_stack=options.dual_stack)
    discovery = _metadata_discovery(node, options, warnings)
    more_clusters, more = _remote_parts(inputs, net, warnings)
    self_discovery = "ENABLE_SELF_DISCOVERY" in typed
    bootstrap: Document = {
        "application_log_config": {"log_format": _log_format(as_json=inputs.log_as_json)},
        "node": {
            "id": node.id,
            "cluster": node.cluster,
            "locality": node.locality,
            "metadata": node.metadata,
        },
        "layered_runtime": {
            "layers": [
                {"name": "global config", "static_layer": _runtime(config, options)},
                {"name": "admin", "admin_layer": {}},
            ]
        },
        "bootstrap_extensions": _extensions(metadata_discovery=discovery),
        **intervals(annotations, warnings),
        "stats_config": stats_config(
            config.document,
            annotations,
            node.addresses,
            metadata_discovery=discovery,
            counted=_counted(inputs),
            warnings=warnings,
        ),
        "admin": {**ADMIN, "address": socket_address(net.localhost, config.proxy_admin_port)},
        "dynamic_resources": _dynamic_resources(_xds_type(node, options)),
        "static_resources": {
            "clusters": [
                *_clusters(inputs, net),
                *more_clusters,
                *([clusters.local_cluster()] if self_discovery else []),
            ],
            "listeners": listeners(
                options,
                net,
                local_metrics=config.proxy_metadata.get("METRICS_LOCALHOST_ACCESS_ONLY") == "true",
                compress=config.document.get("statsCompression") is not False,
            ),
        },
        "overload_manager": _overload_manager(config, inputs.memory_limit_bytes),
        **more,
        **_cluster_manager(inputs, warnings, self_discovery=self_discovery),
        "deferred_stat_options": {"enable_deferred_creation_stats": True},
    }
    return bootstrap, warnings


def localhost(addresses: Sequence[str], *, dual_stack: bool) -> str:
    """Return the loopback address on which this pod's Envoy has its admin port.

    Whoever talks to the admin port asks here. Source: bootstrap.md section 5.2 and 8, defect 40.
    """
    return network(addresses, dual_stack=dual_stack).localhost


def companion_files(config: ProxyConfig) -> Mapping[str, str]:
    """Return the files that the bootstrap refers to, text by path; only Envoy may read them."""
    tracing = cast("Mapping[str, Mapping[str, str]]", config.document.get("tracing", {}))
    token = tracing.get("lightstep", {}).get("accessToken")
    return {token_file(config): token} if token else {}


def token_file(config: ProxyConfig) -> str:
    """Return where Lightstep's access token is written."""
    return clean_path(f"{config.config_path}/lightstep_access_token.txt")


def _counted(inputs: BootstrapInputs) -> Sequence[str]:
    """Return what ends a drain, as suffixes. Source: bootstrap.md section 5.7."""
    asked = inputs.options.exit_on_zero_active_connections
    required = ("downstream_cx_active",) if asked else ()
    return tuple(dict.fromkeys((*required, *inputs.counted_statistics)))


def _log_format(*, as_json: bool) -> Document:
    return {"json_format": JSON_LOG_FORMAT} if as_json else {"text_format": TEXT_LOG_FORMAT}


def _xds_type(node: Node, options: Options) -> str:
    return "DELTA_GRPC" if options.delta_xds or _is_waypoint(node) else "GRPC"


def _is_waypoint(node: Node) -> bool:
    return node.id.startswith("waypoint~")


def _metadata_discovery(node: Node, options: Options, warnings: list[str]) -> bool:
    """Return whether Envoy looks up its peers' metadata. Source: bootstrap.md section 5.2, MD."""
    if not _is_waypoint(node) and node.metadata.get("METADATA_DISCOVERY") != "true":
        return False
    if _xds_type(node, options) == "GRPC":
        warnings.append("metadata discovery is off because it needs ISTIO_DELTA_XDS=true")
        return False
    return True


def _runtime(config: ProxyConfig, options: Options) -> Document:
    """Return the static runtime layer; only JSON booleans switch features (section 8, 20)."""
    features = "envoy.reloadable_features."
    runtime = dict(RUNTIME)
    if options.compliance_policy == "fips-140-2":
        runtime[f"{features}google_grpc_disable_tls_13"] = True
    if not options.strip_fragment:
        runtime[f"{features}http_strip_fragment_from_path_unsafe_if_disabled"] = False
    for key, value in _runtime_values(config).items():
        runtime[key] = BOOLEANS.get(value, value)
        if not value:
            del runtime[key]
    return runtime


def _runtime_values(config: ProxyConfig) -> Mapping[str, str]:
    return cast("Mapping[str, str]", config.document.get("runtimeValues", {}))


def _extensions(*, metadata_discovery: bool) -> list[Document]:
    values = {
        "metadata_discovery": ("istio.workload.BootstrapExtension", {"config_source": {"ads": {}}}),
        "envoy.bootstrap.internal_listener": (
            "envoy.extensions.bootstrap.internal_listener.v3.InternalListener",
            {"buffer_size_kb": 64},
        ),
    }
    return [
        {
            "name": name,
            "typed_config": {
                "@type": f"{TYPES}udpa.type.v1.TypedStruct",
                "type_url": TYPES + kind,
                "value": value,
            },
        }
        for name, (kind, value) in values.items()
        if metadata_discovery or name != "metadata_discovery"
    ]


def _dynamic_resources(xds_type: str) -> Document:
    return {
        "lds_config": ADS,
        "cds_config": ADS,
        "ads_config": {
            "api_type": xds_type,
            "set_node_on_first_message_only": True,
            "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
        },
    }


def _clusters(inputs: BootstrapInputs, net: Network) -> list[Document]:
    config = inputs.config
    result = [
        clusters.local_http("prometheus_stats", net.localhost, config.proxy_admin_port),
        clusters.local_http("agent", net.localhost, config.status_port),
        clusters.sds(inputs.workload_socket_file),
    ]
    if _sds_cluster(inputs.node) == clusters.SDS_FILES_CLUSTER:
        path = clusters.CREDENTIAL_SOCKET
        result.append(clusters.unix_grpc(clusters.SDS_FILES_CLUSTER, path))
    return [*result, clusters.xds(config.config_path)]


def _sds_cluster(node: Node) -> str:
    """Return the cluster that knows the names of files."""
    external = "file-credential" in node.metadata
    return clusters.SDS_FILES_CLUSTER if external else clusters.SDS_CLUSTER


def _remote_parts(
    inputs: BootstrapInputs, net: Network, warnings: list[str]
) -> tuple[list[Document], Document]:
    config, node = inputs.config, inputs.node
    fields = ("tracing", "envoyMetricsService", "envoyAccessLogService", "statsdUdpAddress")
    if not any(field in config.document for field in fields):
        return [], {}
    from bootstrap.remote import Surroundings, parts  # noqa: PLC0415 - few pods configure these

    around = Surroundings(
        dns_lookup_family=net.dns_lookup_family,
        metadata=node.typed_metadata(),
        node_cluster=node.cluster,
        token_file=token_file(config),
        host_ip=inputs.options.host_ip,
        sds_cluster=_sds_cluster(node),
    )
    return parts(config, around, warnings)


def _overload_manager(config: ProxyConfig, memory_limit_bytes: int) -> Document:
    """Return the limits of this Envoy as a whole."""
    monitor: Document = {
        "name": f"{MONITORS}.global_downstream_max_connections",
        "typed_config": {
            "@type": f"{TYPES}envoy.extensions.resource_monitors.downstream_connections.v3"
            ".DownstreamConnectionsConfig",
            "max_active_downstream_connections": _connection_limit(config),
        },
    }
    if not memory_limit_bytes:
        return {"resource_monitors": [monitor]}
    heap = f"{MONITORS}.fixed_heap"
    heap_monitor: Document = {
        "name": heap,
        "typed_config": {
            "@type": f"{TYPES}envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
            "max_heap_size_bytes": memory_limit_bytes * 95 // 100,
        },
    }
    actions = [
        {
            "name": f"envoy.overload_actions.{action}",
            "triggers": [{"name": heap, "threshold": {"value": threshold}}],
        }
        for action, threshold in (("shrink_heap", 0.95), ("stop_accepting_requests", 0.98))
    ]
    return {"resource_monitors": [monitor, heap_monitor], "actions": actions}


def _connection_limit(config: ProxyConfig) -> int:
    """Return how many connections Envoy accepts. Source: bootstrap.md section 5.4."""
    settings = cast("Mapping[str, object]", config.document.get("connectionSettings", {}))
    limits = (
        str(settings.get("globalDownstreamConnectionLimit", "")),
        config.proxy_metadata.get(CONNECTION_LIMIT_METADATA, ""),
        _runtime_values(config).get(CONNECTION_LIMIT_RUNTIME, ""),
    )
    for limit in limits:
        if limit.isascii() and limit.isdigit() and len(limit) < LONGEST and int(limit):
            return int(limit)
    return UNLIMITED


def _cluster_manager(
    inputs: BootstrapInputs, warnings: list[str], *, self_discovery: bool
) -> Document:
    """Return the block that also defers clusters, absent unless something asks for it."""
    block: Document = {}
    if self_discovery:
        block["local_cluster_name"] = "local_cluster"
    if inputs.outlier_log_path:
        block["outlier_detection"] = {"event_log_path": inputs.outlier_log_path}
    load_stats = inputs.node.metadata.get("LOAD_STATS_CONFIG_JSON")
    if isinstance(load_stats, str) and load_stats:
        try:
            block["load_stats_config"] = parse_object(load_stats)
        except ValueError as error:
            warnings.append(f"metadata LOAD_STATS_CONFIG_JSON: {error}; it is ignored")
    if not block:
        return {}
    return {"cluster_manager": {**block, "enable_deferred_cluster_creation": True}}
