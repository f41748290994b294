"""Source: status-lifecycle.md sections 11.4, 11.10 and 14 (D12, D18, D23, D25)."""

import copy
import json
from typing import Any

import pytest

from agent.inject.configuration import Configuration
from agent.inject.pipeline import InjectionError, selected_templates
from tests.fakes.injection import (
    annotations_of,
    container,
    inject_pod,
    make_pod,
    names,
    variable,
)

Object = dict[str, Any]
TEMPLATES = "inject.istio.io/templates"
PROXY: Object = {"name": "istio-proxy", "image": "auto", "env": [{"name": "MINE", "value": "1"}]}
APP: Object = {"name": "app", "image": "web:1", "readinessProbe": {"httpGet": {"port": 80}}}


def with_templates(**templates: Object | None) -> Configuration:
    return Configuration(templates=templates, aliases={"both": ("sidecar", "extra")})


def again(pod: Object, *, native: bool = True, **more: Any) -> Object:  # noqa: ANN401 - passed on
    return inject_pod(pod, native=native, **more).pod


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("own", [(), (PROXY,)])
def test_injecting_again_changes_nothing(own: tuple[Object, ...], *, native: bool) -> None:
    pod = make_pod(copy.deepcopy(APP), *own, initContainers=[{"name": "before"}])

    once = inject_pod(pod, native=native).pod

    assert again(once, native=native) == once
    assert again(again(once, native=native), native=native) == once


def test_the_incoming_pod_is_not_changed() -> None:
    pod = make_pod(copy.deepcopy(APP), copy.deepcopy(PROXY))
    before = copy.deepcopy(pod)

    inject_pod(pod)

    assert pod == before


def test_the_users_proxy_wins_and_is_kept_for_the_next_time() -> None:
    pod = inject_pod(make_pod(APP, {**PROXY, "securityContext": {"runAsUser": 2000}})).pod

    assert names(pod, "initContainers") == ["istio-init", "istio-proxy"]
    assert names(pod, "containers") == ["app"]
    assert variable(pod, "MINE") == "1"
    assert container(pod)["image"].endswith("mesh-agent:latest")
    assert container(pod)["securityContext"]["runAsUser"] == 2000
    arguments = container(pod, "istio-init")["args"]
    assert arguments[arguments.index("-u") + 1] == "2000"
    assert json.loads(annotations_of(pod)["proxy.istio.io/overrides"]) == {
        "initContainers": [
            {
                "name": "istio-proxy",
                "env": [{"name": "MINE", "value": "1"}],
                "resources": {},
                "securityContext": {"runAsUser": 2000},
            }
        ]
    }


def test_a_fresh_template_wins_over_what_was_injected_but_not_over_the_user() -> None:
    once = inject_pod(make_pod(APP, PROXY)).pod

    changed = again(once, values={"global": {"tag": "new", "proxy": {"logLevel": "debug"}}})

    assert container(changed)["image"].endswith(":new")
    assert "--proxyLogLevel=debug" in container(changed)["args"]
    assert variable(changed, "MINE") == "1"


def test_from_classic_to_native_the_old_proxy_counts_as_the_users() -> None:
    classic = inject_pod(make_pod(APP), native=False).pod

    native = again(classic, values={"global": {"proxy": {"logLevel": "debug"}}})

    assert names(native, "containers") == ["app"]
    assert names(native, "initContainers") == ["istio-init", "istio-proxy"]
    assert container(native)["restartPolicy"] == "Always"
    assert "--proxyLogLevel=warning" in container(native)["args"]
    assert "proxy.istio.io/overrides" not in annotations_of(native)


def test_from_native_to_classic_there_is_one_proxy() -> None:
    native = inject_pod(make_pod(copy.deepcopy(APP), PROXY)).pod

    classic = again(native, native=False)

    assert names(classic, "containers") == ["app", "istio-proxy"]
    assert names(classic, "initContainers") == ["istio-init"]
    assert again(classic, native=False) == classic


def test_a_proxy_of_the_users_stands_where_it_is_injected() -> None:
    with pytest.raises(InjectionError, match="initContainers has istio-proxy: expected it under"):
        inject_pod(make_pod(APP, initContainers=[PROXY]), native=False)
    with pytest.raises(
        InjectionError, match=r"containers\[1\].name='istio-proxy': expected a name"
    ):
        inject_pod(make_pod(APP, PROXY, initContainers=[PROXY]))


