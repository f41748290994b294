import pytest

from agent.status.decode import (
    DecodeError,
    as_list,
    as_object,
    get_integer,
    get_text,
    get_value,
)


def test_null_is_empty() -> None:
    assert as_object(None, "x") == {}
    assert as_list(None, "x") == []
    assert get_text({"a": None}, "a") == ""
    assert get_integer({"a": None}, "a") == 0


def test_values_of_the_right_type_are_returned() -> None:
    assert as_object({"a": 1}, "x") == {"a": 1}
    assert as_list([1], "x") == [1]
    assert get_text({"a": "b"}, "a") == "b"
    assert get_integer({"a": -(2**31) + 1}, "a") == -(2**31) + 1


def test_keys_match_in_any_case_and_the_last_wins() -> None:
    assert get_value({"Ab": 1, "other": 2, "aB": 3}, "AB") == 3
    assert get_value({}, "a") is None


def test_other_types_are_refused_by_name() -> None:
    with pytest.raises(DecodeError, match="thing: expected an object, found \\[\\]"):
        as_object([], "thing")
    with pytest.raises(DecodeError, match="thing: expected a list, found 'x'"):
        as_list("x", "thing")
    with pytest.raises(DecodeError, match="a: expected a string, found 1"):
        get_text({"a": 1}, "a")
    for value in (1.0, True, "1", 2**31, -(2**31)):
        with pytest.raises(DecodeError, match="a: expected a 32-bit integer"):
            get_integer({"a": value}, "a")
