"""Source: status-lifecycle.md sections 11.4, step 3, and 14, D23."""

from typing import Any

from agent.inject.earlier import without_injected, without_variables
from agent.inject.status import Status

STATUS = Status({"containers": frozenset({"app", "istio-proxy"})})
NOTHING: dict[str, list[dict[str, Any]]] = {"containers": [], "initContainers": []}


def listed(spec: dict[str, list[dict[str, str]]], group: str = "containers") -> list[str]:
    return [item["name"] for item in spec[group]]


def test_a_pod_that_was_not_injected_keeps_its_containers() -> None:
    spec = {"containers": [{"name": "app", "image": "a"}]}
    stored = {**NOTHING, "containers": [{"name": "app", "image": "b"}]}

    before = without_injected(spec, None, stored)

    assert before == {"containers": spec["containers"], "initContainers": []}


def test_what_was_added_goes_unless_the_user_had_a_definition_of_it() -> None:
    spec = {"containers": [{"name": name} for name in ("istio-proxy", "app", "web")]}
    stored = {**NOTHING, "containers": [{"name": "app", "image": "mine"}]}

    before = without_injected(spec, STATUS, stored)

    assert before["containers"] == [{"name": "app", "image": "mine"}, {"name": "web"}]
    assert listed(without_injected(spec, STATUS, NOTHING)) == ["web"]


def test_the_users_proxy_is_the_last_container() -> None:
    proxy = {"name": "istio-proxy"}
    spec = {"containers": [proxy, {"name": "web"}], "initContainers": [{"name": "i"}]}

    before = without_injected(spec, None, {**NOTHING, "initContainers": [proxy]})

    assert listed(before) == ["web", "istio-proxy"]
    assert listed(before, "initContainers") == ["i"]


def test_variables_are_taken_from_the_proxy_alone() -> None:
    variables = [{"name": "A"}, {"name": "B"}]
    spec = {
        "initContainers": [{"name": "istio-proxy", "env": variables}],
        "containers": [{"name": "app", "env": variables}],
        "volumes": [],
    }

    before = without_variables(spec, {"A"})

    assert before["initContainers"] == [{"name": "istio-proxy", "env": [{"name": "B"}]}]
    assert before["containers"] == spec["containers"]
    assert before["volumes"] == []
