"""What the node's metadata holds: untyped as given, typed as the control plane reads it."""

import pytest

from bootstrap.config import DEFAULTS
from bootstrap.errors import BootstrapError
from bootstrap.node import build_node
from tests.fakes.nodes import POD, metadata, node, pod


def test_the_environment_wins_over_proxy_metadata() -> None:
    document = {
        **DEFAULTS,
        "proxyMetadata": {"ISTIO_META_A": "low", "ISTIO_META_B": "low", "C": "x"},
    }

    found = metadata(pod({"ISTIO_META_A": "high"}, document))

    assert (found["A"], found["B"], "C" in found) == ("high", "low", False)


def test_members_of_json_join_the_metadata() -> None:
    found = metadata(pod({"ISTIO_METAJSON_ANY": '{"x": {"y": [1]}, "NETWORK": "n"}'}))

    assert (found["x"], found["NETWORK"], "ANY" in found) == ({"y": [1]}, "n", False)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": NaN}'])
def test_bad_json_is_ignored(text: str) -> None:
    _, warnings = build_node(pod({"ISTIO_METAJSON_X": text}))

    assert warnings == ["ISTIO_METAJSON_X: expected a JSON object; it is ignored"]


def test_what_the_agent_sets_is_complete() -> None:
    environ = {
        **POD,
        "SERVICE_ACCOUNT": "sa",
        "DNS_PROXY_ADDR": "localhost:53",
        "EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true",
        "ENVOY_SECURE_METRICS_PORT": "1",
    }
    inputs = pod(environ)._replace(
        addresses=["10.0.0.1", "10.0.0.2", "10.0.0.1"],
        version="1.31.0",
        outlier_log_path="/dev/stdout",
        sts_port=15463,
        platform={"gcp_project": "p"},
        credential_socket=True,
        files_only_sds=True,
        workload_socket_file="sock",
    )

    found = metadata(inputs)

    assert found == {
        "PROXY_CONFIG": DEFAULTS,
        "ISTIO_VERSION": "1.31.0",
        "INSTANCE_IPS": "10.0.0.1,10.0.0.2",
        "NAME": "v0",
        "NAMESPACE": "default",
        "SERVICE_ACCOUNT": "sa",
        "DNS_PROXY_ADDR": "localhost:53",
        "METADATA_DISCOVERY": "false",
        "EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true",
        "ENVOY_SKIP_DEPRECATED_LOGS": "true",
        "ENVOY_STATUS_PORT": 15021,
        "ENVOY_PROMETHEUS_PORT": 15090,
        "ENVOY_SECURE_METRICS_PORT": 1,
        "STS_PORT": "15463",
        "PILOT_SAN": ["istiod.istio-system.svc"],
        "OUTLIER_LOG_PATH": "/dev/stdout",
        "WORKLOAD_IDENTITY_SOCKET_FILE": "sock",
        "PLATFORM_METADATA": {"gcp_project": "p"},
        "credential": "true",
        "file-credential": "true",
    }


def test_the_environment_may_name_another_version() -> None:
    assert metadata(pod({"ISTIO_META_ISTIO_VERSION": "1.2.3"}))["ISTIO_VERSION"] == "1.2.3"


def test_zero_texts_reach_the_metadata() -> None:
    """Gotcha 6 of bootstrap.md section 8."""
    assert metadata(pod({"ISTIO_META_IDLE_TIMEOUT": "0s"}))["IDLE_TIMEOUT"] == "0s"


@pytest.mark.parametrize(
    ("text", "shown", "is_typed"),
    [("true", "true", True), ("1", "true", True), ("false", "false", False), ("0", "0", False)],
)
def test_a_switch_prints_as_true_or_as_it_was_given(
    text: str, shown: str, *, is_typed: bool
) -> None:
    found = node(pod({"ISTIO_META_DNS_CAPTURE": text}))

    assert found.metadata["DNS_CAPTURE"] == shown
    assert ("DNS_CAPTURE" in found.typed_metadata()) == is_typed


def test_a_switch_may_be_a_json_boolean() -> None:
    assert metadata(pod({"ISTIO_METAJSON_X": '{"ENABLE_HBONE": true}'}))["ENABLE_HBONE"] == "true"


