"""Source: RFC 6902; status-lifecycle.md section 11.1."""

import copy
from typing import Any

import pytest

from agent.inject.webhook.patch import json_patch
from tests.fakes.json_patch import apply

Object = dict[str, Any]


def patch(before: Object, after: Object, actual: Object | None = None) -> list[Object]:
    operations = json_patch(before, after, before if actual is None else actual)
    if actual is None:
        assert apply(operations, before) == after
    return operations


def test_equal_objects_need_nothing() -> None:
    assert patch({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) == []


def test_members_come_go_and_change() -> None:
    assert patch({"a": 1, "b": 2}, {"b": 3, "c": 4}) == [
        {"op": "remove", "path": "/a"},
        {"op": "replace", "path": "/b", "value": 3},
        {"op": "add", "path": "/c", "value": 4},
    ]


def test_only_what_differs_inside_is_named() -> None:
    assert patch({"a": {"b": {"c": 1}, "d": 2}}, {"a": {"b": {"c": 1, "e": 5}, "d": 2}}) == [
        {"op": "add", "path": "/a/b/e", "value": 5}
    ]


def test_names_are_escaped() -> None:
    assert patch({}, {"a/b~c": 1}) == [{"op": "add", "path": "/a~1b~0c", "value": 1}]


def test_items_are_added_where_they_stand() -> None:
    app, init = {"name": "app"}, {"name": "init"}

    assert patch({"a": [app]}, {"a": [init, app]}) == [{"op": "add", "path": "/a/0", "value": init}]
    assert patch({"a": [init, app]}, {"a": [app]}) == [{"op": "remove", "path": "/a/0"}]


def test_items_of_one_name_are_changed_inside() -> None:
    before = {"a": [{"name": "x", "v": 1}, {"name": "y", "v": 1}]}
    after = {"a": [{"name": "n"}, {"name": "x", "v": 1}, {"name": "y", "v": 2}]}

    assert patch(before, after) == [
        {"op": "add", "path": "/a/0", "value": {"name": "n"}},
        {"op": "replace", "path": "/a/2/v", "value": 2},
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("abc", "cab"),
        ("abc", ""),
        ("", "abc"),
        ("abcdef", "axcyef"),
        ("aab", "baa"),
        ("abcabc", "cbacba"),
    ],
)
def test_any_list_becomes_any_other(before: str, after: str) -> None:
    patch({"a": list(before)}, {"a": list(after)})
    patch({"a": [[sign] for sign in before]}, {"a": [[sign] for sign in after]})


def test_long_lists_are_replaced() -> None:
    before, after = list(range(300)), [*range(1, 300), 0]

    assert patch({"a": before}, {"a": after}) == [{"op": "replace", "path": "/a", "value": after}]


def test_a_value_of_another_kind_replaces() -> None:
    assert patch({"a": [1], "b": {}}, {"a": {}, "b": [1]}) == [
        {"op": "replace", "path": "/a", "value": {}},
        {"op": "replace", "path": "/b", "value": [1]},
    ]


@pytest.mark.parametrize(
    ("actual", "operations"),
    [
        ({}, [{"op": "add", "path": "/metadata", "value": {"labels": {"a": "b"}}}]),
        (
            {"metadata": None},
            [{"op": "replace", "path": "/metadata", "value": {"labels": {"a": "b"}}}],
        ),
        (
            {"metadata": {"labels": None}},
            [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}],
        ),
    ],
)
def test_what_the_object_lacks_is_added_whole(actual: Object, operations: list[Object]) -> None:
    before: Object = {"metadata": {}}
    after = {"metadata": {"labels": {"a": "b"}}}
    found = patch(before, after, actual)

    assert found == operations
    assert apply(found, copy.deepcopy(actual)) == after


def test_what_the_object_lacks_is_not_removed() -> None:
    assert patch({"status": {}, "x": 1}, {"x": 1}, {"x": 1}) == []


def test_lists_that_came_otherwise_are_replaced() -> None:
    assert patch({"a": [1]}, {"a": [1, 2]}, {"a": [1, None]}) == [
        {"op": "replace", "path": "/a", "value": [1, 2]}
    ]
