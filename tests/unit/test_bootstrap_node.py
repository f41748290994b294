"""Whose node it is: addresses, id, cluster, labels and locality."""

import json

import pytest

from bootstrap.node import (
    NodeInputs,
    build_node,
    excluded_interfaces,
    network_is_ready,
    node_addresses,
)
from tests.fakes.nodes import metadata, node, pod

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