def test_a_new_container_of_an_injected_pod_gets_its_probes() -> None:
    once = inject_pod(make_pod(APP)).pod
    once["spec"]["containers"].append(
        {"name": "new", "livenessProbe": {"httpGet": {"path": "/l", "port": 8008}}}
    )

    twice = again(once)

    assert json.loads(variable(twice, "ISTIO_KUBE_APP_PROBERS") or "") == {
        "/app-health/app/readyz": {"httpGet": {"port": 80}},
        "/app-health/new/livez": {"httpGet": {"path": "/l", "port": 8008}},
    }
    assert variable(twice, "ISTIO_META_APP_CONTAINERS") == "app,new"


def test_a_status_that_is_none_counts_as_injected_only_for_what_is_added() -> None:
    pod = make_pod(APP, PROXY, annotations={"sidecar.istio.io/status": "{"})

    found = inject_pod(pod).pod

    assert "proxy.istio.io/overrides" not in annotations_of(found)
    assert variable(found, "MINE") == "1"
    assert annotations_of(found)["sidecar.istio.io/status"].startswith('{"initContainers"')


def test_annotations_are_checked_together() -> None:
    pod = make_pod(
        annotations={
            "sidecar.istio.io/interceptionMode": "x",
            "status.sidecar.istio.io/port": "y",
            "proxy.istio.io/config": "{concurrency: z, drainDuration: 1}",
        }
    )

    with pytest.raises(InjectionError) as caught:
        inject_pod(pod)

    assert len(caught.value.problems) == 4


def test_what_the_values_add_is_checked_too() -> None:
    values = {"global": {"proxy": {"lifecycle": {"preStop": 5}}}}

    with pytest.raises(InjectionError, match=r"initContainers\[1\].lifecycle.preStop=5: expected"):
        inject_pod(make_pod(), values=values)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (
            {TEMPLATES: "gone"},
            "no template 'gone'; expected one of both, gateway, grpc-agent",
        ),
        ({TEMPLATES: "ours"}, "template 'ours' has actions"),
        ({"proxy.istio.io/overrides": "{"}, "annotation proxy.istio.io/overrides: expected JSON"),
        (
            {"proxy.istio.io/config": "concurrency: x"},
            "annotation proxy.istio.io/config: concurrency",
        ),
        ({"prometheus.io/port": "x"}, "invalid prometheus scrape configuration"),
        ({TEMPLATES: "wrong"}, "template 'wrong': spec.containers[0].image=5: expected text"),
    ],
)
def test_what_cannot_be_used_is_one_line(annotations: dict[str, str], expected: str) -> None:
    wrong = {"spec": {"containers": [{"name": "app", "image": 5}]}}

    with pytest.raises(InjectionError) as caught:
        inject_pod(
            make_pod(annotations=annotations),
            configuration=with_templates(ours=None, wrong=wrong),
        )

    (problem,) = caught.value.problems
    assert expected in problem
    assert "\n" not in problem


def test_names_of_containers_are_their_own() -> None:
    twice = make_pod({"name": "a"}, {"name": "a"}, initContainers=[{"name": "a"}])

    with pytest.raises(InjectionError) as caught:
        inject_pod(twice)

    expected = "name='a': expected a name of its own; rename one of the two"
    assert caught.value.problems == (
        f"spec.containers[0].{expected}",
        f"spec.containers[1].{expected}",
    )


def test_containers_have_names() -> None:
    with pytest.raises(InjectionError) as caught:
        inject_pod(make_pod({"image": "a"}, {"name": ""}))

    assert caught.value.problems == (
        "spec.containers[0].name='': expected a name",
        "spec.containers[1].name='': expected a name",
    )


def test_templates_are_chosen_by_annotation_and_alias() -> None:
    configuration = Configuration(default_templates=("both",), aliases={"both": ("a", "b")})

    assert selected_templates({}, configuration) == ["a", "b"]
    assert selected_templates({TEMPLATES: " x , both,"}, configuration) == ["x", "a", "b"]


