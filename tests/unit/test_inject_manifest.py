"""Source: status-lifecycle.md section 11.14."""

import copy
from typing import Any

import pytest

from agent.inject.configuration import Configuration
from agent.inject.manifest import Context, Result, inject_document
from agent.inject.pipeline import InjectionError
from tests.fakes.injection import container, make_pod, make_settings, variable

Object = dict[str, Any]


def context(**more: Any) -> Context:  # noqa: ANN401 - passed on
    return Context(Configuration(), make_settings(), **{"native": "true", **more})


def workload(kind: str, version: str = "apps/v1", **pod: object) -> Object:
    template = {
        "metadata": {"labels": {"app": "web"}, **(pod.pop("metadata", None) or {})},  # type: ignore[dict-item]  # an object
        "spec": {"containers": [{"name": "app"}], **pod},
    }
    spec: Object = {"template": template}
    if kind == "CronJob":
        spec = {"jobTemplate": {"metadata": template.pop("metadata"), "spec": spec}}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "web"}, "spec": spec}


def after(document: object, **more: Any) -> Object:  # noqa: ANN401 - passed on
    found = inject_document(document, context(**more)).after
    assert found
    return found


def problems(document: object) -> tuple[str, ...]:
    with pytest.raises(InjectionError) as caught:
        inject_document(document, context(namespace="prod"))
    return caught.value.problems


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("Deployment", "apps/v1"),
        ("ReplicaSet", "apps/v1"),
        ("DaemonSet", "apps/v1"),
        ("StatefulSet", "apps/v1"),
        ("ReplicationController", "v1"),
        ("Job", "batch/v1"),
        ("DeploymentConfig", "apps.openshift.io/v1"),
        ("Deployment", "extensions/v1beta1"),
    ],
)
def test_the_pod_of_a_workload_is_injected_and_owned_by_it(kind: str, version: str) -> None:
    template = after(workload(kind, version))["spec"]["template"]

    assert container(template)["name"] == "istio-proxy"
    assert template["metadata"]["labels"]["service.istio.io/canonical-name"] == "web"
    assert variable(template, "ISTIO_META_OWNER") == (
        f"kubernetes://apis/{version}/namespaces/default/{kind.lower()}s/web"
    )


def test_labels_of_a_cron_job_stand_on_its_job() -> None:
    job = after(workload("CronJob", "batch/v1"))["spec"]["jobTemplate"]

    assert job["metadata"]["labels"]["security.istio.io/tlsMode"] == "istio"
    assert job["spec"]["template"]["metadata"] == {}
    assert variable(job["spec"]["template"], "ISTIO_META_OWNER") == (
        "kubernetes://apis/batch/v1/namespaces/default/cronjobs/web"
    )


def test_a_pod_is_owned_as_in_the_cluster() -> None:
    pod = make_pod()
    pod["metadata"] |= {
        "generateName": "web-",
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": True}
        ],
    }

    assert variable(after(pod), "ISTIO_META_OWNER") == (
        "kubernetes://apis/apps/v1/namespaces/default/statefulsets/web"
    )


def test_the_namespace_is_the_objects_or_the_one_given() -> None:
    document = workload("Deployment")
    named = copy.deepcopy(document)
    named["metadata"]["namespace"] = "own"

    def owner(found: Object) -> str:
        return variable(found["spec"]["template"], "ISTIO_META_OWNER") or ""

    assert "/namespaces/prod/" in owner(after(document, namespace="prod"))
    assert "/namespaces/own/" in owner(after(named, namespace="prod"))
    assert "namespace" not in after(document, namespace="prod")["metadata"]


def test_injecting_the_result_again_changes_nothing() -> None:
    for kind in ("Deployment", "CronJob"):
        once = after(workload(kind, "batch/v1" if kind == "CronJob" else "apps/v1"))

        assert after(once) == once


