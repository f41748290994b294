"""What holds for every pod, and for whatever is sent in the place of one.

Source: status-lifecycle.md sections 11.1, 11.4, 11.14 and 11.17.
"""

import base64
import copy
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from agent.inject.api.form import normal
from agent.inject.api.merge import merge
from agent.inject.api.quantity import canonical
from agent.inject.api.schema import POD, TEMPLATE
from agent.inject.configuration import Configuration
from agent.inject.manifest import Context as ManifestContext
from agent.inject.manifest import inject_document
from agent.inject.pipeline import Injected, InjectionError, inject
from agent.inject.template.pod import PROXY, Settings
from agent.inject.webhook.patch import json_patch
from agent.inject.webhook.review import Answer, Context, answer
from agent.inject.yaml_text import Text, dump, parse, split
from tests.fakes.injection import make_request, make_settings
from tests.fakes.json_patch import apply
from tests.property.strategies_injection import JSON, PODS, broken_pods

Object = dict[str, Any]
SETTINGS = make_settings()
#: What puts variables, annotations and containers where an injection that comes later finds them.
MANY_SETTINGS = (
    SETTINGS,
    make_settings({"global": {"network": "one", "multiCluster": {"clusterName": "east"}}}),
    make_settings({"pilot": {"cni": {"enabled": True, "provider": "multus"}}}),
    make_settings(
        {"global": {"proxy": {"holdApplicationUntilProxyStarts": True, "statusPort": 15999}}},
        {"defaultConfig": {"proxyMetadata": {"ENVOY_SECURE_MERGED_METRICS_PORT": "15092"}}},
    ),
)
#: Templates of the user's that touch the application, and the proxy.
FURTHER = Configuration(
    default_templates=("sidecar", "further"),
    templates={
        "further": {
            "spec": {
                "containers": [
                    {"name": "app", "env": [{"name": "A", "value": "b"}]},
                    {"name": PROXY, "readinessProbe": {"tcpSocket": {"port": 1}}},
                ]
            }
        }
    },
)
NATIVE = st.sampled_from(["true", "false"])


def review(pod: object, native: str = "true") -> Answer:
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u", "namespace": "prod", "object": pod},
    }
    context = Context(Configuration(), SETTINGS, native=native)
    return answer(json.dumps(body).encode(), {}, context)


def patch_of(found: Answer) -> list[Object]:
    patch: list[Object] = json.loads(base64.b64decode(found.document["response"]["patch"]))
    return patch


def injected(
    pod: Object,
    *,
    native: bool,
    settings: Settings = SETTINGS,
    configuration: Configuration = Configuration(),  # noqa: B008 - a value
) -> Injected:
    return inject(make_request(pod, native=native), configuration, settings)


@given(
    PODS,
    st.booleans(),
    st.sampled_from(MANY_SETTINGS),
    st.sampled_from([Configuration(), FURTHER]),
)
def test_injection_is_idempotent(
    pod: Object,
    native: bool,  # noqa: FBT001 - drawn
    settings: Settings,
    configuration: Configuration,
) -> None:
    how: Any = {"native": native, "settings": settings, "configuration": configuration}
    once = injected(pod, **how).pod

    assert injected(once, **how).pod == once


@given(PODS, st.booleans(), st.sampled_from([Configuration(), FURTHER]))
def test_no_probe_has_two_handlers(
    pod: Object,
    native: bool,  # noqa: FBT001 - drawn
    configuration: Configuration,
) -> None:
    once = injected(pod, native=native, configuration=configuration).pod
    spec = injected(once, native=native, configuration=configuration).pod["spec"]

    for item in (*spec["containers"], *spec.get("initContainers", ())):
        probes = [
            item.get(name, {}) for name in ("readinessProbe", "livenessProbe", "startupProbe")
        ]
        hooks = item.get("lifecycle", {}).values()
        for holder in (*probes, *hooks):
            assert len(holder.keys() & {"exec", "httpGet", "tcpSocket", "grpc", "sleep"}) <= 1


@given(PODS, st.booleans())
def test_an_injected_pod_has_one_proxy_and_all_its_containers(
    pod: Object,
    native: bool,  # noqa: FBT001 - drawn
) -> None:
    spec = injected(pod, native=native).pod["spec"]

    found = [
        item["name"] for group in ("containers", "initContainers") for item in spec.get(group, ())
    ]
    asked = {
        item["name"] for group in ("containers", "initContainers") for item in pod["spec"][group]
    }
    simple = pod["metadata"]["annotations"].get("inject.istio.io/templates") == "grpc-simple"
    assert len(found) == len(set(found))
    assert set(found) >= asked
    assert simple or PROXY in found


