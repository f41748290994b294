import pytest

from bootstrap.durations import SECOND, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45),
        ("1m30s", 90),
        ("1h", 3600),
        ("1.5h", 5400),
        ("+2s", 2),
        ("-2s", -2),
        ("0", 0),
        ("-0", 0),
        ("0s", 0),
        ("500ms", 0.5),
        (".5s", 0.5),
        ("5.s", 5),
        ("1us", 1e-6),
        ("1µs", 1e-6),
        ("1μs", 1e-6),
        ("1ns", 1e-9),
        ("0.0000000015s", 1e-9),  # what is below a nanosecond is cut off
    ],
)
def test_goes_durations_parse(text: str, seconds: float) -> None:
    assert parse_duration(text) == round(seconds * SECOND)


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", ".s", "+", "--5s", "5S", "5 s", "5s ", "1d", "５s", "9" * 50 + "s", "3000000h"],  # noqa: RUF001 - a digit that is none to Go
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration such as '5s' or '300ms'"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("45s", "45s"),
        ("1m30s", "90s"),
        ("500ms", "0.500s"),
        ("1500us", "0.001500s"),
        ("1ns", "0.000000001s"),
        ("-1500ms", "-1.500s"),
        ("0", "0s"),
    ],
)
def test_durations_print_as_protobuf_does(text: str, printed: str) -> None:
    assert format_duration(parse_duration(text)) == printed
