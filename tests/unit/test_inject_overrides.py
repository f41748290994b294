"""Source: status-lifecycle.md sections 11.10 and 14, D23."""

from typing import Any

import pytest

from agent.inject.overrides import apply_overrides, follow_ids, named, user_definitions
from agent.inject.status import Status

Object = dict[str, Any]
TEMPLATE: Object = {
    "initContainers": [{"name": "istio-init"}, {"name": "istio-proxy"}],
    "containers": [{"name": "helper"}],
}
NOTHING: dict[str, list[Object]] = {"containers": [], "initContainers": []}


def proxy(**fields: object) -> Object:
    return {"name": "istio-proxy", **fields}


def test_the_pods_own_definition_may_stand_in_either_list() -> None:
    pod = {"containers": [proxy(image="auto", tty=True), {"name": "app"}], "initContainers": []}

    assert user_definitions(TEMPLATE, pod, NOTHING, None) == {"initContainers": [proxy(tty=True)]}
    assert user_definitions(TEMPLATE, {"initContainers": [proxy()]}, NOTHING, None) == {
        "initContainers": [proxy()]
    }


def test_a_container_of_the_template_is_not_looked_for_among_init_containers() -> None:
    pod = {"initContainers": [{"name": "helper"}]}

    assert user_definitions(TEMPLATE, pod, NOTHING, None) == {}


def test_what_an_earlier_injection_added_is_not_the_users() -> None:
    status = Status({"initContainers": frozenset(["istio-proxy"])})
    pod = {"initContainers": [proxy(tty=True)]}

    assert user_definitions(TEMPLATE, pod, NOTHING, status) == {}


def test_what_the_user_said_at_first_is_said_again() -> None:
    status = Status({"initContainers": frozenset(["istio-proxy"])})
    stored = {"containers": [], "initContainers": [proxy(stdin=True)]}
    pod = {"initContainers": [proxy(tty=True)]}

    assert user_definitions(TEMPLATE, pod, stored, status) == {
        "initContainers": [proxy(stdin=True)]
    }


def test_a_definition_is_merged_over_the_template() -> None:
    spec: Object = {"containers": [proxy(env=[{"name": "A", "value": "1"}], args=["x"])]}
    definition = proxy(env=[{"name": "B", "value": "2"}], args=["y"])

    apply_overrides(spec, {"containers": [definition, {"name": "gone"}], "initContainers": []})

    assert spec["containers"] == [
        proxy(env=[{"name": "B", "value": "2"}, {"name": "A", "value": "1"}], args=["y"])
    ]


def follow(
    context: Object, *containers: Object, transparent: bool = False
) -> tuple[list[Object], Object]:
    spec: Object = {"initContainers": list(containers), "containers": [proxy()]}
    definition = proxy(securityContext=context)
    follow_ids(spec, {"containers": [definition]}, transparent=transparent)
    return spec["initContainers"], spec["containers"][0]


def test_capture_exempts_the_user_that_the_proxy_runs_with() -> None:
    (init,), _ = follow({"runAsUser": 2000}, {"name": "istio-init", "args": ["-u", "1337", "-m"]})

    assert init["args"] == ["-u", "2000", "-m"]


def test_validation_runs_with_the_proxys_ids() -> None:
    (validation,), _ = follow(
        {"runAsUser": 2000, "runAsGroup": 0}, {"name": "istio-validation", "args": ["-u", "1337"]}
    )

    assert validation == {
        "name": "istio-validation",
        "args": ["-u", "2000"],
        "securityContext": {"runAsUser": 2000, "runAsGroup": 0},
    }


def test_user_0_is_never_exempt() -> None:
    (init,), _ = follow({"runAsUser": 0}, {"name": "istio-init", "args": ["-u", "1337"]})

    assert init["args"] == ["-u", "1337"]


@pytest.mark.parametrize("arguments", [[], ["-u"], ["x", "-u"]])
def test_arguments_without_a_user_are_left_alone(arguments: list[str]) -> None:
    (init,), _ = follow({"runAsUser": 2000}, {"name": "istio-init", "args": list(arguments)})

    assert init["args"] == arguments
    assert follow({"runAsUser": 2000})[0] == []


def test_a_transparent_proxy_is_root() -> None:
    (validation,), found = follow(
        {"runAsUser": 2000},
        {"name": "istio-validation", "args": ["-u", "1337"]},
        transparent=True,
    )

    assert validation == {"name": "istio-validation", "args": ["-u", "2000"]}
    assert found["securityContext"] == {"runAsUser": 0}


def test_without_ids_nothing_changes() -> None:
    (init,), found = follow({"tty": True}, {"name": "istio-init", "args": ["-u", "1"]})

    assert (init["args"], found) == (["-u", "1"], proxy())
    assert named([], "x") is None
