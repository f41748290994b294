"""The parameters of templates: together they say all that our own bootstrap says."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bootstrap.build import BootstrapInputs, build_document
from bootstrap.options import Options
from bootstrap.template.parameters import parameters
from bootstrap.template.render import render
from tests.fakes.bootstrap_cases import CASES, case_folder, case_inputs

TEMPLATE = Path(__file__).parents[1] / "golden" / "bootstrap-template" / "whole.json.tmpl"
#: Source: bootstrap.md section 5.1.
LISTED = """
    nodeID nodeType cluster region zone sub_zone meta_json_str runtime_flags config metadata
    xds_type metadata_discovery localhost additional_localhost wildcard additional_wildcard
    dual_stack dns_lookup_family envoy_status_port envoy_prometheus_port secure_metrics_port
    secure_merged_metrics_port metrics_localhost_access_only
    envoy_status_port_enable_proxy_protocol enable_self_discovery custom_file_path
    workload_identity_socket_file outlier_log_path load_stats_config_json_str
    global_downstream_max_connections log_json zipkin lightstep lightstepToken datadog stackdriver
    stackdriverProjectID stackdriverDebug stackdriverMaxAnnotations stackdriverMaxAttributes
    stackdriverMaxEvents tracing_tls statsd envoy_metrics_service_address envoy_metrics_service_tls
    envoy_metrics_service_tcp_keepalive envoy_accesslog_service_address envoy_accesslog_service_tls
    envoy_accesslog_service_tcp_keepalive envoy_metrics_stats_compression extraStatTags
    inclusionPrefix inclusionSuffix inclusionRegexps histogram_buckets stats_flush_interval
    stats_eviction_interval discovery_address discovery_host pilot_grpc_address pilot_SAN
    xds_root_cert sts sts_port gcp_project_id gcp_project_number
""".split()  # noqa: SIM905 - sixty names read better so
#: Everything that a pod may configure beside each other.
SERVICE = {
    "address": "service:1",
    "tlsSettings": {"mode": "ISTIO_MUTUAL"},
    "tcpKeepalive": {"probes": 3},
}
FULL = {
    "discoveryAddress": "[fd00::1]:15012",
    "controlPlaneAuthPolicy": "MUTUAL_TLS",
    "envoyMetricsService": SERVICE,
    "envoyAccessLogService": SERVICE,
    "statsdUdpAddress": "10.0.0.1:8125",
}


def given(inputs: BootstrapInputs) -> dict[str, object]:
    return parameters(inputs, build_document(inputs)[0], xds_root_cert="/root.pem")


def filled(inputs: BootstrapInputs) -> object:
    return json.loads(render(TEMPLATE.read_text(), given(inputs), {}, path="t")[0])


def configured(document: Mapping[str, object], **members: object) -> BootstrapInputs:
    """Return the inputs of the plainest case with more configuration."""
    inputs = case_inputs("default")
    merged = {**inputs.config.document, **document}
    config = inputs.config._replace(
        document=merged,
        discovery_address=str(merged.get("discoveryAddress", "")),
        statsd_udp_address=str(merged.get("statsdUdpAddress", "")),
    )
    return inputs._replace(config=config, **members)  # type: ignore[arg-type] # fields by name


@pytest.mark.parametrize("name", CASES)
def test_a_template_with_all_of_them_yields_our_own_bootstrap(name: str) -> None:
    inputs = case_inputs(name)

    assert filled(inputs) == build_document(inputs)[0]


@pytest.mark.parametrize(
    "inputs",
    [
        configured(FULL),
        configured({"tracing": {"datadog": {"address": "d:1"}}}, log_as_json=True),
        configured(
            {"statsCompression": False},
            options=Options(
                dual_stack=True,
                status_proxy_protocol=True,
                secure_metrics_port=15091,
                secure_merged_metrics_port=15092,
                delta_xds=False,
            ),
            node=case_inputs("default").node._replace(
                addresses=("fd00::1", "10.0.0.1"),
                locality={"region": "r", "sub_zone": "s"},
                metadata={"file-credential": "true", "METADATA_DISCOVERY": "true"},
                typed_keys=frozenset(("METADATA_DISCOVERY",)),
            ),
        ),
    ],
    ids=["services", "datadog", "dual stack"],
)
def test_so_it_does_for_what_no_case_has(inputs: BootstrapInputs) -> None:
    assert filled(inputs) == build_document(inputs)[0]


def test_each_parameter_of_the_reference_is_given_to_some_pod() -> None:
    tracers: list[dict[str, object]] = [
        {"zipkin": {"address": "z:1"}, "tlsSettings": {"mode": "SIMPLE", "caCertificates": "r"}},
        {"lightstep": {"address": "l:1", "accessToken": "t"}},
        {"datadog": {"address": "d:1"}},
        {"stackdriver": {"maxNumberOfAttributes": "7"}},
    ]
    node = case_inputs("stats_inclusion").node
    google = {"gcp_project": "p", "gcp_project_number": "1"}
    node = node._replace(
        addresses=("10.0.0.1", "fd00::1"),
        locality={"region": "r", "zone": "z", "sub_zone": "s"},
        metadata={
            **node.metadata,
            "STS_PORT": "15463",
            "PLATFORM_METADATA": google,
            "file-credential": "true",
        },
        typed_keys=node.typed_keys | {"STS_PORT", "PLATFORM_METADATA"},
    )
    options = Options(dual_stack=True)
    pods = [
        *(configured({**FULL, "tracing": each}, node=node, options=options) for each in tracers),
        *map(case_inputs, ("lrs", "stats_interval")),
    ]

    names = {name for pod in pods for name in given(pod)}

    assert names == set(LISTED)


def test_what_a_pod_does_not_have_is_missing() -> None:
    names = given(case_inputs("default")).keys()

    assert names.isdisjoint({"region", "zipkin", "tracing_tls", "statsd", "sts", "stackdriver"})


def test_addresses_are_json() -> None:
    found = given(configured(FULL))

    assert found["pilot_grpc_address"] == '{"address":"fd00::1","port_value":15012}'
    assert found["statsd"] == '{"address":"10.0.0.1","port_value":8125}'


def test_an_address_that_is_none_is_only_passed_on() -> None:
    found = given(configured({"discoveryAddress": "nonsense"}))

    assert found["discovery_address"] == "nonsense"
    assert "pilot_grpc_address" not in found


def test_stackdrivers_limits_have_defaults() -> None:
    node = case_inputs("default").node
    node = node._replace(
        metadata={**node.metadata, "PLATFORM_METADATA": {"gcp_project": "p"}},
        typed_keys=node.typed_keys | {"PLATFORM_METADATA"},
    )

    found = given(configured({"tracing": {"stackdriver": {}}}, node=node))

    assert (found["stackdriverMaxEvents"], found["stackdriverDebug"]) == (200, False)
    assert found["stackdriverProjectID"] == "p"


def test_the_configuration_is_a_struct() -> None:
    text = "{{ .config.ConfigPath }} {{ .config.StatusPort }} {{ .metadata.EnvoyStatusPort }}"

    filled_text, _ = render(text, given(case_inputs("default")), {}, path="t")

    assert filled_text == f"{case_folder('default')} 15020 15021"
