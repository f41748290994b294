"""The functions of templates; expectations are what Go and Sprig give."""

import pytest

from bootstrap.template.functions import FUNCTIONS, functions
from bootstrap.template.values import Struct, TextMap

STRUCT = Struct("Thing", {"a": 1}, {"a": 1})


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("not", ["x"], False),
        ("eq", [1, 2, 1], True),
        ("eq", [None, "x"], False),
        ("eq", [None, None], True),
        ("eq", [True, False], False),
        ("ne", ["a", "b"], True),
        ("lt", [1, 2], True),
        ("le", ["a", "a"], True),
        ("gt", [2.5, 1.5], True),
        ("ge", [1, 2], False),
        ("index", [["p", "q"], 1], "q"),
        ("index", [{"a": {"b": 1}}, "a", "b"], 1),
        ("index", [{}, "a"], None),
        ("index", [TextMap(), "a"], ""),
        ("index", ["abc", 1], 98),
        ("index", ["x"], "x"),
        ("len", ["é"], 2),
        ("len", [{"a": 1}], 1),
        ("print", [1, 2, "a", 3, None], "1 2a3 <nil>"),
        ("print", ["a", "b"], "ab"),
        ("print", [], ""),
        ("println", ["a", 1], "a 1\n"),
        ("printf", ["%s=%d", "a", 1], "a=1"),
        ("js", ["'\"\\\n<"], r"\u0027\"\\\u000A\u003C"),
        ("toJSON", [None], "{}"),
        ("toJSON", [STRUCT], '{"a":1}'),
        ("toJson", [None], "null"),
        ("toRawJson", ["é"], '"é"'),
        ("toPrettyJson", [{"a": [1]}], '{\n  "a": [\n    1\n  ]\n}'),
        ("fromJson", ['{"a":1}'], {"a": 1}),
        ("default", ["d", ""], "d"),
        ("default", ["d", "x"], "x"),
        ("default", ["d"], "d"),
        ("coalesce", [None, "", "x"], "x"),
        ("coalesce", [""], None),
        ("ternary", [1, 2, True], 1),
        ("ternary", [1, 2, False], 2),
        ("empty", [[]], True),
        ("hasKey", [{"a": 1}, "a"], True),
        ("first", [["a", "b"]], "a"),
        ("last", [["a", "b"]], "b"),
        ("first", [[]], None),
        ("list", [1, "a"], [1, "a"]),
        ("join", ["-", ["a", 1, None]], "a-1"),
        ("join", ["-", "a"], "a"),
        ("splitList", [",", "a,b"], ["a", "b"]),
        ("splitList", ["", "ab"], ["a", "b"]),
        ("toString", [5], "5"),
        ("toString", [None], ""),
        ("quote", ['a"', 1, None], '"a\\"" "1"'),
        ("upper", ["a"], "A"),
        ("lower", ["A"], "a"),
        ("trim", [" a\n"], "a"),
        ("trimPrefix", ["a", "ab"], "b"),
        ("trimSuffix", ["b", "ab"], "a"),
        ("hasPrefix", ["a", "ab"], True),
        ("hasSuffix", ["a", "ab"], False),
        ("contains", ["b", "abc"], True),
        ("replace", ["a", "b", "aa"], "bb"),
        ("indent", [2, "a\nb"], "  a\n  b"),
        ("nindent", [1, "a"], "\n a"),
        ("int", ["12"], 12),
        ("int", [1.9], 1),
        ("int", [True], 1),
        ("int", ["x"], 0),
        ("add", [1, "2", 3], 6),
        ("sub", [5, 3], 2),
    ],
)
def test_a_function_gives_what_gos_gives(
    name: str, arguments: list[object], expected: object
) -> None:
    result = FUNCTIONS[name](*arguments)

    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("eq", ["a"], "expected two values or more"),
        ("eq", ["a", 1], "expected values of one kind, found text and a whole number"),
        ("eq", [1, 1.0], "expected values of one kind, found a whole number and a number"),
        ("eq", [1, True], "expected values of one kind, found a whole number and a boolean"),
        ("eq", [[], []], "expected numbers, booleans or texts, found a list"),
        ("lt", [1, "a"], "expected two numbers or two texts, found a whole number and text"),
        ("lt", [True, False], "expected two numbers or two texts, found a boolean and a boolean"),
        ("index", [[], 0], "index 0 of 0: out of range"),
        ("index", [["a"], -1], "index -1 of 1: out of range"),
        ("index", [None, "a"], "expected a list or a map and its index, found nil and text"),
        (
            "index",
            [["a"], True],
            "expected a list or a map and its index, found a list and a boolean",
        ),
        ("len", [5], "expected text, a list or a map, found a whole number"),
        ("upper", [5], "expected text, found a whole number"),
        ("first", ["a"], "expected a list, found text"),
        ("hasKey", [[], "a"], "expected a map, found a list"),
        ("indent", [-1, "a"], "expected a number of spaces in 0..1000"),
        ("toJSON", [float("nan")], "Out of range float values are not JSON compliant"),
        ("toJSON", [object()], "expected what JSON can hold, found a map"),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    name: str, arguments: list[object], reason: str
) -> None:
    with pytest.raises((TypeError, ValueError, LookupError)) as caught:
        FUNCTIONS[name](*arguments)

    assert str(caught.value) == reason


def test_env_reads_the_environment_it_is_given() -> None:
    table = functions({"A": "b"})

    assert (table["env"]("A"), table["env"]("B")) == ("b", "")
