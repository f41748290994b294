import json
from collections.abc import Mapping

import pytest

from bootstrap.config import from_document
from bootstrap.errors import BootstrapError
from bootstrap.remote import Surroundings, parts

Json = dict[str, object]

AROUND = Surroundings(
    dns_lookup_family="V4_ONLY",
    metadata={},
    node_cluster="app.ns",
    token_file="dir/token",  # noqa: S106 - a path
)
ZIPKIN = {"zipkin": {"address": "zipkin:9411"}}


def build(document: Mapping[str, object], around: Surroundings = AROUND) -> tuple[list[Json], Json]:
    warnings: list[str] = []
    found = parts(from_document(document), around, warnings)
    assert not warnings
    return found


def one_cluster(document: Mapping[str, object], around: Surroundings = AROUND) -> Json:
    (cluster,), _ = build(document, around)
    return cluster


def tls(settings: Json, around: Surroundings = AROUND, *, metrics: bool = True) -> Json:
    """Return the TLS context towards a service with these settings."""
    remote = {"address": "m:1", "tlsSettings": settings}
    tracing = {**ZIPKIN, "tlsSettings": settings}
    document: Json = {"envoyMetricsService": remote} if metrics else {"tracing": tracing}
    socket = one_cluster(document, around)["transport_socket"]
    assert isinstance(socket, dict)
    context: Json = socket["typed_config"]
    return context


def secret_clusters(context: Json) -> set[str]:
    text = json.dumps(context)
    return {name for name in ("sds-grpc", "sds-files-grpc") if f'"{name}"' in text}


def test_nothing_configured_adds_nothing() -> None:
    assert build({"tracing": {}}) == ([], {})
    assert build({"tracing": {"openCensusAgent": {}}, "envoyMetricsService": {}}) == ([], {})


def test_zipkin_gets_cluster_and_tracer() -> None:
    (cluster,), top = build({"tracing": ZIPKIN})

    assert cluster == {
        "name": "zipkin",
        "alt_stat_name": "zipkin;",
        "type": "STRICT_DNS",
        "connect_timeout": "1s",
        "lb_policy": "ROUND_ROBIN",
        "respect_dns_ttl": True,
        "dns_lookup_family": "V4_ONLY",
        "dns_refresh_rate": "30s",
        "load_assignment": {
            "cluster_name": "zipkin",
            "endpoints": [
                {
                    "lb_endpoints": [
                        {
                            "endpoint": {
                                "address": {
                                    "socket_address": {"address": "zipkin", "port_value": 9411}
                                }
                            }
                        }
                    ]
                }
            ],
        },
    }
    assert "envoy.tracers.zipkin" in str(top["tracing"])


def test_datadog_names_the_nodes_cluster() -> None:
    (cluster,), top = build({"tracing": {"datadog": {"address": "d:8126"}}})

    assert cluster["name"] == "datadog_agent"
    assert "'service_name': 'app.ns'" in str(top["tracing"])


def test_lightstep_names_the_file_and_not_the_token() -> None:
    """Gotcha 48 of bootstrap.md section 8."""
    found = build({"tracing": {"lightstep": {"address": "l:1", "accessToken": "secret"}}})

    assert "'access_token_file': 'dir/token'" in str(found)
    assert "secret" not in str(found)


def test_stackdriver_needs_its_cloud() -> None:
    document: Json = {"tracing": {"stackdriver": {}}}

    with pytest.raises(BootstrapError, match=r"tracing\.stackdriver: expected a pod on Google"):
        build(document)

    inside = AROUND._replace(metadata={"PLATFORM_METADATA": {"gcp_project": "p"}})
    assert build(document, inside) == ([], {})


@pytest.mark.parametrize(
    ("host_ip", "shown"),
    [("10.0.0.9", "10.0.0.9"), ("fd00::9", "fd00::9"), ("", "$(HOST_IP)")],
)
def test_the_nodes_address_is_substituted(host_ip: str, shown: str) -> None:
    """Gotcha 16 of bootstrap.md section 8."""
    document = {"tracing": {"datadog": {"address": "$(HOST_IP):8126"}}}

    cluster = one_cluster(document, AROUND._replace(host_ip=host_ip))

    assert f"{{'address': '{shown}', 'port_value': 8126}}" in str(cluster)


def test_an_address_without_port_is_an_error() -> None:
    document = {"tracing": {"zipkin": {"address": "zipkin"}}}

    with pytest.raises(BootstrapError, match=r"tracing\.zipkin\.address='zipkin': expected host"):
        build(document)


def test_services_come_in_order_with_their_sinks() -> None:
    clusters, top = build(
        {
            "envoyAccessLogService": {"address": "a:1"},
            "envoyMetricsService": {"address": "m:1"},
            "tracing": ZIPKIN,
            "statsdUdpAddress": "[fd00::1]:8125",
        }
    )

    assert [cluster["name"] for cluster in clusters] == [
        "zipkin",
        "envoy_metrics_service",
        "envoy_accesslog_service",
    ]
    sinks = top["stats_sinks"]
    assert isinstance(sinks, list)
    assert [sink["name"] for sink in sinks] == [
        "envoy.stat_sinks.metrics_service",
        "envoy.stat_sinks.statsd",
    ]
    assert "{'address': 'fd00::1', 'port_value': 8125}" in str(sinks[1])


