"""Source: status-lifecycle.md section 11.6."""

import pytest

from agent.inject.owner import Owner, owner_of_pod


def owner(kind: str, name: str, version: str = "apps/v1", **labels: str) -> Owner:
    metadata = {
        "generateName": f"{name}-",
        "labels": {key.replace("_", "-"): value for key, value in labels.items()},
        "ownerReferences": [
            {"kind": "Other", "name": "x", "apiVersion": "v1"},
            {"kind": kind, "name": name, "apiVersion": version, "controller": True},
        ],
    }
    return owner_of_pod(metadata, "ns")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            owner("ReplicaSet", "web-5f6", pod_template_hash="5f6"),
            Owner("web", "ns", "Deployment", "apps/v1"),
        ),
        (
            owner("ReplicaSet", "web-5f6", pod_template_hash="777"),
            Owner("web-5f6", "ns", "ReplicaSet", "apps/v1"),
        ),
        (owner("ReplicaSet", "web"), Owner("web", "ns", "ReplicaSet", "apps/v1")),
        (
            owner("ReplicaSet", "web-5f6", rollouts_pod_template_hash="5f6"),
            Owner("web", "ns", "Rollout", "v1alpha1"),
        ),
        (
            owner("ReplicationController", "web-1", "v1", deploymentconfig="web"),
            Owner("web", "ns", "DeploymentConfig", "v1"),
        ),
        (
            owner("ReplicationController", "web-1", "v1"),
            Owner("web-1", "ns", "ReplicationController", "v1"),
        ),
        (owner("Job", "tidy-27512345", "batch/v1"), Owner("tidy", "ns", "CronJob", "batch/v1")),
        (owner("Job", "tidy-1", "batch/v1"), Owner("tidy-1", "ns", "Job", "batch/v1")),
        (owner("StatefulSet", "db"), Owner("db", "ns", "StatefulSet", "apps/v1")),
    ],
)
def test_a_pod_belongs_to_the_workload_above_its_controller(found: Owner, expected: Owner) -> None:
    assert found == expected


def test_a_pod_without_a_controller_is_its_own() -> None:
    references = [{"kind": "ReplicaSet", "name": "x", "controller": True}]

    assert owner_of_pod({"name": "p"}, "ns") == Owner("p", "ns", "Pod", "v1")
    assert owner_of_pod({"name": "p", "ownerReferences": references}, "") == Owner("p", "")
    assert owner_of_pod({"generateName": "p-"}, "ns") == Owner("", "ns")
    assert owner_of_pod({"generateName": "p-", "ownerReferences": [{"name": "x"}]}, "ns").name == ""
