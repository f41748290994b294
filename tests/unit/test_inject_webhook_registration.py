"""Which pods the API server asks about. Source: status-lifecycle.md section 11.15."""

import base64

import pytest

from agent.inject.selectors import parse_selector
from agent.inject.webhook.registration import Registration, registration

DEFAULT = Registration("istiod")
CANARY = Registration("istiod-canary", revision="canary")
INJECT = "sidecar.istio.io/inject"
REV = "istio.io/rev"
SWITCH = "istio-injection"


def asked(wanted: Registration, namespace: dict[str, str], pod: dict[str, str]) -> list[str]:
    """Return the prefixes of the hooks that are asked about a pod."""
    return [
        hook["name"].removesuffix(".sidecar-injector.istio.io")
        for hook in registration(wanted)["webhooks"]
        if parse_selector(hook["namespaceSelector"]).matches(namespace)
        and parse_selector(hook["objectSelector"]).matches(pod)
    ]


@pytest.mark.parametrize(
    ("namespace", "pod", "default", "canary"),
    [
        ({}, {}, [], []),
        ({SWITCH: "enabled"}, {}, ["namespace"], []),
        ({SWITCH: "enabled"}, {INJECT: "false"}, [], []),
        ({SWITCH: "disabled"}, {}, [], []),
        ({SWITCH: "disabled"}, {INJECT: "true"}, [], []),
        ({REV: "default"}, {}, ["rev.namespace"], []),
        ({REV: "canary"}, {}, [], ["rev.namespace"]),
        ({REV: "canary"}, {INJECT: "false"}, [], []),
        ({REV: "canary", SWITCH: "enabled"}, {}, ["namespace"], []),
        ({}, {INJECT: "true"}, ["object"], []),
        ({}, {REV: "canary"}, [], ["rev.object"]),
        ({}, {REV: "canary", INJECT: "true"}, [], ["rev.object"]),
        ({}, {REV: "canary", INJECT: "false"}, [], []),
        ({}, {REV: "default"}, ["rev.object"], []),
    ],
)
def test_each_pod_is_asked_about_by_one_revision_at_most(
    namespace: dict[str, str], pod: dict[str, str], default: list[str], canary: list[str]
) -> None:
    assert asked(DEFAULT, namespace, pod) == default
    assert asked(CANARY, namespace, pod) == canary


def test_pods_may_be_asked_about_without_any_label() -> None:
    everywhere = DEFAULT._replace(by_default=True)
    system = {"kubernetes.io/metadata.name": "kube-system"}

    assert asked(everywhere, {"kubernetes.io/metadata.name": "prod"}, {}) == ["auto"]
    assert asked(everywhere, system, {}) == []
    assert asked(everywhere, {SWITCH: "disabled"}, {}) == []
    assert asked(everywhere, {}, {INJECT: "false"}) == []
    assert asked(CANARY._replace(by_default=True), {}, {}) == []


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (DEFAULT, "istio-sidecar-injector"),
        (CANARY, "istio-sidecar-injector-canary"),
        (CANARY._replace(namespace="mesh"), "istio-sidecar-injector-canary-mesh"),
    ],
)
def test_revision_and_namespace_are_in_the_name(wanted: Registration, name: str) -> None:
    assert registration(wanted)["metadata"]["name"] == name


def test_a_hook_fails_closed_and_trusts_the_root_that_it_is_given() -> None:
    hook = registration(DEFAULT._replace(root="PEM"))["webhooks"][0]

    assert hook["failurePolicy"] == "Fail"
    assert hook["sideEffects"] == "None"
    assert hook["reinvocationPolicy"] == "Never"
    assert hook["admissionReviewVersions"] == ["v1"]
    assert base64.b64decode(hook["clientConfig"]["caBundle"]) == b"PEM"
    assert "caBundle" not in registration(DEFAULT)["webhooks"][0]["clientConfig"]
