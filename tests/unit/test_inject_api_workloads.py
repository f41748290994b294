"""Source: status-lifecycle.md sections 11.14 and 11.17."""

from typing import Any

import pytest

from agent.inject.api.form import normal
from agent.inject.api.schema import LIST
from agent.inject.api.workloads import is_list, kind_of

TEMPLATE_FORM: dict[str, Any] = {"metadata": {}, "spec": {"containers": []}}


def form(kind: str, version: str, spec: object, **more: object) -> dict[str, Any]:
    problems: list[str] = []
    document = {"kind": kind, "apiVersion": version, "spec": spec, **more}
    found = kind_of(document)
    assert found
    written = normal(document, found.struct, "", problems)
    assert problems == []
    return written


@pytest.mark.parametrize(
    ("kind", "version", "spec", "status"),
    [
        ("Deployment", "apps/v1", {"template": TEMPLATE_FORM, "strategy": {}}, {}),
        ("ReplicaSet", "apps/v1", {"template": TEMPLATE_FORM}, {"replicas": 0}),
        (
            "DaemonSet",
            "apps/v1",
            {"template": TEMPLATE_FORM, "updateStrategy": {}},
            {
                "currentNumberScheduled": 0,
                "desiredNumberScheduled": 0,
                "numberMisscheduled": 0,
                "numberReady": 0,
            },
        ),
        (
            "StatefulSet",
            "apps/v1",
            {"template": TEMPLATE_FORM, "updateStrategy": {}},
            {"replicas": 0, "availableReplicas": 0},
        ),
        ("ReplicationController", "v1", {}, {"replicas": 0}),
        ("Job", "batch/v1", {"template": TEMPLATE_FORM}, {}),
        (
            "CronJob",
            "batch/v1",
            {"jobTemplate": {"metadata": {}, "spec": {"template": TEMPLATE_FORM}}},
            {},
        ),
        (
            "DeploymentConfig",
            "apps.openshift.io/v1",
            {"strategy": {"resources": {}}, "test": False},
            dict.fromkeys(
                (
                    "latestVersion",
                    "observedGeneration",
                    "replicas",
                    "updatedReplicas",
                    "availableReplicas",
                    "unavailableReplicas",
                ),
                0,
            ),
        ),
    ],
)
def test_a_workload_is_written_with_what_is_always_there(
    kind: str, version: str, spec: object, status: object
) -> None:
    written = form(kind, version, {})

    assert written["spec"] == spec
    assert written["status"] == status
    assert written["metadata"] == {}


def test_what_a_status_says_is_kept() -> None:
    written = form("Deployment", "apps/v1", {}, status={"replicas": 2, "gone": None})

    assert written["status"] == {"replicas": 2}


def test_zeros_of_workloads() -> None:
    spec = {"replicas": 0, "minReadySeconds": 0, "paused": False}

    assert form("Deployment", "apps/v1", spec)["spec"] == {
        "replicas": 0,
        "template": TEMPLATE_FORM,
        "strategy": {},
    }


def test_claims_have_their_own_form() -> None:
    claims = [{"metadata": {"name": "c"}, "spec": {"storageClassName": ""}}]

    written = form("StatefulSet", "apps/v1", {"volumeClaimTemplates": claims})

    assert written["spec"]["volumeClaimTemplates"] == [
        {
            "metadata": {"name": "c"},
            "spec": {"resources": {}, "storageClassName": ""},
            "status": {},
        }
    ]


def test_a_list_keeps_its_items_as_they_are() -> None:
    problems: list[str] = []

    written = normal(
        {"kind": "List", "apiVersion": "v1", "items": [{"kind": "X", "y": None}]},
        LIST,
        "",
        problems,
    )

    assert written == {
        "kind": "List",
        "apiVersion": "v1",
        "metadata": {},
        "items": [{"kind": "X", "y": None}],
    }


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "Deployment",
        {},
        {"kind": "Deployment"},
        {"kind": "Deployment", "apiVersion": "apps/v9"},
        {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1"},
        {"kind": "Service", "apiVersion": "v1"},
        {"kind": ["Pod"], "apiVersion": "v1"},
        {"kind": "Pod", "apiVersion": ["v1"]},
    ],
)
def test_anything_else_is_no_workload(document: object) -> None:
    assert kind_of(document) is None
    assert not is_list(document)
