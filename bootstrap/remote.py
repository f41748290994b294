"""Tracing, metrics service and access-log service; imported only where one is configured.

Source: bootstrap.md section 5.6.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from bootstrap.addresses import ip_version, join_host_port, split_host_port
from bootstrap.clusters import (
    HTTP2,
    SDS_CLUSTER,
    TYPES,
    cluster,
    endpoint,
    sds_secret,
    socket_address,
)
from bootstrap.config import ProxyConfig
from bootstrap.document import Document
from bootstrap.durations import SECOND, parse_duration
from bootstrap.errors import BootstrapError

Fields = Mapping[str, object]

HOST_IP: Final = "$(HOST_IP)"
METRICS_SERVICE: Final = "envoy_metrics_service"
ACCESS_LOG_SERVICE: Final = "envoy_accesslog_service"
#: Clusters by the field that configures them.
SERVICES: Final = {
    "envoyMetricsService": METRICS_SERVICE,
    "envoyAccessLogService": ACCESS_LOG_SERVICE,
}
METRICS_SINK: Final[Document] = {
    "name": "envoy.stat_sinks.metrics_service",
    "typed_config": {
        "@type": f"{TYPES}envoy.config.metrics.v3.MetricsServiceConfig",
        "transport_api_version": "V3",
        "grpc_service": {"envoy_grpc": {"cluster_name": METRICS_SERVICE}},
    },
}
TLS_CONTEXT: Final = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


class Surroundings(NamedTuple):
    """What these parts take from the rest of the bootstrap."""

    dns_lookup_family: str
    #: Typed metadata of the node: files of client certificates, cloud.
    metadata: Fields
    #: node.cluster
    node_cluster: str
    #: Path of Lightstep's access token.
    token_file: str
    #: Node's address for `$(HOST_IP)`; '' leaves it.
    host_ip: str = ""
    #: Serves secrets of files.
    sds_cluster: str = SDS_CLUSTER


class _Tracer(NamedTuple):
    """How Envoy reaches a tracer; `http` is the bootstrap's `tracing.http`."""

    cluster: str
    http: Document
    #: More members of the cluster.
    members: Document
    #: Speaks HTTP/2, so that ALPN offers it.
    http2: bool = False


def parts(
    config: ProxyConfig, around: Surroundings, warnings: list[str]
) -> tuple[list[Document], Document]:
    """Return more clusters, and the bootstrap's `tracing` and `stats_sinks` where they exist.

    Raises:
        BootstrapError: an address has no port, or a cloud tracer is outside its cloud.
    """
    document = config.document
    clusters: list[Document] = []
    top: Document = {}
    sinks: list[Document] = []
    tracing = _object(document, "tracing")
    for field, tracer in _tracers(tracing, around):
        tls = _tls(tracing, "tracing", around, sni="tracer", http2=tracer.http2)
        address = _address(_object(tracing, field), f"tracing.{field}", around)
        clusters.append(_cluster(tracer.cluster, address, around, **tls, **tracer.members))
        top["tracing"] = {"http": tracer.http}
    for field, name in SERVICES.items():
        service = _object(document, field)
        if service.get("address"):
            tls = _tls(service, field, around, sni=name, http2=True)
            address = _address(service, field, around)
            members = {**tls, **HTTP2, **_keepalive(service)}
            clusters.append(_cluster(name, address, around, **members))
            sinks += [METRICS_SINK] if name == METRICS_SERVICE else []
    sinks += _statsd_sinks(config.statsd_udp_address, warnings)
    if sinks:
        top["stats_sinks"] = sinks
    return clusters, top


def _tracers(tracing: Fields, around: Surroundings) -> Iterator[tuple[str, _Tracer]]:
    """Yield the configured tracer, if any, with the field that configures it.

    Stackdriver and openCensusAgent come over XDS, like OpenTelemetry.
    """
    if "zipkin" in tracing:
        zipkin = {
            "collector_cluster": "zipkin",
            "collector_endpoint": "/api/v2/spans",
            "collector_endpoint_version": "HTTP_JSON",
            "trace_id_128bit": True,
            "shared_span_context": False,
        }
        http = _typed("envoy.tracers.zipkin", "ZipkinConfig", zipkin)
        yield "zipkin", _Tracer("zipkin", http, {"dns_refresh_rate": "30s"})
    elif "lightstep" in tracing:
        lightstep = {"collector_cluster": "lightstep", "access_token_file": around.token_file}
        http = _typed("envoy.tracers.lightstep", "LightstepConfig", lightstep)
        yield "lightstep", _Tracer("lightstep", http, HTTP2, http2=True)
    elif "datadog" in tracing:
        datadog = {"collector_cluster": "datadog_agent", "service_name": around.node_cluster}
        http = _typed("envoy.tracers.datadog", "DatadogConfig", datadog)
        yield "datadog", _Tracer("datadog_agent", http, {})
    elif "stackdriver" in tracing and not _object(around.metadata, "PLATFORM_METADATA").get(
        "gcp_project"
    ):
        raise BootstrapError(["tracing.stackdriver: expected a pod on Google Cloud"])


def _typed(name: str, kind: str, members: Fields) -> Document:
    config = {"@type": f"{TYPES}envoy.config.trace.v3.{kind}", **members}
    return {"name": name, "typed_config": config}


