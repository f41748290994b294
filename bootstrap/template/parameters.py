"""What templates are given: the reference's parameters, under its names.

Most of them are parts of the bootstrap that we would write ourselves: a template that puts them
where the reference's does yields the same. A parameter that a pod does not have is missing.

Source: bootstrap.md section 5.1.
"""

from collections.abc import Mapping
from typing import Final, cast

from bootstrap.addresses import network, split_host_port
from bootstrap.build import BootstrapInputs, token_file
from bootstrap.clusters import CREDENTIAL_SOCKET, SDS_FILES_CLUSTER
from bootstrap.stats import TAGS_AFTER, TAGS_BEFORE
from bootstrap.template.structs import metadata_struct, proxy_config_struct
from bootstrap.template.values import to_json

Fields = Mapping[str, object]

#: What a template's text holds already of the lists that it ranges over.
OWN_PREFIXES: Final = frozenset(("reporter=", "workload_discovery", "component", "istio"))
OWN_TAGS: Final = frozenset(name for name, _ in (*TAGS_BEFORE, *TAGS_AFTER))
#: Parameters with the address of a tracer, and its cluster.
TRACERS: Final = {"zipkin": "zipkin", "lightstep": "lightstep", "datadog": "datadog_agent"}
#: Clusters that are also the beginning of their parameters' names.
SERVICES: Final = ("envoy_metrics_service", "envoy_accesslog_service")
#: Parameters of Stackdriver's tracer, its fields, and what these are by default.
STACKDRIVER: Final = {
    "stackdriverDebug": ("debug", False),
    "stackdriverMaxAnnotations": ("maxNumberOfAnnotations", 200),
    "stackdriverMaxAttributes": ("maxNumberOfAttributes", 200),
    "stackdriverMaxEvents": ("maxNumberOfMessageEvents", 200),
}


def parameters(
    inputs: BootstrapInputs, document: Fields, *, xds_root_cert: str = ""
) -> dict[str, object]:
    """Return the parameters by name.

    Args:
        inputs: what the bootstrap is made of.
        document: the bootstrap that is made of it.
        xds_root_cert: file with the control plane's root certificates.
    """
    given = {
        **_of_pod(inputs),
        **_of_bootstrap(document),
        **_patterns(document),
        **_remote(inputs, document),
        **_control_plane(inputs),
        **_google(inputs),
        "xds_root_cert": xds_root_cert,
    }
    return {name: value for name, value in given.items() if value is not None}


def _of_pod(inputs: BootstrapInputs) -> Fields:
    config, node, options = inputs.config, inputs.node, inputs.options
    net = network(node.addresses, dual_stack=options.dual_stack)
    proxy_config = proxy_config_struct(config.document)
    local_metrics = config.proxy_metadata.get("METRICS_LOCALHOST_ACCESS_ONLY") == "true"
    return {
        **node.locality,
        "nodeID": node.id,
        "nodeType": node.id.partition("~")[0],
        "cluster": node.cluster,
        "config": proxy_config,
        "metadata": metadata_struct(node.metadata, proxy_config),
        "localhost": net.localhost,
        "additional_localhost": net.additional_localhost or None,
        "wildcard": net.wildcard,
        "additional_wildcard": net.additional_wildcard or None,
        "dual_stack": bool(net.additional_wildcard),
        "dns_lookup_family": net.dns_lookup_family,
        "envoy_status_port": options.status_port,
        "envoy_prometheus_port": options.prometheus_port,
        "secure_metrics_port": options.secure_metrics_port,
        "secure_merged_metrics_port": options.secure_merged_metrics_port,
        "envoy_status_port_enable_proxy_protocol": options.status_proxy_protocol,
        "metrics_localhost_access_only": local_metrics,
        "envoy_metrics_stats_compression": config.document.get("statsCompression") is not False,
        "workload_identity_socket_file": inputs.workload_socket_file,
        "outlier_log_path": inputs.outlier_log_path or None,
        "log_json": inputs.log_as_json,
    }


def _of_bootstrap(document: Fields) -> Fields:
    """Return what stands in the bootstrap; as JSON where templates put it as it is."""
    clusters = _by_name(document, "static_resources", "clusters")
    monitor = _at(document, "overload_manager", "resource_monitors", 0, "typed_config")
    return {
        "meta_json_str": _json(_at(document, "node", "metadata")),
        "runtime_flags": _json(_at(document, "layered_runtime", "layers", 0, "static_layer")),
        "xds_type": _at(document, "dynamic_resources", "ads_config", "api_type"),
        "metadata_discovery": "metadata_discovery" in _by_name(document, "bootstrap_extensions"),
        "enable_self_discovery": "local_cluster" in clusters,
        "custom_file_path": CREDENTIAL_SOCKET if SDS_FILES_CLUSTER in clusters else None,
        "load_stats_config_json_str": _json(_at(document, "cluster_manager", "load_stats_config")),
        "global_downstream_max_connections": _at(monitor, "max_active_downstream_connections"),
        "histogram_buckets": _at(document, "stats_config", "histogram_bucket_settings"),
        "stats_flush_interval": document.get("stats_flush_interval"),
        "stats_eviction_interval": document.get("stats_eviction_interval"),
    }


