"""How a table of the API's types is read."""

import pytest

from agent.inject.api.form import normal
from agent.inject.api.types import TEXT, Items, Pairs, Scalar, Struct, parse_types


def test_each_kind_of_field_is_read() -> None:
    types = parse_types(
        "# a comment\nInner = name\nOuter = text set? always! inner:Inner inners:Inner[name]\n"
        "    list:text[]! labels:{text}\n"
    )

    inner = Struct({"name": TEXT})
    assert types == {
        "Inner": inner,
        "Outer": Struct(
            {
                "text": TEXT,
                "set": TEXT._replace(presence="set"),
                "always": TEXT._replace(presence="always"),
                "inner": inner,
                "inners": Items(inner, "name"),
                "list": Items(TEXT, presence="always"),
                "labels": Pairs(TEXT._replace(presence="set")),
            }
        ),
    }


def test_marks_say_when_a_field_is_written() -> None:
    types = parse_types("In =  a:int\nT = n:int p:int? c:int! b:bool q:quantity s:In t:In! x:any")
    problems: list[str] = []

    def written(value: object) -> object:
        return normal(value, types["T"], "", problems)

    assert written({}) == {"c": 0, "t": {}}
    zeros = {"n": 0, "p": 0, "c": 0, "b": False, "q": "0", "s": {}, "x": 0}
    assert written(zeros) == {"p": 0, "c": 0, "s": {}, "t": {}, "x": 0}
    assert problems == []


def test_fields_may_be_alternatives() -> None:
    types = parse_types("A = |a |b:int c")

    assert types["A"].alternatives == {"a", "b"}
    assert list(types["A"].fields) == ["a", "b", "c"]


def test_a_type_may_have_the_fields_of_another_and_be_open() -> None:
    types = parse_types("A = a\nB = +A b ...\n")

    assert list(types["B"].fields) == ["a", "b"]
    assert types["B"].is_open
    assert not types["A"].is_open


@pytest.mark.parametrize("word", ["a:Unknown", "a:int:int", "a-b", ":int", "a:{Unknown}"])
def test_a_word_that_is_none_is_named(word: str) -> None:
    with pytest.raises(ValueError, match="expected a word such as") as caught:
        parse_types(f"T = {word}")

    assert repr(word) in str(caught.value)


def test_an_entry_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="entry 'B c d': expected Name = field"):
        parse_types("A = a\nB c d\n")


def test_scalars_say_what_they_expected() -> None:
    number = parse_types("T = n:int")["T"].fields["n"]
    assert isinstance(number, Scalar)

    with pytest.raises(ValueError, match="expected a whole number; remove the quotes"):
        number.read("3")
