"""Source: status-lifecycle.md section 11.17."""

from typing import Any

import pytest

from agent.inject.api.form import count_values, normal, shown
from agent.inject.api.schema import POD, TEMPLATE

FIRST = "spec.containers[0]"


def form(spec: object, **metadata: object) -> tuple[dict[str, Any], list[str]]:
    problems: list[str] = []
    return normal({"metadata": metadata, "spec": spec}, TEMPLATE, "", problems), problems


def spec_of(spec: object) -> dict[str, Any]:
    written, problems = form(spec)
    assert problems == []
    found: dict[str, Any] = written["spec"]
    return found


def container_of(container: object) -> dict[str, Any]:
    found: dict[str, Any] = spec_of({"containers": [container]})["containers"][0]
    return found


def test_what_is_always_there_is_written() -> None:
    problems: list[str] = []

    assert normal({}, POD, "", problems) == {
        "metadata": {},
        "spec": {"containers": []},
        "status": {},
    }
    assert container_of({"name": "a"}) == {"name": "a", "resources": {}}
    assert container_of(
        {"name": "a", "env": [{"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "x"}}}]}
    )["env"][0]["valueFrom"] == {"resourceFieldRef": {"resource": "x", "divisor": "0"}}
    assert problems == []


def test_nothing_is_an_object_with_what_is_always_there() -> None:
    problems: list[str] = []

    assert normal(None, TEMPLATE, "", problems) == {"metadata": {}, "spec": {"containers": []}}
    assert problems == []


def test_zeros_that_mean_unset_are_left_out() -> None:
    container = {
        "name": "a",
        "image": "",
        "unknown": 1,
        "args": [],
        "env": [{"name": "E", "value": ""}],
        "readinessProbe": {"httpGet": {"port": 80, "path": ""}, "initialDelaySeconds": 0},
        "tty": False,
        "workingDir": None,
    }

    assert container_of(container) == {
        "name": "a",
        "env": [{"name": "E"}],
        "resources": {},
        "readinessProbe": {"httpGet": {"port": 80}},
    }


def test_zeros_that_mean_something_stay() -> None:
    context = {
        "runAsUser": 0,
        "runAsNonRoot": False,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": False,
    }

    written = spec_of(
        {
            "containers": [{"name": "a", "securityContext": context, "args": ["", "x"]}],
            "volumes": [
                {"name": "v", "emptyDir": {}},
                {"name": "c", "configMap": {"name": "c", "optional": False}},
            ],
            "securityContext": {},
        }
    )

    assert written["containers"][0]["securityContext"] == context
    assert written["containers"][0]["args"] == ["", "x"]
    assert written["volumes"][0] == {"name": "v", "emptyDir": {}}
    assert written["volumes"][1]["configMap"] == {"name": "c", "optional": False}
    assert written["securityContext"] == {}


def test_labels_may_be_empty_and_go_with_the_last_of_them() -> None:
    written, problems = form(
        {}, labels={"a": "", "b": None}, annotations={}, creationTimestamp=None
    )

    assert written["metadata"] == {"labels": {"a": ""}}
    assert problems == []


def test_quantities_are_canonical() -> None:
    limits = {"cpu": "2000m", "memory": "1024Mi"}

    assert container_of({"name": "a", "resources": {"limits": limits}})["resources"] == {
        "limits": {"cpu": "2", "memory": "1Gi"}
    }


def test_fields_stand_in_the_order_of_the_api() -> None:
    container = {"imagePullPolicy": "Always", "env": [{"name": "E"}], "image": "i", "name": "a"}

    assert list(container_of(container)) == ["name", "image", "env", "resources", "imagePullPolicy"]


def test_members_of_lists_keep_their_places() -> None:
    assert spec_of({"containers": [], "imagePullSecrets": [{}, {"name": "s"}, None]}) == {
        "containers": [],
        "imagePullSecrets": [{}, {"name": "s"}, {}],
    }


def test_the_object_is_not_changed() -> None:
    pod = {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1000m"}}}]}}

    normal(pod, TEMPLATE, "", [])

    assert pod == {
        "spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1000m"}}}]}
    }


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (5, "spec=5: expected an object"),
        ({"containers": 5}, "spec.containers=5: expected a list"),
        ({"containers": [5]}, "spec.containers[0]=5: expected an object"),
        (
            {"containers": [{"ports": [{"containerPort": "80"}]}]},
            f"{FIRST}.ports[0].containerPort='80': expected a whole number; remove the quotes",
        ),
        (
            {"hostNetwork": "true"},
            "spec.hostNetwork='true': expected true or false; remove the quotes",
        ),
        ({"hostNetwork": 1}, "spec.hostNetwork=1: expected true or false"),
        ({"nodeName": 5}, "spec.nodeName=5: expected text; put it in quotes"),
        (
            {"nodeSelector": {"a/b": 5}},
            "spec.nodeSelector['a/b']=5: expected text; put it in quotes",
        ),
        ({"nodeSelector": []}, "spec.nodeSelector=<list>: expected an object"),
        ({"priority": 1.5}, "spec.priority=1.5: expected a whole number"),
        ({"priority": True}, "spec.priority=True: expected a whole number"),
        ({"priority": 2**70}, f"spec.priority={2**70}: expected a whole number"),
        ({"affinity": "x"}, "spec.affinity='x': expected an object"),
        (
            {"containers": [{"args": [None]}]},
            "spec.containers[0].args[0]=None: expected a value",
        ),
        (
            {"overhead": {"cpu": "x"}},
            "spec.overhead['cpu']='x': expected a quantity such as 100m, 2 or 128Mi",
        ),
        (
            {"containers": [{"readinessProbe": {"httpGet": {"port": 1.5}}}]},
            "spec.containers[0].readinessProbe.httpGet.port=1.5: expected a whole number",
        ),
    ],
)
def test_a_value_of_a_wrong_type_is_named_with_its_place_and_what_to_change(
    spec: object, problem: str
) -> None:
    assert form(spec)[1] == [problem]


def test_whole_floats_are_whole_numbers() -> None:
    assert spec_of({"containers": [], "priority": 5.0})["priority"] == 5


def test_all_problems_are_found_at_once() -> None:
    problems = form({"containers": [{"name": 1}, {"image": 2}], "hostNetwork": 3})[1]

    assert len(problems) == 3


def test_values_are_counted_with_their_aliases_written_out() -> None:
    ten = ["x"] * 10
    hundred = [ten] * 10
    endless: list[object] = []
    endless.append({"a": endless})

    assert count_values("x") == 1
    assert count_values({"a": hundred, "b": hundred}) == 1 + 2 * 111
    assert count_values(endless) == 0


def test_what_is_shown_of_a_value_is_short() -> None:
    assert shown("x" * 100) == "'" + "x" * 59 + "..."
    assert shown({"secret": 1}) == "<dict>"
