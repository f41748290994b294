"""Source: status-lifecycle.md sections 11.1, 11.5 and 11.16."""

import base64
import copy
import json
from typing import Any

import pytest

from agent.inject.api.form import normal
from agent.inject.api.schema import POD
from agent.inject.configuration import Configuration
from agent.inject.mesh import ProxyConfigResource
from agent.inject.webhook.review import (
    MOST_VALUES,
    Answer,
    Cluster,
    Context,
    answer,
    url_environment,
    with_cluster,
)
from tests.fakes.injection import container, make_pod, make_settings, names, variable
from tests.fakes.json_patch import apply

Object = dict[str, Any]
CONTEXT = Context(Configuration(), make_settings(), native="true")


def review(pod: object, version: str = "admission.k8s.io/v1", **request: object) -> bytes:
    body = {
        "apiVersion": version,
        "kind": "AdmissionReview",
        "request": {"uid": "u-1", "namespace": "prod", "object": pod, **request},
    }
    return json.dumps(body).encode()


def ask(pod: object, context: Context = CONTEXT, **more: Any) -> Answer:  # noqa: ANN401 - passed on
    environment = more.pop("environment", {})
    return answer(review(pod, **more), environment, context)


def patched(pod: Object, context: Context = CONTEXT, **more: Any) -> Object:  # noqa: ANN401 - passed on
    response = ask(pod, context, **more).document["response"]
    assert response["allowed"]
    patch = json.loads(base64.b64decode(response["patch"]))
    found: Object = apply(patch, pod)
    return found


def refusal(found: Answer) -> str:
    assert found.outcome == "failed"
    response = found.document["response"]
    assert response["allowed"] is False
    message: str = response["status"]["message"]
    assert message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("version", ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"])
def test_a_pod_is_answered_with_its_patch(version: str) -> None:
    found = ask(make_pod(), version=version)

    assert found.outcome == "injected"
    assert found.document["apiVersion"] == version
    assert found.document["kind"] == "AdmissionReview"
    response = found.document["response"]
    assert (response["uid"], response["allowed"]) == ("u-1", True)
    assert response["patchType"] == "JSONPatch"
    assert names(patched(make_pod()), "initContainers") == ["istio-init", "istio-proxy"]


def test_the_patch_says_nothing_of_what_the_server_writes_itself() -> None:
    pod = make_pod({"name": "app", "image": "x", "resources": {}})
    pod["metadata"]["managedFields"] = [{"manager": "kubectl"}]

    patch = json.loads(base64.b64decode(ask(pod).document["response"]["patch"]))

    paths = {operation["path"] for operation in patch}
    assert not {path for path in paths if path.startswith("/spec/containers")}
    assert not paths & {"/metadata/namespace", "/metadata/managedFields", "/status"}
    assert not {operation["path"] for operation in patch if operation["op"] != "add"}


def test_the_namespace_is_the_requests_unless_the_pod_has_one() -> None:
    pod = make_pod()
    owner = "kubernetes://apis/v1/namespaces/{}/pods/web-1"

    assert variable(patched(pod), "ISTIO_META_OWNER") == owner.format("prod")
    assert "namespace" not in patched(pod)["metadata"]
    pod["metadata"]["namespace"] = "own"
    assert variable(patched(pod), "ISTIO_META_OWNER") == owner.format("own")


def test_a_pod_without_anything_gets_what_it_lacks() -> None:
    found = patched({}, namespace=None)

    assert normal(found, POD, "", []) == found | {"status": {}}
    assert variable(found, "ISTIO_META_OWNER") is None


@pytest.mark.parametrize(
    "asked",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None, "oldObject": make_pod()},
        {"operation": "CONNECT", "object": {"kind": "PodExecOptions", "apiVersion": "v1"}},
        {"operation": "CREATE", "subResource": "binding"},
    ],
)
def test_nothing_but_the_creation_of_a_pod_is_injected_or_refused(asked: Object) -> None:
    """Whoever registers the webhook for more can still delete pods."""
    found = ask(make_pod(), **asked)

    assert found.outcome == "skipped"
    assert found.document["response"] == {"uid": "u-1", "allowed": True}


def test_a_dry_run_is_answered_alike() -> None:
    assert ask(make_pod(), dryRun=True) == ask(make_pod())


def test_what_is_not_injected_is_allowed_without_a_patch() -> None:
    for pod in (
        make_pod(labels={"sidecar.istio.io/inject": "false"}),
        make_pod(hostNetwork=True),
        make_pod(nodeSelector={"kubernetes.io/os": "windows"}),
    ):
        found = ask(pod)

        assert found.outcome == "skipped"
        assert found.document["response"] == {"uid": "u-1", "allowed": True}
    assert ask(make_pod(), namespace="kube-system").outcome == "skipped"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "could not decode body: expected JSON"),
        (b"\xff\xfe\x00", "could not decode body: expected JSON"),
        (b"[" * 100_000, "could not decode body: nested too deeply"),
        (b'{"a": NaN}', "could not decode body: expected JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "could not decode body: expected JSON"),
        (b"[]", "could not decode body: <list>: expected an AdmissionReview"),
        (b"null", "could not decode body: None: expected an AdmissionReview"),
        (b"{}", "could not decode body: apiVersion=None kind=None: expected an AdmissionReview of"),
        (
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v2"}',
            "could not decode body: apiVersion='admission.k8s.io/v2'",
        ),
        (
            b'{"kind": ["AdmissionReview"], "apiVersion": {}}',
            "could not decode body: apiVersion=<dict> kind=<list>",
        ),
    ],
)
def test_what_is_no_review_is_refused_without_an_envelope(body: bytes, reason: str) -> None:
    found = answer(body, {}, CONTEXT)

    assert refusal(found).startswith(reason)
    assert set(found.document) == {"response"}
    assert found.document["response"]["uid"] == ""


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"request": None}, "request=None: expected an object"),
        ({"request": "x"}, "request='x': expected an object"),
        ({"request": {}}, "request.object=None: expected a pod"),
        ({"request": {"object": []}}, "request.object=<list>: expected a pod"),
        (
            {"request": {"object": {"kind": "Deployment", "apiVersion": "apps/v1"}}},
            "request.object: apiVersion='apps/v1' kind='Deployment': expected a pod",
        ),
        ({"request": {"object": {}, "namespace": 5}}, "request.namespace=5: expected text"),
    ],
)
def test_a_request_without_a_pod_is_refused(request_: Object, reason: str) -> None:
    head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}

    found = answer(json.dumps({**head, **request_}).encode(), {}, CONTEXT)

    assert refusal(found).startswith(reason)
    assert found.document["kind"] == "AdmissionReview"


