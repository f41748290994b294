"""Values as Go prints, judges and looks into them."""

import pytest

from bootstrap.template.values import (
    Struct,
    TextMap,
    field,
    is_true,
    kind,
    number_text,
    printed,
    to_json,
)

STRUCT = Struct("Thing", {"port": 1}, {"port": 1})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "<no value>"),
        ("a", "a"),
        (True, "true"),
        (5, "5"),
        (1.5, "1.5"),
        (["a", 1, None], "[a 1 <nil>]"),
        ({"b": 1, "a": {}}, "map[a:map[] b:1]"),
        (TextMap({"a": "b"}), "map[a:b]"),
        (STRUCT, '{"port":1}'),
    ],
)
def test_a_value_is_printed_as_go_does(value: object, expected: str) -> None:
    assert printed(value) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (123456.0, "123456"),
        (1234567.0, "1.234567e+06"),
        (1e6, "1e+06"),
        (-2.5, "-2.5"),
        (float("inf"), "+Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_a_number_has_the_fewest_digits(number: float, expected: str) -> None:
    assert number_text(number) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, False), (0, False), ("", False), ([], False), ({}, False), (0.1, True), (STRUCT, True)],
)
def test_what_is_empty_is_false(value: object, *, expected: bool) -> None:
    assert is_true(value) is expected


@pytest.mark.parametrize(
    ("value", "expected"), [({"port": 2}, 2), ({}, None), (None, None), (STRUCT, 1)]
)
def test_a_field_of_a_map_or_a_struct(value: object, expected: object) -> None:
    assert field(value, "port") == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (STRUCT, "Thing has no field x"),
        ("text", "field x of text: expected a map or a struct"),
    ],
)
def test_a_field_that_cannot_be(value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        field(value, "x")


def test_kinds_have_names() -> None:
    values: tuple[object, ...] = (None, True, 1, 1.5, "a", [], {}, STRUCT)

    assert [kind(value) for value in values] == [
        "nil", "a boolean", "a whole number", "a number", "text", "a list", "a map", "Thing",
    ]  # fmt: skip


def test_json_has_sorted_keys() -> None:
    assert to_json({"b": STRUCT, "a": "é"}) == '{"a":"é","b":{"port":1}}'
