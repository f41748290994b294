"""Source: status-lifecycle.md sections 11.3, 11.5 and 11.16."""

from typing import Any

from agent.inject.cluster.objects import (
    COLLECTIONS,
    key_of,
    kubelet_version,
    platform_annotations,
    version_of,
)


def test_a_node_tells_its_kubelets_version() -> None:
    assert kubelet_version({"status": {"nodeInfo": {"kubeletVersion": "v1.33.0"}}}) == "v1.33.0"
    nodes: tuple[dict[str, Any], ...] = (
        {},
        {"status": 5},
        {"status": {}},
        {"status": {"nodeInfo": {"kubeletVersion": 1}}},
    )
    for node in nodes:
        assert kubelet_version(node) == ""


def test_of_a_namespace_the_platforms_annotations_are_kept() -> None:
    annotations = {"openshift.io/sa.scc.uid-range": "1/2", "other": "x"}

    assert platform_annotations({"metadata": {"annotations": annotations}}) == {
        "openshift.io/sa.scc.uid-range": "1/2"
    }
    assert platform_annotations({"metadata": {"annotations": {"other": "x"}}}) is None
    assert platform_annotations({}) is None


def test_objects_are_told_apart_by_namespace_and_name() -> None:
    assert key_of({"metadata": {"name": "a"}}) == "a"
    assert key_of({"metadata": {"name": "a", "namespace": "n"}}) == "n/a"
    assert key_of({}) == ""
    assert version_of({"metadata": {"resourceVersion": "7"}}) == "7"
    assert version_of({}) == ""


def test_each_collection_is_followed_once() -> None:
    assert len({collection.path for collection in COLLECTIONS}) == len(COLLECTIONS) == 3
