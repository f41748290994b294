import json
from collections.abc import Mapping

import pytest

from bootstrap.config import DEFAULTS, from_document
from bootstrap.errors import BootstrapError
from bootstrap.node import (
    Node,
    NodeInputs,
    build_node,
    excluded_interfaces,
    network_is_ready,
    node_addresses,
)

POD = {"POD_NAME": "v0", "POD_NAMESPACE": "default"}


def pod(environ: Mapping[str, str] = POD, document: Mapping[str, object] = DEFAULTS) -> NodeInputs:
    return NodeInputs("sidecar", "", environ, ["10.1.1.0"], from_document(document))


def node(inputs: NodeInputs) -> Node:
    found, warnings = build_node(inputs)
    assert not warnings
    return found


def metadata(inputs: NodeInputs) -> Mapping[str, object]:
    return node(inputs).metadata


# Addresses


@pytest.mark.parametrize(
    ("instance_ip", "interfaces", "addresses"),
    [
        ("10.0.0.1", [("eth0", "10.0.0.1")], ("10.0.0.1",)),
        (
            "10.0.0.1",
            [("eth0", "10.0.0.2"), ("net1", "8.8.8.8")],
            ("10.0.0.1", "10.0.0.2", "8.8.8.8"),
        ),
        ("FD00::1", [("eth0", "fd00::1"), ("eth0", "10.0.0.2")], ("fd00::1", "10.0.0.2")),
        ("nonsense", [("eth0", "10.0.0.2")], ("10.0.0.2",)),
        ("", [("eth0", "::ffff:10.0.0.2")], ("10.0.0.2",)),
        (
            "",
            [("eth0", "fe80::1%eth0"), ("eth0", "bad"), ("x", "169.254.0.1")],
            ("127.0.0.1", "::1"),
        ),
        ("10.0.0.1", [], ("10.0.0.1", "127.0.0.1", "::1")),
        ("10.0.0.1", [("eth0", "10.0.0.2"), ("net1", "0.0.0.0")], ("10.0.0.1", "127.0.0.1", "::1")),
    ],
)
def test_the_pods_own_address_comes_first(
    instance_ip: str, interfaces: list[tuple[str, str]], addresses: tuple[str, ...]
) -> None:
    """Gotcha 1 of bootstrap.md section 8."""
    assert node_addresses(instance_ip, interfaces) == addresses


def test_addresses_of_excluded_interfaces_do_not_count() -> None:
    interfaces = [("eth0", "10.0.0.1"), ("net1", "10.9.9.9"), ("net2", "10.8.8.8")]

    found = node_addresses("10.0.0.1", interfaces, excluded_interfaces={"net1"})

    assert found == ("10.0.0.1", "10.8.8.8")


def test_an_address_still_missing_is_worth_a_retry() -> None:
    assert network_is_ready([("eth0", "10.0.0.1")])
    assert not network_is_ready([("eth0", "10.0.0.1"), ("net1", "::")])


def test_an_unknown_excluded_interface_is_a_warning() -> None:
    annotations = {"traffic.sidecar.istio.io/excludeInterfaces": "net1, nope,"}

    names, warnings = excluded_interfaces(annotations, ["eth0", "net1"])

    assert names == {"net1", "nope"}
    assert len(warnings) == 1
    assert "found 'nope'" in warnings[0]


# Id and cluster


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (pod(), "sidecar~10.1.1.0~v0.default~default.svc.cluster.local"),
        (
            pod()._replace(domain="d.local", proxy_type="router"),
            "router~10.1.1.0~v0.default~d.local",
        ),
        (pod()._replace(addresses=[]), "sidecar~~v0.default~default.svc.cluster.local"),
    ],
)
def test_the_id_is_type_address_pod_and_domain(inputs: NodeInputs, expected: str) -> None:
    """xds-identity-dns.md T-X18."""
    assert node(inputs).id == expected


LEGACY = {"app": "legacy-app", "app.kubernetes.io/name": "k8s-app"}
ALL_LABELS = {**LEGACY, "service.istio.io/canonical-name": "canonical-name"}
CANONICAL, BOTH = "CANONICAL_NAME_ONLY", "CANONICAL_NAME_AND_NAMESPACE"


