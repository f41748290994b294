import pytest

from bootstrap.decode import (
    BOOL,
    CARRIED,
    DOUBLE,
    DURATION,
    INT,
    INT64_VALUE,
    INT_VALUE,
    SECRET,
    STRING,
    UINT,
    Field,
    decode_fields,
    enum,
    mapping,
    message,
    repeated,
    without_zeros,
)

COLOUR = enum("RED", "GREEN", BLUE=7)
INNER = message({"name": STRING, "size": INT_VALUE})
FIELDS = {
    "someText": STRING,
    "count": INT,
    "inner": INNER,
    "list": repeated(INNER),
    "map": mapping(COLOUR),
    "colour": COLOUR,
    "on": BOOL,
}


def decode(field: Field, value: object) -> tuple[object, list[str]]:
    problems: list[str] = []
    decoded = decode_fields({"f": value}, {"f": field}, (), "", problems)
    return decoded.get("f"), problems


@pytest.mark.parametrize(
    ("field", "value", "decoded"),
    [
        (STRING, "a", "a"),
        (SECRET, "a", "a"),
        (BOOL, False, False),
        (INT, 5, 5),
        (INT, "5", 5),
        (INT, "-5", -5),
        (INT, 5.0, 5),
        (INT, "5e1", 50),
        (UINT, 2**32 - 1, 2**32 - 1),
        (INT64_VALUE, 2**63 - 1, "9223372036854775807"),
        (INT64_VALUE, "9223372036854775807", "9223372036854775807"),
        (DOUBLE, 1, 1.0),
        (DOUBLE, "0.5", 0.5),
        (DURATION, "1m", "60s"),
        (DURATION, "0", "0s"),
        (COLOUR, "GREEN", "GREEN"),
        (COLOUR, 7, "BLUE"),
        (COLOUR, 99, 99),
        (CARRIED, "EDGE", "EDGE"),
        (CARRIED, 2, 2),
        (INNER, {}, {}),
        (INNER, {"name": "", "size": 0}, {"size": 0}),
        (repeated(STRING), ["a", ""], ["a", ""]),
        (mapping(STRING), {"a_b": ""}, {"a_b": ""}),
    ],
)
def test_values_take_their_canonical_form(field: Field, value: object, decoded: object) -> None:
    assert decode(field, value) == (decoded, [])


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        (STRING, True, "f=True: expected text; put it in quotes"),
        (STRING, {"token": "x"}, "f=<dict>: expected text; put it in quotes"),
        (STRING, 10**70, f"f={'1' + '0' * 59}...: expected text; put it in quotes"),
        (SECRET, 12345, "f: expected text; put it in quotes"),
        (BOOL, "true", "f='true': expected true or false, without quotes"),
        (BOOL, 1, "f=1: expected true or false, without quotes"),
        (INT, True, "f=True: expected a whole number in -2147483648..2147483647"),
        (INT, 1.5, "f=1.5: expected a whole number in -2147483648..2147483647"),
        (INT, "1.5", "f='1.5': expected a whole number in -2147483648..2147483647"),
        (INT, "x", "f='x': expected a whole number in -2147483648..2147483647"),
        (INT, 2**31, "f=2147483648: expected a whole number in -2147483648..2147483647"),
        (INT, [1], "f=<list>: expected a whole number in -2147483648..2147483647"),
        (UINT, -1, "f=-1: expected a whole number in 0..4294967295"),
        (UINT, float("inf"), "f=inf: expected a whole number in 0..4294967295"),
        (DOUBLE, float("nan"), "f=nan: expected a number"),
        (DOUBLE, "1e999", "f='1e999': expected a number"),
        (DOUBLE, 10**400, f"f={'1' + '0' * 59}...: expected a number"),
        (DOUBLE, "x", "f='x': expected a number"),
        (DOUBLE, True, "f=True: expected a number"),
        (DOUBLE, [], "f=<list>: expected a number"),
        (DURATION, 5, "f=5: expected a duration such as '5s' or '300ms'"),
        (DURATION, "5", "f='5': expected a duration such as '5s' or '300ms'"),
        (COLOUR, "PINK", "f='PINK': expected one of RED, GREEN, BLUE"),
        (COLOUR, True, "f=True: expected one of RED, GREEN, BLUE"),
        (CARRIED, True, "f=True: expected a word"),
        (CARRIED, 0.5, "f=0.5: expected a word"),
        (INNER, "x", "f='x': expected an object"),
        (INNER, {"name": 1}, "f.name=1: expected text; put it in quotes"),
        (repeated(STRING), "x", "f='x': expected a list"),
        (repeated(STRING), ["a", 1], "f[1]=1: expected text; put it in quotes"),
        (mapping(STRING), [], "f=<list>: expected an object"),
        (mapping(STRING), {"a\n": 1}, "f['a\\n']=1: expected text; put it in quotes"),
        (mapping(STRING), {"a": 1}, "f.a=1: expected text; put it in quotes"),
    ],
)
def test_other_values_are_named_and_dropped(field: Field, value: object, line: str) -> None:
    assert decode(field, value)[1] == [line]


def test_both_spellings_of_a_name_are_read() -> None:
    problems: list[str] = []

    decoded = decode_fields(
        {"some_text": "a", "count": 1, "other": 2, "list": None}, FIELDS, (), "", problems
    )

    assert decoded == {"someText": "a", "count": 1}
    assert not problems


def test_two_spellings_of_one_name_are_refused() -> None:
    problems: list[str] = []

    decode_fields({"some_text": "a", "someText": "b"}, FIELDS, (), "p", problems)

    assert problems == ["p.someText: expected one spelling of the field, found two"]


def test_one_member_of_a_oneof_may_be_set() -> None:
    problems: list[str] = []

    decode_fields({"count": 0, "on": False}, FIELDS, (frozenset(("count", "on")),), "p", problems)

    assert problems == ["p: expected one of count, on, found 2"]


def test_zero_values_are_left_out_and_messages_kept() -> None:
    zeros = {"someText": "", "count": 0, "inner": {}, "list": [], "map": {}, "colour": "RED"}

    assert without_zeros({**zeros, "on": False}, FIELDS) == {"inner": {}}