def _cluster(name: str, address: Document, around: Surroundings, **members: object) -> Document:
    """Return the cluster of a host that is looked up again and again."""
    return cluster(
        name,
        "STRICT_DNS",
        "1s",
        respect_dns_ttl=True,
        dns_lookup_family=around.dns_lookup_family,
        load_assignment=endpoint(name, address),
        **members,
    )


def _address(service: Fields, field: str, around: Surroundings) -> Document:
    """Return the address of a service, `$(HOST_IP)` substituted where it is the whole host."""
    text = str(service.get("address", ""))
    host, _, port = text.rpartition(":")
    substituted = text
    if host == HOST_IP and around.host_ip:
        substituted = join_host_port(around.host_ip, port)
    try:
        return socket_address(*split_host_port(substituted))
    except ValueError as error:
        raise BootstrapError([f"{field}.address={text!r}: {error}"]) from None


def _statsd_sinks(address: str, warnings: list[str]) -> list[Document]:
    if not address:
        return []
    try:
        host, port = split_host_port(address)
    except ValueError:
        host, port = "", 0
    if not ip_version(host):
        warnings.append(
            f"statsdUdpAddress={address!r}: expected an IP address and a port; statsd is off"
        )
        return []
    config = {
        "@type": f"{TYPES}envoy.config.metrics.v3.StatsdSink",
        "address": socket_address(host, port),
    }
    return [{"name": "envoy.stat_sinks.statsd", "typed_config": config}]


def _keepalive(service: Fields) -> Document:
    """Return the options of a connection that TCP keeps alive; whole seconds, as plain numbers.

    Source: bootstrap.md section 5.6 and section 8, defect 35.
    """
    settings = _object(service, "tcpKeepalive")
    values = {
        "keepalive_probes": settings.get("probes", 0),
        "keepalive_time": parse_duration(str(settings.get("time", "0"))) // SECOND,
        "keepalive_interval": parse_duration(str(settings.get("interval", "0"))) // SECOND,
    }
    keepalive = {
        name: value for name, value in values.items() if isinstance(value, int) and value > 0
    }
    return {"upstream_connection_options": {"tcp_keepalive": keepalive}} if keepalive else {}


def _tls(service: Fields, field: str, around: Surroundings, *, sni: str, http2: bool) -> Document:
    """Return the `transport_socket` of a cluster, nothing where TLS is off.

    Args:
        service: holds `tlsSettings`.
        field: the service's, for messages.
        around: metadata and who serves secrets.
        sni: the server's name in the mesh, where none is configured.
        http2: the service speaks HTTP/2.

    Raises:
        BootstrapError: there are names to verify but no root to verify them by.
    """
    tls = _object(service, "tlsSettings")
    mode = tls.get("mode", "DISABLE")
    if mode == "DISABLE":
        return {}
    in_mesh = mode == "ISTIO_MUTUAL"
    certificate, root = _mesh_secrets() if in_mesh else _file_secrets(tls, around)
    common: Document = {}
    if validation := _validation(tls, field, root):
        common["combined_validation_context"] = validation
    if certificate:
        common["tls_certificate_sds_secret_configs"] = [certificate]
    if http2:
        common["alpn_protocols"] = ["istio", "h2"] if in_mesh else ["h2"]
    context: Document = {"@type": TYPES + TLS_CONTEXT, "common_tls_context": common}
    if server := tls.get("sni") or (sni if in_mesh else ""):
        context["sni"] = server
    socket = {"name": "envoy.transport_sockets.tls", "typed_config": context}
    return {"transport_socket": socket}


def _validation(tls: Fields, field: str, root: Document | None) -> Document:
    """Return how the server is verified; without a root it is not, and the context goes.

    The reference keeps an empty context, for which Envoy refuses its whole configuration.
    """
    names = cast("Sequence[str]", tls.get("subjectAltNames", ()))
    if not root:
        if names:
            expected = "caCertificates as well, because names are verified by a root"
            raise BootstrapError([f"{field}.tlsSettings.subjectAltNames: expected {expected}"])
        return {}
    alternatives = {"match_subject_alt_names": [{"exact": name} for name in names]}
    return {
        "default_validation_context": alternatives if names else {},
        "validation_context_sds_secret_config": root,
    }


def _mesh_secrets() -> tuple[Document | None, Document | None]:
    at_once = {"initial_fetch_timeout": "0s"}
    return sds_secret("default", **at_once), sds_secret("ROOTCA", **at_once)


def _file_secrets(tls: Fields, around: Surroundings) -> tuple[Document | None, Document | None]:
    """Return the secrets of files: the client's certificate and the server's root.

    Source: bootstrap.md section 8, defect 51: an external SDS server does not know file names.
    """
    metadata = around.metadata
    root = metadata.get("TLS_CLIENT_ROOT_CERT") or tls.get("caCertificates")
    chain = metadata.get("TLS_CLIENT_CERT_CHAIN") or tls.get("clientCertificate")
    key = metadata.get("TLS_CLIENT_KEY") or tls.get("privateKey")
    certificate = None
    if tls.get("mode") == "MUTUAL" and chain and key:
        certificate = sds_secret(f"file-cert:{chain}~{key}", around.sds_cluster)
    return certificate, sds_secret(f"file-root:{root}", around.sds_cluster) if root else None


def _object(fields: Fields, name: str) -> Fields:
    return cast("Fields", fields.get(name, {}))