@pytest.mark.parametrize(
    ("environ", "warning"),
    [
        (
            {"ISTIO_META_ENABLE_HBONE": "yes"},
            "metadata ENABLE_HBONE='yes': expected 'true' or 'false'; it is passed on as it is",
        ),
        (
            {"ISTIO_METAJSON_X": '{"NETWORK": 5}'},
            "metadata NETWORK: expected text; it is passed on as it is",
        ),
    ],
)
def test_what_does_not_fit_its_type_is_passed_on(environ: dict[str, str], warning: str) -> None:
    """Gotcha 27 of bootstrap.md section 8: a warning in place of a failed start."""
    found, warnings = build_node(pod(environ))

    assert warnings == [warning]
    assert found.metadata.get("ENABLE_HBONE", "yes") == "yes"
    assert found.metadata.get("NETWORK", 5) == 5
    assert not {"ENABLE_HBONE", "NETWORK"} & found.typed_metadata().keys()


def test_pod_ports_are_written_as_the_control_plane_reads_them() -> None:
    http = '{"name":"http","containerPort":80,"hostPort":1}'
    dns = '{"containerPort":53,"protocol":"UDP"}'

    found = metadata(pod({"ISTIO_META_POD_PORTS": f"[\n    {http}\n,{dns}]"}))

    assert found["POD_PORTS"] == f'[{{"name":"http","containerPort":80,"protocol":""}},{dns}]'


def test_no_pod_ports_stay_as_they_are() -> None:
    found = node(pod({"ISTIO_META_POD_PORTS": "[\n]"}))

    assert found.metadata["POD_PORTS"] == "[\n]"
    assert "POD_PORTS" not in found.typed_keys


@pytest.mark.parametrize(
    "text",
    ["", "x", "{}", "[1]", "[{}]", '[{"containerPort":"80"}]', '[{"containerPort":80,"name":5}]',
     "[" * 100000],
)  # fmt: skip
def test_bad_pod_ports_are_passed_on(text: str) -> None:
    found, (warning,) = build_node(pod({"ISTIO_META_POD_PORTS": text}))

    assert found.metadata["POD_PORTS"] == text
    assert warning.startswith("metadata POD_PORTS: expected JSON such as")


def test_pod_ports_that_are_no_text_are_passed_on() -> None:
    found, warnings = build_node(pod({"ISTIO_METAJSON_X": '{"POD_PORTS": [80]}'}))

    assert found.metadata["POD_PORTS"] == [80]
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("environ", "discovery"),
    [
        ({}, "false"),
        ({"ISTIO_META_ENABLE_HBONE": "true"}, "true"),
        ({"ISTIO_META_ENABLE_HBONE": "true", "PEER_METADATA_DISCOVERY": "false"}, "false"),
        ({"PEER_METADATA_DISCOVERY": "true"}, "true"),
        ({"ISTIO_META_ENABLE_HBONE": "true", "PEER_METADATA_DISCOVERY": "nonsense"}, "false"),
    ],
)
def test_metadata_discovery_is_always_said(environ: dict[str, str], discovery: str) -> None:
    assert metadata(pod(environ))["METADATA_DISCOVERY"] == discovery


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ({"discoveryAddress": "istiod:1", "controlPlaneAuthPolicy": "MUTUAL_TLS"}, ["istiod"]),
        (
            {"discoveryAddress": "localhost:1", "controlPlaneAuthPolicy": "MUTUAL_TLS"},
            ["istiod.istio-system.svc"],
        ),
        ({"discoveryAddress": "[fd00::1]:1", "controlPlaneAuthPolicy": "MUTUAL_TLS"}, ["fd00::1"]),
        (
            {
                "discoveryAddress": "one:1, localhost:1,one:2",
                "controlPlaneAuthPolicy": "MUTUAL_TLS",
            },
            ["one", "istiod.istio-system.svc"],
        ),
        ({"discoveryAddress": "istiod:1"}, None),
    ],
)
def test_the_control_planes_name_is_its_host(
    document: dict[str, object], names: list[str] | None
) -> None:
    """Defect 38 of bootstrap.md section 8."""
    assert metadata(pod(POD, document)).get("PILOT_SAN") == names


def test_a_control_plane_without_port_is_an_error() -> None:
    document = {**DEFAULTS, "discoveryAddress": "istiod"}

    with pytest.raises(BootstrapError, match="discoveryAddress='istiod': expected host:port"):
        node(pod(POD, document))