@pytest.mark.parametrize(
    ("document", "labels", "workload", "namespace", "cluster"),
    [
        ({"serviceCluster": "my-service"}, LEGACY, "my-workload", "default", "my-service"),
        ({"serviceCluster": ""}, LEGACY, "my-workload", "default", "legacy-app.default"),
        ({"serviceCluster": "istio-proxy"}, LEGACY, "", "default", "legacy-app.default"),
        ({}, {"app.kubernetes.io/name": "k8s-app"}, "w", "default", "k8s-app.default"),
        ({}, {"service.istio.io/canonical-name": "c"}, "w", "default", "c.default"),
        ({}, {}, "my-workload", "default", "my-workload.default"),
        ({}, {}, "", "default", "istio-proxy.default"),
        ({}, {}, "", "", "istio-proxy"),
        ({"tracingServiceName": "APP_LABEL_AND_NAMESPACE"}, LEGACY, "", "n", "legacy-app.n"),
        ({"tracingServiceName": CANONICAL}, ALL_LABELS, "", "default", "canonical-name"),
        ({"tracingServiceName": CANONICAL}, LEGACY, "", "default", "k8s-app"),
        ({"tracingServiceName": CANONICAL}, {}, "w", "default", "w"),
        ({"tracingServiceName": CANONICAL}, {}, "", "default", "istio-proxy.default"),
        ({"tracingServiceName": BOTH}, {"app": "a"}, "w", "default", "a.default"),
        ({"tracingServiceName": BOTH}, {"app": "a"}, "w", "", "a"),
    ],
)
def test_the_cluster_names_the_workload(
    document: dict[str, object], labels: dict[str, str], workload: str, namespace: str, cluster: str
) -> None:
    """Section 4.6 of bootstrap.md, and gotcha 23 of its section 8."""
    environ = {
        "ISTIO_METAJSON_LABELS": json.dumps(labels),
        "ISTIO_META_WORKLOAD_NAME": workload,
        "POD_NAMESPACE": namespace,
    }

    assert node(pod(environ, document)).cluster == cluster


# Labels, annotations and locality


def test_labels_of_the_file_win_over_static_ones() -> None:
    """Gotcha 8 of bootstrap.md section 8."""
    static = pod({"ISTIO_METAJSON_LABELS": '{"a": "static", "b": "static"}'})

    found = metadata(static._replace(labels_text='a="file"\npod-template-hash="123"\n'))

    assert found["LABELS"] == {"a": "file", "b": "static"}
    assert found["STATIC_LABELS"] == {"a": "static", "b": "static"}
    assert (found["a"], found["b"]) == ("static", "static")


def test_without_a_labels_file_labels_are_the_static_ones() -> None:
    static = pod({"ISTIO_METAJSON_LABELS": '{"a": "1", "pod-template-hash": "2"}'})

    found = metadata(static._replace(instance_labels={"vm": "yes"}))

    assert found["LABELS"] == found["STATIC_LABELS"] == {"a": "1", "vm": "yes"}


def test_labels_of_a_virtual_machine_do_not_count_on_kubernetes() -> None:
    inside = pod({"KUBERNETES_SERVICE_HOST": "10.0.0.1"})

    found = metadata(inside._replace(instance_labels={"vm": "yes"}))

    assert "STATIC_LABELS" not in found


def test_a_label_that_is_no_text_is_dropped() -> None:
    found, warnings = build_node(pod({"ISTIO_METAJSON_LABELS": '{"a": 1, "b": "2"}'}))

    assert found.metadata["LABELS"] == {"b": "2"}
    assert warnings == ["ISTIO_METAJSON_LABELS: label 'a' is no text; it is ignored"]


def test_bad_lines_of_the_files_are_reported() -> None:
    """Defect 46 of bootstrap.md section 8."""
    found, warnings = build_node(
        pod()._replace(labels_text='a=1\nb="2"', annotations_text='c="3"\nd=4')
    )

    assert (found.metadata["LABELS"], found.metadata["ANNOTATIONS"]) == ({"b": "2"}, {"c": "3"})
    assert [warning.split(",")[0] for warning in warnings] == [
        "labels line 1",
        "annotations line 2",
    ]


@pytest.mark.parametrize(
    ("labels", "locality", "rewritten"),
    [
        ('istio-locality="r.z.s"', {"region": "r", "zone": "z", "sub_zone": "s"}, "r/z/s"),
        ('istio-locality="r/z.1"', {"region": "r", "zone": "z.1"}, "r/z.1"),
        ('istio-locality="r/z/s/x"', {"region": "r", "zone": "z", "sub_zone": "s"}, "r/z/s/x"),
        ('topology.istio.io/locality="t"\nistio-locality="r"', {"region": "t"}, "t"),
        ('istio-locality="/z"', {"zone": "z"}, "/z"),
    ],
)
def test_a_label_sets_the_locality(labels: str, locality: dict[str, str], rewritten: str) -> None:
    """Gotcha 9 of bootstrap.md section 8."""
    found = node(pod()._replace(labels_text=labels, platform_locality={"region": "cloud"}))

    assert found.locality == locality
    labels_found = found.metadata["LABELS"]
    assert isinstance(labels_found, dict)
    assert labels_found["istio-locality"] == rewritten


def test_without_a_label_the_cloud_sets_the_locality() -> None:
    cloud = {"region": "r", "zone": "", "other": "x"}

    found = node(pod()._replace(platform_locality=cloud, labels_text=""))

    assert found.locality == {"region": "r"}
    assert "LABELS" not in found.metadata


# Metadata


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