def test_items_of_a_list_are_injected_where_they_stand() -> None:
    other = {"apiVersion": "v1", "kind": "Secret", "data": None}
    inner = {"apiVersion": "v1", "kind": "List", "items": [make_pod()]}
    document = {"apiVersion": "v1", "kind": "List", "items": [other, inner]}

    result = inject_document(document, context())

    assert result.after
    assert result.after["metadata"] == {}
    assert result.after["items"][0] == other
    assert container(result.after["items"][1]["items"][0])["name"] == "istio-proxy"
    assert result.before
    assert "initContainers" not in result.before["items"][1]["items"][0]["spec"]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "x",
        {"kind": "Service", "apiVersion": "v1"},
        {"kind": "Job", "apiVersion": "other/v1"},
    ],
)
def test_anything_else_is_not_handled(document: object) -> None:
    assert inject_document(document, context()) == Result(None, None)


def test_a_workload_of_no_known_version_is_worth_a_warning() -> None:
    document = {**workload("Deployment"), "apiVersion": "apps/v9"}
    del document["metadata"]["name"]

    assert inject_document(document, context()).warnings == (
        "Deployment without a name: apiVersion='apps/v9': expected apps/v1; it passes unchanged",
    )
    assert inject_document({"kind": "Pod", "metadata": 5}, context()).warnings


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        ({"hostNetwork": True}, "has host networking enabled"),
        ({"metadata": {"labels": {"sidecar.istio.io/inject": "false"}}}, "has sidecar injection"),
        ({"os": {"name": "windows"}}, "is for Windows nodes"),
    ],
)
def test_what_is_not_injected_is_written_in_the_apis_form(pod: Object, reason: str) -> None:
    result = inject_document(workload("Deployment", **pod), context(namespace="prod"))

    assert result.after == result.before
    assert result.after
    assert result.after["spec"]["template"]["spec"]["containers"][0]["resources"] == {}
    assert result.warnings[0].startswith(
        f'===> Skipping injection because Deployment "prod/web" {reason}'
    )


def test_nodes_decide_on_native_sidecars_where_they_are_known() -> None:
    document = workload("Deployment")

    def native(**more: Any) -> bool:  # noqa: ANN401 - passed on
        template = after(document, **more)["spec"]["template"]["spec"]
        return len(template["containers"]) == 1

    assert native(native="auto", kubelets={"": "v1.33.1"})
    assert not native(native="auto", kubelets={"": "v1.32.1"})
    assert not native(native="auto")


def test_problems_name_the_object_and_the_place_in_it() -> None:
    place = "Deployment prod/web: spec.template.spec.containers"
    twice = workload("Deployment", containers=[{"name": "a"}, {"name": "a"}])

    assert problems(twice) == (
        f"{place}[1].name='a': expected a name of its own; rename one of the two",
    )
    assert problems(workload("Deployment", containers=[{"image": 5}])) == (
        f"{place}[0].image=5: expected text; put it in quotes",
    )
    assert problems({"apiVersion": "v1", "kind": "ReplicationController"}) == (
        "ReplicationController prod/without a name: spec.template: expected a pod template",
    )


def test_all_problems_of_a_list_are_found() -> None:
    bad = workload("Deployment", containers=5)

    found = problems({"apiVersion": "v1", "kind": "List", "items": [bad, make_pod(), bad]})

    assert len(found) == 2


def test_lists_in_lists_have_an_end() -> None:
    document: Object = {"apiVersion": "v1", "kind": "List", "items": []}
    for _ in range(20):
        document = {"apiVersion": "v1", "kind": "List", "items": [document]}

    assert problems(document) == ("items: expected at most 8 lists in each other",)


def test_warnings_name_the_object() -> None:
    probe = {"httpGet": {"port": "gone"}}
    document = workload("Deployment", containers=[{"name": "a", "livenessProbe": probe}])

    (warning,) = inject_document(document, context()).warnings

    assert warning.startswith(
        "Deployment web: spec.template.spec.containers[0].livenessProbe.httpGet.port='gone'"
    )