def test_a_further_template_is_merged_over_the_first() -> None:
    extra = {
        "metadata": {"labels": {"extra": "yes"}},
        "spec": {
            "containers": [{"name": "helper", "image": "h"}],
            "volumes": [{"name": "workload-socket", "csi": {"driver": "d"}}],
        },
    }

    pod = inject_pod(
        make_pod(APP, annotations={TEMPLATES: "both"}), configuration=with_templates(extra=extra)
    ).pod

    assert pod["metadata"]["labels"]["extra"] == "yes"
    assert names(pod, "containers") == ["helper", "app"]
    assert {"name": "workload-socket", "csi": {"driver": "d"}} in pod["spec"]["volumes"]
    assert '"containers":["helper"]' in annotations_of(pod)["sidecar.istio.io/status"]


@pytest.mark.parametrize("native", [True, False])
def test_a_further_template_reaches_the_proxy_wherever_it_is(*, native: bool) -> None:
    mount = {"name": "workload-socket", "mountPath": "/run/secrets/workload-spiffe-uds"}
    extra = {"spec": {"containers": [{"name": "istio-proxy", "volumeMounts": [mount]}]}}

    pod = inject_pod(
        make_pod(APP, annotations={TEMPLATES: "both"}),
        native=native,
        configuration=with_templates(extra=extra),
    ).pod

    everywhere = names(pod, "containers") + names(pod, "initContainers")
    assert everywhere.count("istio-proxy") == 1
    assert mount in container(pod)["volumeMounts"]
    assert container(pod)["image"]


def test_a_plain_template_may_stand_in_the_place_of_a_built_in_one() -> None:
    plain = {"metadata": {"labels": {"plain": "yes"}}}

    pod = inject_pod(make_pod(APP), configuration=with_templates(sidecar=plain)).pod

    assert pod["metadata"]["labels"] == {"app": "web", "plain": "yes"}
    assert names(pod, "containers") == ["app"]
    assert annotations_of(pod)["prometheus.io/port"] == "15020"


def test_configured_annotations_are_over_everything() -> None:
    configuration = Configuration(injected_annotations={"note": "x", "prometheus.io/port": "1"})

    found = annotations_of(inject_pod(make_pod(APP), configuration=configuration).pod)

    assert (found["note"], found["prometheus.io/port"]) == ("x", "1")


def test_probes_are_rewritten_if_pod_or_values_say_so() -> None:
    rewrite = "sidecar.istio.io/rewriteAppHTTPProbers"
    off = {"sidecarInjectorWebhook": {"rewriteAppHTTPProbe": False}}

    def rewritten(values: Object, **annotations: str) -> bool:
        pod = make_pod(copy.deepcopy(APP), annotations=annotations)
        return variable(inject_pod(pod, values=values).pod, "ISTIO_KUBE_APP_PROBERS") is not None

    assert rewritten({})
    assert not rewritten(off)
    assert not rewritten({}, **{rewrite: "false"})
    assert rewritten(off, **{rewrite: "true"})
    assert rewritten({}, **{rewrite: "x"})


def test_the_status_port_of_the_pod_is_the_one_that_answers() -> None:
    pod = make_pod(copy.deepcopy(APP), annotations={"status.sidecar.istio.io/port": "15999"})

    found = inject_pod(pod).pod

    assert annotations_of(found)["prometheus.io/port"] == "15999"
    assert container(found, "app")["readinessProbe"]["httpGet"]["port"] == 15999
    assert again(found) == found


def test_warnings_come_with_the_pod() -> None:
    pod = make_pod({"name": "app", "livenessProbe": {"httpGet": {"port": "gone"}}})

    (warning,) = inject_pod(pod).warnings

    assert warning.startswith("spec.containers[0].livenessProbe.httpGet.port='gone'")


def test_hold_of_a_pod_holds_for_the_order_too() -> None:
    config = {"proxy.istio.io/config": "holdApplicationUntilProxyStarts: true"}

    pod = inject_pod(make_pod(APP, annotations=config), native=False).pod

    assert names(pod, "containers") == ["istio-proxy", "app"]
    assert "postStart" in container(pod)["lifecycle"]


def test_a_transparent_proxy_of_the_users_is_root_all_the_same() -> None:
    pod = make_pod(
        APP,
        {**PROXY, "securityContext": {"runAsUser": 2000}},
        annotations={"sidecar.istio.io/interceptionMode": "TPROXY"},
    )

    found = inject_pod(pod).pod

    assert container(found)["securityContext"]["runAsUser"] == 0
    arguments = container(found, "istio-init")["args"]
    assert arguments[arguments.index("-u") + 1] == "2000"
    assert again(found) == found