@given(PODS, NATIVE)
def test_the_patch_makes_the_injected_pod_of_the_one_that_came(pod: Object, native: str) -> None:
    before = copy.deepcopy(pod)

    found = review(pod, native)

    patched = apply(patch_of(found), pod)
    problems: list[str] = []
    expected = injected(
        {**pod, "metadata": {**pod["metadata"], "namespace": "prod"}}, native=native == "true"
    ).pod
    written = normal(patched, POD, "", problems)
    assert problems == []
    assert written["spec"] == expected["spec"]
    assert {**written["metadata"], "namespace": "prod"} == expected["metadata"]
    assert pod == before
    assert patch_of(review(patched, native)) == []


@given(broken_pods())
@example({"metadata": {"annotations": {"proxy.istio.io/overrides": '{"containers":[{}]}'}}})
@example({"metadata": {"annotations": {"sidecar.istio.io/status": '{"containers":[[]]}'}}})
@example({"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "[" * 1000}}})
def test_a_hostile_review_is_answered(pod: Object) -> None:
    found = review(pod)

    response = found.document["response"]
    json.dumps(found.document)
    if response["allowed"]:
        if "patch" in response:
            apply(patch_of(found), pod)
    else:
        assert response["status"]["message"]
        assert "\n" not in response["status"]["message"]


@given(JSON)
def test_anything_may_stand_in_a_reviews_place(value: object) -> None:
    context = Context(Configuration(), SETTINGS)
    head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}

    for body in (value, {**head, "request": value}, {**head, "request": {"object": value}}):
        answer(json.dumps(body).encode(), {}, context)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(body: bytes) -> None:
    found = answer(body, {}, Context(Configuration(), SETTINGS))

    assert found.document["response"]["allowed"] is False


@given(broken_pods())
def test_a_hostile_manifest_is_injected_or_named(pod: Object) -> None:
    context = ManifestContext(Configuration(), SETTINGS, native="true")

    problems: tuple[str, ...] = ()
    try:
        inject_document(pod, context)
    except InjectionError as error:
        problems = error.problems

    assert all("\n" not in problem for problem in problems)


@given(JSON, JSON)
def test_a_patch_makes_one_object_of_another(before: object, after: object) -> None:
    old, new = {"value": before}, {"value": after}

    assert apply(json_patch(old, new, old), old) == new


@given(broken_pods())
def test_the_form_is_a_fixed_point(pod: Object) -> None:
    written = normal(pod, POD, "", [])
    problems: list[str] = []

    assert normal(written, POD, "", problems) == written
    assert problems == []


@given(PODS, PODS)
def test_merging_twice_is_merging_once(original: Object, patch: Object) -> None:
    once = merge(original, patch, TEMPLATE)

    assert merge(once, patch, TEMPLATE) == once


@given(st.decimals(-(10**20), 10**20, places=9), st.sampled_from(["", "m", "k", "Gi", "e2"]))
def test_a_canonical_quantity_stays(number: object, unit: str) -> None:
    written = canonical(f"{number:f}{unit}")

    assert canonical(written) == written


@given(JSON.filter(lambda value: value is not None))
def test_what_is_written_as_yaml_is_read_again(value: object) -> None:
    text = dump({"value": value})

    (document,) = split(text)
    assert parse(document) == {"value": value}


@given(st.text())
def test_any_text_is_yaml_or_refused(text: str) -> None:
    problems = []
    for document in split(text):
        try:
            parse(document)
        except ValueError as error:
            problems.append(str(error))

    assert all("\n" not in problem for problem in problems)


@given(st.lists(st.sampled_from(["---\n", "a: 1\n", "\n", "# x\n", "--- # c\n", "b: |\n  x\n"])))
def test_splitting_loses_nothing_but_separators(lines: list[str]) -> None:
    kept = "".join(document.text for document in split("".join(lines)))
    meaningful = [line for line in lines if not line.startswith("---") and line.strip()]

    assert [line for line in kept.splitlines() if line.strip()] == "".join(meaningful).splitlines()


def test_a_document_keeps_its_line() -> None:
    assert Text("b: 1\n", 2) in split("a: 1\n---\nb: 1\n")
