import pytest

from agent.reader import (
    Reader,
    parse_bool,
    parse_count,
    parse_float,
    parse_host_port,
    parse_int,
    parse_period,
    parse_port,
    parse_text,
)


def test_an_unset_variable_is_the_default() -> None:
    read = Reader({})

    assert read.take("A", parse_int, default=7) == 7
    assert read.require("A", parse_int, default=7) == 7
    assert (read.warnings, read.errors) == ([], [])


def test_a_set_variable_is_parsed() -> None:
    read = Reader({"A": "8", "B": "x"})

    assert read.take("A", parse_int, default=7) == 8
    assert read.require("B", parse_text, default="") == "x"


def test_what_has_a_default_is_a_warning_and_the_rest_an_error() -> None:
    read = Reader({"A": "many", "B": "maybe"})

    assert read.take("A", parse_int, default=7) == 7
    assert read.require("B", parse_bool, default=False) is False
    assert read.warnings == ["A='many': expected a whole number; using the default"]
    assert read.errors == ["B='maybe': expected 'true' or 'false'"]


def test_a_variable_that_is_read_twice_is_noted_once() -> None:
    read = Reader({"A": "many", "A_B": "many"})

    for name in ("A", "A", "A_B"):
        assert read.take(name, parse_int, default=7) == 7
        assert read.require(name, parse_int, default=7) == 7

    assert [note.partition(":")[0] for note in read.warnings] == ["A='many'", "A_B='many'"]
    assert [note.partition(":")[0] for note in read.errors] == ["A='many'", "A_B='many'"]


@pytest.mark.parametrize("text", ["", " 1", "1_0", "0x1", "1.0"])
def test_whole_numbers_are_decimal(text: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        parse_int(text)


def test_a_count_may_be_zero_and_a_period_may_not() -> None:
    assert (parse_count("0"), parse_period("1ms")) == (0, 0.001)
    with pytest.raises(ValueError, match="expected 0 or more"):
        parse_count("-1")
    for text in ("0s", "-1s"):
        with pytest.raises(ValueError, match="expected a duration above zero"):
            parse_period(text)


@pytest.mark.parametrize("text", ["-1", "65536"])
def test_a_port_has_bounds(text: str) -> None:
    with pytest.raises(ValueError, match=r"0\.\.65535"):
        parse_port(text)

    assert parse_port("65535") == 65535


def test_a_number_may_have_a_fraction() -> None:
    assert parse_float("0.5") == 0.5
    for text in ("half", "1_0", " 1", "٣"):  # the last is a digit, elsewhere
        with pytest.raises(ValueError, match="expected a number"):
            parse_float(text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("istiod.istio-system.svc:15012", "istiod.istio-system.svc", 15012),
        ("127.0.0.1", "127.0.0.1", 80),
        ("[::1]:15012", "::1", 15012),
        ("[::1]", "::1", 80),
        ("fd00:ec2::254", "fd00:ec2::254", 80),
    ],
)
def test_a_server_is_a_host_and_perhaps_a_port(text: str, host: str, port: int) -> None:
    assert parse_host_port(text, default_port=80) == (host, port)


@pytest.mark.parametrize(
    "text", ["", "ca", "ca:", ":1", "ca:0", "ca:99999", "ca:٣", "ca:1:2", "::1", "[::1]", "[x:1"]
)
def test_without_a_port_of_its_own_it_must_name_one(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        parse_host_port(text)
