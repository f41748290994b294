"""Source: status-lifecycle.md section 11.4; Kubernetes' strategic merge patch."""

from typing import Any

import pytest

from agent.inject.api.merge import merge, merge_items
from agent.inject.api.schema import CONTAINER, TEMPLATE
from agent.inject.api.types import TEXT, Items, Struct

LETTERS = Items(Struct({"name": TEXT, "value": TEXT}), key="name")


def spec(original: object, patch: object) -> dict[str, Any]:
    found: dict[str, Any] = merge({"spec": original}, {"spec": patch}, TEMPLATE)["spec"]
    return found


def order(original: str, patch: str) -> str:
    merged: list[Any] = merge_items(
        [{"name": name} for name in original], [{"name": name} for name in patch], LETTERS
    )
    return "".join(item["name"] for item in merged)


@pytest.mark.parametrize(
    ("original", "patch", "merged"),
    [
        ("", "ab", "ab"),
        ("ab", "", "ab"),
        ("xy", "ab", "abxy"),
        ("abx", "ab", "abx"),
        ("xab", "ab", "xab"),
        ("axb", "ab", "axb"),
        ("axb", "ba", "xba"),
        ("axb", "aqb", "aqxb"),
        ("xay", "qa", "qxay"),
    ],
)
def test_items_keep_their_order_and_new_ones_come_first(
    original: str, patch: str, merged: str
) -> None:
    assert order(original, patch) == merged


def test_items_of_one_key_merge() -> None:
    original = {"containers": [{"name": "a", "image": "i", "env": [{"name": "E", "value": "1"}]}]}
    patch = {"containers": [{"name": "a", "env": [{"name": "E", "value": "2"}], "tty": True}]}

    assert spec(original, patch) == {
        "containers": [
            {"name": "a", "image": "i", "env": [{"name": "E", "value": "2"}], "tty": True}
        ]
    }


def test_two_items_of_the_patch_with_one_key_are_one() -> None:
    merged = merge_items([], [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}], LETTERS)

    assert merged == [{"name": "a", "value": "2"}]


def test_items_without_a_key_are_never_matched() -> None:
    assert merge_items([{"value": "1"}], [{"value": "2"}], LETTERS) == [
        {"value": "2"},
        {"value": "1"},
    ]


def test_of_several_originals_with_one_key_the_first_is_merged() -> None:
    twice = [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]

    assert merge_items(twice, [{"name": "a", "value": "3"}], LETTERS) == [
        {"name": "a", "value": "3"},
        {"name": "a", "value": "2"},
    ]


def test_other_lists_are_replaced() -> None:
    original = {"containers": [{"name": "a", "args": ["1", "2"]}], "tolerations": [{"key": "a"}]}
    patch = {"containers": [{"name": "a", "args": ["3"]}], "tolerations": [{"key": "b"}]}

    assert spec(original, patch) == patch


def test_each_list_goes_by_its_own_key() -> None:
    original = {
        "containers": [
            {
                "name": "a",
                "volumeMounts": [{"mountPath": "/a", "name": "v"}],
                "ports": [{"containerPort": 80, "name": "http"}],
            }
        ]
    }
    patch = {
        "containers": [
            {
                "name": "a",
                "volumeMounts": [{"mountPath": "/a", "name": "w"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
            }
        ]
    }

    merged = spec(original, patch)["containers"][0]

    assert merged["volumeMounts"] == [{"mountPath": "/a", "name": "w"}]
    assert merged["ports"] == [{"containerPort": 80, "name": "http", "protocol": "TCP"}]


def test_null_deletes_a_member() -> None:
    original = {"nodeName": "n", "containers": [{"name": "a", "image": "i"}]}

    assert spec(original, {"nodeName": None, "containers": [{"name": "a", "image": None}]}) == {
        "containers": [{"name": "a"}]
    }


def test_directives_delete_and_replace() -> None:
    original = {
        "containers": [{"name": "a", "image": "i"}, {"name": "b"}],
        "securityContext": {"fsGroup": 1, "runAsUser": 2},
    }
    patch = {
        "containers": [{"name": "b", "$patch": "delete"}, {"name": "c"}],
        "securityContext": {"$patch": "replace", "fsGroup": 3},
    }

    assert spec(original, patch) == {
        "containers": [{"name": "c"}, {"name": "a", "image": "i"}],
        "securityContext": {"fsGroup": 3},
    }
    assert spec(original, {"securityContext": {"$patch": "delete"}})["securityContext"] == {}
    assert spec(original, {"containers": [{"$patch": "replace"}, {"name": "z"}]})["containers"] == [
        {"name": "z"}
    ]


def test_directives_name_what_stays_and_what_goes() -> None:
    volumes = {"volumes": [{"name": "v", "emptyDir": {}}]}
    retained = {"volumes": [{"name": "v", "$retainKeys": ["name", "csi"], "csi": {"driver": "d"}}]}
    metadata = {"metadata": {"finalizers": ["a", "b"]}}

    assert spec(volumes, retained) == {"volumes": [{"name": "v", "csi": {"driver": "d"}}]}
    assert merge(
        metadata, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, TEMPLATE
    ) == {"metadata": {"finalizers": ["b"]}}
    assert merge({}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, TEMPLATE) == {}
    assert spec(volumes, {"$setElementOrder/volumes": [{"name": "v"}]}) == volumes


def test_of_alternatives_the_patchs_is_the_one() -> None:
    container = {
        "readinessProbe": {"tcpSocket": {"port": 1}, "periodSeconds": 2},
        "livenessProbe": {"grpc": {"port": 1}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "f"}}}],
    }
    patch = {
        "readinessProbe": {"httpGet": {"port": 3}},
        "livenessProbe": {"periodSeconds": 4, "exec": None},
        "env": [{"name": "A", "value": "b"}],
    }

    assert merge(container, patch, CONTAINER) == {
        "readinessProbe": {"httpGet": {"port": 3}, "periodSeconds": 2},
        "livenessProbe": {"grpc": {"port": 1}, "periodSeconds": 4},
        "env": [{"name": "A", "value": "b"}],
    }


def test_neither_is_changed() -> None:
    original = {"spec": {"containers": [{"name": "a"}]}}
    patch = {"spec": {"containers": [{"name": "a", "image": "i"}]}}

    merge(original, patch, TEMPLATE)

    assert original == {"spec": {"containers": [{"name": "a"}]}}
    assert patch == {"spec": {"containers": [{"name": "a", "image": "i"}]}}
