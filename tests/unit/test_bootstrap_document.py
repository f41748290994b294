import json

import pytest

from bootstrap.document import canonical_json, parse, parse_object, parse_yaml
from bootstrap.errors import BootstrapError


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"a": 1}\n', {"a": 1}),
        ("a: 1", {"a": 1}),
        ("{a: 1}", {"a": 1}),
        ("", None),
        (" \n", None),
        ("# nothing but a comment", None),
        ("- a", ["a"]),
        ("a: {2: x, true: y}", {"a": {"2": "x", "true": "y"}}),
        ("a: &b {c: 1}\nd: *b", {"a": {"c": 1}, "d": {"c": 1}}),
    ],
)
def test_json_and_yaml_parse(text: str, data: object) -> None:
    assert parse(text) == data


@pytest.mark.parametrize(
    "text",
    ["a: [", "a: \x00", "!!int ''", "!!timestamp x", "!!bool x", "{[a]: b}", "!x y", "[" * 100000,
     '{"a":' + "[" * 100000, "a: 2020-99-99", "? &a [*a]\n: b"],
)  # fmt: skip
def test_other_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"\Aexpected JSON or YAML: [^\n]+\Z"):
        parse(text)


def test_the_place_of_the_trouble_is_named() -> None:
    with pytest.raises(ValueError, match=r"in line 2, column \d+"):
        parse("a: 1\nb: [")


def test_aliases_do_not_multiply() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]

    parsed = parse_yaml("\n".join(lines))

    assert isinstance(parsed, dict)
    assert parsed["a29"][0] is parsed["a29"][9]


@pytest.mark.parametrize(
    "text", ["", "[]", "1", "{", '{"a":NaN}', '{"a":1e999}', '{"a":' + "[" * 5000]
)
def test_only_objects_that_can_be_written_again_are_taken(text: str) -> None:
    with pytest.raises(ValueError, match="expected a JSON object"):
        parse_object(text)


def test_an_object_is_taken() -> None:
    assert parse_object('{"a": [1, null]}') == {"a": [1, None]}


def test_canonical_text_is_sorted_and_compact() -> None:
    assert canonical_json({"b": 1, "a": "é"}) == '{"a":"é","b":1}'


def test_bytes_that_were_no_text_become_question_marks() -> None:
    assert json.loads(canonical_json({"a": "x\udc80"})) == {"a": "x?"}


def test_what_json_cannot_hold_is_an_error() -> None:
    with pytest.raises(BootstrapError, match="expected values that JSON can hold"):
        canonical_json({"a": float("nan")})
