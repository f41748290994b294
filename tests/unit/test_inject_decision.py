"""Source: status-lifecycle.md sections 11.2 and 11.5."""

import pytest

from agent.inject.configuration import Configuration
from agent.inject.decision import Verdict, decide, is_windows, native_sidecar
from agent.inject.selectors import Requirement, Selector

INJECT = "sidecar.istio.io/inject"
NEVER = Selector((Requirement("skip", "Exists"),))
ALWAYS = Selector((Requirement("mesh", "Exists"),))
OFF = "has sidecar injection disabled"


def verdict(
    spec: dict[str, object] | None = None,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    namespace: str = "prod",
    configuration: Configuration | None = None,
) -> Verdict:
    metadata = {"labels": labels or {}, "annotations": annotations or {}}
    pod = {"metadata": metadata, "spec": spec or {}}
    return decide(pod, namespace, configuration or Configuration())


def native_of(
    switch: str,
    annotations: dict[str, str] | None = None,
    *,
    node: str = "",
    kubelets: dict[str, str] | None = None,
) -> tuple[bool, list[str]]:
    pod = {"metadata": {"annotations": annotations or {}}, "spec": {"nodeName": node}}
    return native_sidecar(pod, switch, kubelets)


def test_a_pod_is_injected_by_the_policy() -> None:
    assert verdict() == Verdict(inject=True)
    assert verdict(configuration=Configuration(policy="disabled")) == Verdict(
        inject=False, reason=OFF
    )


def test_a_pod_on_the_hosts_network_never_is() -> None:
    assert verdict({"hostNetwork": True}, labels={INJECT: "true"}) == Verdict(
        inject=False, reason="has host networking enabled"
    )


@pytest.mark.parametrize(
    "spec", [{"os": {"name": "windows"}}, {"nodeSelector": {"kubernetes.io/os": "windows"}}]
)
def test_a_pod_for_windows_never_is(spec: dict[str, object]) -> None:
    assert is_windows(spec)
    assert verdict(spec, labels={INJECT: "true"}).reason == "is for Windows nodes"


@pytest.mark.parametrize(
    "namespace", ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"]
)
def test_a_pod_of_the_system_never_is(namespace: str) -> None:
    assert not verdict(labels={INJECT: "true"}, namespace=namespace).inject


def test_the_label_wins_over_the_annotation_and_both_over_policy_and_selectors() -> None:
    disabled = Configuration(policy="disabled", never_inject=(NEVER,))

    assert not verdict(labels={INJECT: "false"}, annotations={INJECT: "true"}).inject
    assert verdict(labels={INJECT: "true", "skip": ""}, configuration=disabled).inject
    assert verdict(annotations={INJECT: "true"}, configuration=disabled).inject
    assert not verdict(annotations={INJECT: "false"}).inject


def test_an_empty_answer_is_none_and_another_one_a_warning() -> None:
    assert verdict(labels={INJECT: ""}) == Verdict(inject=True)
    assert verdict(labels={INJECT: "yes"}) == Verdict(
        inject=True,
        warnings=("sidecar.istio.io/inject='yes': expected 'true' or 'false'; it is ignored",),
    )


def test_selectors_decide_what_pods_do_not() -> None:
    configuration = Configuration(
        policy="disabled", never_inject=(Selector(), NEVER), always_inject=(Selector(), ALWAYS)
    )

    assert verdict(labels={"mesh": ""}, configuration=configuration).inject
    assert not verdict(labels={"mesh": "", "skip": ""}, configuration=configuration).inject
    assert not verdict(configuration=configuration).inject


def test_an_unknown_policy_injects_nothing() -> None:
    found = verdict(labels={INJECT: "true"}, configuration=Configuration(policy="on"))

    assert found.inject is False
    assert found.warnings == ("policy='on': expected 'enabled' or 'disabled'; no pod is injected",)


@pytest.mark.parametrize(
    ("switch", "kubelets", "native"),
    [
        ("true", None, True),
        ("false", {"a": "v1.34.0"}, False),
        ("auto", None, False),
        ("auto", {}, True),
        ("auto", {"a": "v1.33.0", "b": "v1.34.1-gke.5"}, True),
        ("auto", {"a": "v1.33.0", "b": "v1.32.9"}, False),
        ("auto", {"a": "unknown"}, False),
        ("auto", {"a": "v1.100.0"}, True),
        ("other", {}, False),
    ],
)
def test_kubelets_decide_on_native_sidecars(
    switch: str, kubelets: dict[str, str] | None, *, native: bool
) -> None:
    found, warnings = native_of(switch, kubelets=kubelets)

    assert found is native
    assert bool(warnings) is (switch == "other")


def test_the_pods_own_node_decides_if_it_is_known() -> None:
    kubelets = {"old": "v1.30.0", "new": "v1.34.0"}

    assert native_of("auto", node="new", kubelets=kubelets) == (True, [])
    assert native_of("auto", node="gone", kubelets=kubelets) == (False, [])


def test_the_annotation_wins_if_it_is_an_answer() -> None:
    name = "sidecar.istio.io/nativeSidecar"

    assert native_of("false", {name: "true"}) == (True, [])
    assert native_of("true", {name: "false"}) == (False, [])
    assert native_of("true", {name: "yes"}) == (
        True,
        [f"annotation {name}='yes': expected 'true' or 'false'; it is ignored"],
    )