def _patterns(document: Fields) -> Fields:
    """Return which statistics exist, and what is a tag, beside what every template names."""
    tags = [tag["tag_name"] for tag in _list(document, "stats_config", "stats_tags")]
    patterns = _list(document, "stats_config", "stats_matcher", "inclusion_list", "patterns")
    prefixes = [each["prefix"] for each in patterns if "prefix" in each]
    return {
        "extraStatTags": [tag for tag in tags if tag not in OWN_TAGS] or None,
        "inclusionPrefix": [prefix for prefix in prefixes if prefix not in OWN_PREFIXES],
        "inclusionSuffix": [each["suffix"] for each in patterns if "suffix" in each],
        "inclusionRegexps": [
            _at(each, "safe_regex", "regex") for each in patterns if "safe_regex" in each
        ],
    }


def _remote(inputs: BootstrapInputs, document: Fields) -> Fields:
    """Return tracer, metrics service, access-log service and statsd, as JSON."""
    clusters = _by_name(document, "static_resources", "clusters")
    sinks = _by_name(document, "stats_sinks")
    found = {
        "statsd": _json(
            _at(sinks, "envoy.stat_sinks.statsd", "typed_config", "address", "socket_address")
        )
    }
    for name, cluster in TRACERS.items():
        if cluster in clusters:
            found[name] = _endpoint(clusters[cluster])
            found["tracing_tls"] = _json(_at(clusters[cluster], "transport_socket"))
    for name in SERVICES:
        if name in clusters:
            keepalive = _at(clusters[name], "upstream_connection_options")
            found[f"{name}_address"] = _endpoint(clusters[name])
            found[f"{name}_tls"] = _json(_at(clusters[name], "transport_socket"))
            found[f"{name}_tcp_keepalive"] = _json(keepalive)
    if "lightstep" in found:
        found["lightstepToken"] = token_file(inputs.config)
    return found


def _endpoint(cluster: Fields) -> str | None:
    endpoints = _at(cluster, "load_assignment", "endpoints", 0, "lb_endpoints", 0)
    return _json(_at(endpoints, "endpoint", "address", "socket_address"))


def _control_plane(inputs: BootstrapInputs) -> Fields:
    address = inputs.config.discovery_address
    try:
        host, port = split_host_port(address)
    except ValueError:  # it was checked where it is used
        return {"discovery_address": address}
    names = cast("list[str]", inputs.node.typed_metadata().get("PILOT_SAN", []))
    return {
        "discovery_address": address,
        "discovery_host": host,
        "pilot_grpc_address": to_json({"address": host, "port_value": port}),
        "pilot_SAN": to_json([{"exact": name} for name in names]),
    }


def _google(inputs: BootstrapInputs) -> Fields:
    metadata = inputs.node.typed_metadata()
    project = _at(metadata, "PLATFORM_METADATA", "gcp_project")
    found = {"gcp_project_number": _at(metadata, "PLATFORM_METADATA", "gcp_project_number")}
    if "STS_PORT" in metadata:
        port = int(cast("str", metadata["STS_PORT"]))
        found |= {"sts": True, "sts_port": port, "gcp_project_id": project}
    tracer = _at(inputs.config.document, "tracing", "stackdriver")
    if tracer is not None:
        found |= {"stackdriver": True, "stackdriverProjectID": project}
        for name, (field, default) in STACKDRIVER.items():
            value = _at(tracer, field)
            found[name] = default if value is None else value
    return found


def _json(value: object) -> str | None:
    return None if value is None else to_json(value)


def _list(document: Fields, *path: str) -> list[Fields]:
    return cast("list[Fields]", _at(document, *path) or [])


def _by_name(document: Fields, *path: str) -> Mapping[str, Fields]:
    return {str(each["name"]): each for each in _list(document, *path)}


def _at(value: object, *path: str | int) -> object:
    """Return what stands at a path into data, None where nothing does."""
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(step)
        else:
            value = value[step] if isinstance(value, list) and isinstance(step, int) else None
    return value