def test_a_pod_that_cannot_be_injected_is_refused_with_every_reason() -> None:
    pod = make_pod(
        annotations={"sidecar.istio.io/interceptionMode": "x", "status.sidecar.istio.io/port": "y"}
    )

    found = ask(pod)

    assert refusal(found).count("; ") == 1
    assert found.document["response"]["uid"] == "u-1"
    assert len(found.notes) == 2


def test_depth_is_refused() -> None:
    deep: object = []
    for _ in range(400):
        deep = [deep]
    claim = {"name": "c", "source": deep}

    found = ask(make_pod(resourceClaims=[claim]))
    nested = review(make_pod(resourceClaims=[{"name": "c", "source": 1}])).replace(
        b'"source": 1', b'"source": ' + b"[" * 900 + b"]" * 900
    )

    assert found.document["response"]["allowed"]
    assert answer(nested, {}, CONTEXT).document["response"]["uid"] in ("", "u-1")


@pytest.mark.parametrize("value", ["{}", "[]", '""', '{"a":1}'])
def test_a_pod_that_would_fill_the_memory_is_refused(value: str) -> None:
    body = review(make_pod()).replace(b'"web:1"', f"[{','.join([value] * MOST_VALUES)}]".encode())

    message = refusal(answer(body, {}, CONTEXT))

    assert message == "could not decode body: expected at most 100000 values"


def test_reasons_have_a_limit() -> None:
    containers = [{"name": n} for n in range(50)]

    message = refusal(ask(make_pod(*containers)))
    long = refusal(ask(make_pod(annotations={"x" * 5000: 5})))  # type: ignore[dict-item]  # wrong on purpose

    assert message.endswith("; and 40 more")
    assert len(long) < 600


def test_warnings_are_told_to_whoever_creates_the_pod() -> None:
    pod = make_pod({"name": "app", "livenessProbe": {"httpGet": {"port": "gone"}}})

    response = ask(pod).document["response"]

    assert response["warnings"][0].startswith("spec.containers[0].livenessProbe.httpGet.port=")
    assert all(len(line) <= 250 for line in response["warnings"])


@pytest.mark.parametrize(
    ("path", "environment"),
    [
        ("", {}),
        ("/", {}),
        (
            "cluster/east/net/n--slash--1/",
            {"ISTIO_META_CLUSTER_ID": "east", "ISTIO_META_NETWORK": "n/1"},
        ),
        ("istio_meta_x/1/odd", {"ISTIO_META_X": "1"}),
        (":ENV:cluster=c:ENV:A=1=2:ENV:=x:ENV:y", {"cluster": "c", "A": "1=2"}),
    ],
)
def test_the_url_sets_variables(path: str, environment: dict[str, str]) -> None:
    assert url_environment(path) == environment


def test_variables_of_the_url_reach_the_proxy() -> None:
    found = patched(make_pod(), environment=url_environment("cluster/east/foo/bar"))

    assert variable(found, "ISTIO_META_CLUSTER_ID") == "east"
    assert variable(found, "FOO") == "bar"


def test_what_is_known_of_the_cluster_is_gone_by() -> None:
    cluster = Cluster(
        kubelets={"old": "v1.30.1"},
        namespaces={"prod": {"openshift.io/sa.scc.uid-range": "1000/100"}},
        proxy_configs=(ProxyConfigResource("prod", {}, {"concurrency": 7}),),
    )
    context = with_cluster(CONTEXT._replace(native="auto"), cluster)
    own = {"name": "istio-proxy", "securityContext": {"runAsUser": 5, "runAsGroup": 5}}
    app = {"name": "app", "securityContext": {"runAsUser": 5}}

    found = patched(make_pod(app, own), context)

    assert names(found, "containers") == ["app", "istio-proxy"]
    assert container(found)["securityContext"]["runAsUser"] == 1099
    assert variable(found, "PROXY_CONFIG") == '{"concurrency":7}\n'
    arguments = container(found, "istio-init")["args"]
    assert arguments[arguments.index("-u") + 1] == "1099"


def test_injecting_again_needs_no_patch() -> None:
    pod = make_pod({"name": "app", "image": "i", "readinessProbe": {"httpGet": {"port": 80}}})
    once = patched(pod)
    before = copy.deepcopy(once)

    response = ask(once).document["response"]

    assert base64.b64decode(response["patch"]) == b"[]"
    assert once == before