@pytest.mark.parametrize("address", ["statsd:8125", "10.0.0.1"])
def test_a_statsd_server_that_envoy_cannot_take_is_off(address: str) -> None:
    warnings: list[str] = []

    found = parts(from_document({"statsdUdpAddress": address}), AROUND, warnings)

    assert found == ([], {})
    assert warnings == [
        f"statsdUdpAddress={address!r}: expected an IP address and a port; statsd is off"
    ]


@pytest.mark.parametrize(
    ("settings", "keepalive"),
    [
        (
            {"probes": 3, "time": "10s", "interval": "1.500s"},
            {"keepalive_probes": 3, "keepalive_time": 10, "keepalive_interval": 1},
        ),
        ({"time": "10s"}, {"keepalive_time": 10}),
        ({"time": "0.500s"}, None),
        ({}, None),
    ],
)
def test_keepalive_is_written_as_plain_numbers(settings: Json, keepalive: Json | None) -> None:
    """Defect 35 of bootstrap.md section 8."""
    service = {"address": "m:1", "tcpKeepalive": settings}

    options = one_cluster({"envoyMetricsService": service}).get("upstream_connection_options")

    assert options == (keepalive and {"tcp_keepalive": keepalive})


def test_tls_can_be_off() -> None:
    service = {"address": "m:1", "tlsSettings": {"mode": "DISABLE"}}

    assert "transport_socket" not in one_cluster({"envoyMetricsService": service})


def test_simple_tls_verifies_the_server_by_a_file() -> None:
    context = tls(
        {"mode": "SIMPLE", "caCertificates": "ca.pem", "sni": "x", "subjectAltNames": ["a"]}
    )

    common = context["common_tls_context"]
    assert isinstance(common, dict)
    validation = common["combined_validation_context"]
    assert validation["default_validation_context"] == {"match_subject_alt_names": [{"exact": "a"}]}
    assert validation["validation_context_sds_secret_config"]["name"] == "file-root:ca.pem"
    assert (common["alpn_protocols"], context["sni"]) == (["h2"], "x")
    assert "tls_certificate_sds_secret_configs" not in common


@pytest.mark.parametrize("mode", ["SIMPLE", "MUTUAL"])
def test_without_a_root_the_server_is_not_verified(mode: str) -> None:
    """Envoy refuses a combined context without the secret that it combines."""
    assert tls({"mode": mode})["common_tls_context"] == {"alpn_protocols": ["h2"]}


def test_names_cannot_be_verified_without_a_root() -> None:
    with pytest.raises(BootstrapError, match=r"envoyMetricsService\.tlsSettings\.subjectAltNames"):
        tls({"mode": "SIMPLE", "subjectAltNames": ["a"]})


def test_mutual_tls_presents_a_certificate() -> None:
    context = tls({"mode": "MUTUAL", "clientCertificate": "c.pem", "privateKey": "k.pem"})

    assert "'file-cert:c.pem~k.pem'" in str(context)


def test_metadata_names_the_files_first() -> None:
    around = AROUND._replace(
        metadata={
            "TLS_CLIENT_ROOT_CERT": "/foo/bar/baz.pem",
            "TLS_CLIENT_CERT_CHAIN": "c2",
            "TLS_CLIENT_KEY": "k2",
        }
    )

    context = tls({"mode": "MUTUAL", "clientCertificate": "c", "privateKey": "k"}, around)

    assert "'file-root:/foo/bar/baz.pem'" in str(context)
    assert "'file-cert:c2~k2'" in str(context)


def test_mesh_tls_uses_the_workloads_identity() -> None:
    context = tls({"mode": "ISTIO_MUTUAL"})

    common = context["common_tls_context"]
    assert isinstance(common, dict)
    (certificate,) = common["tls_certificate_sds_secret_configs"]
    root = common["combined_validation_context"]["validation_context_sds_secret_config"]
    assert (certificate["name"], root["name"]) == ("default", "ROOTCA")
    assert certificate["sds_config"]["initial_fetch_timeout"] == "0s"
    assert root["sds_config"]["initial_fetch_timeout"] == "0s"
    assert (common["alpn_protocols"], context["sni"]) == (["istio", "h2"], "envoy_metrics_service")


def test_a_tracer_that_speaks_http1_gets_no_alpn() -> None:
    context = tls({"mode": "ISTIO_MUTUAL"}, metrics=False)

    assert "alpn_protocols" not in str(context)
    assert context["sni"] == "tracer"


def test_files_come_from_the_agents_own_server() -> None:
    """Defect 51 of bootstrap.md section 8."""
    external = AROUND._replace(sds_cluster="sds-files-grpc")
    files: Json = {
        "mode": "MUTUAL",
        "clientCertificate": "c",
        "privateKey": "k",
        "caCertificates": "r",
    }

    assert secret_clusters(tls(files)) == {"sds-grpc"}
    assert secret_clusters(tls(files, external)) == {"sds-files-grpc"}
    assert secret_clusters(tls({"mode": "ISTIO_MUTUAL"}, external)) == {"sds-grpc"}
