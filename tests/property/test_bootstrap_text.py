"""Whatever the text, there is an answer; what is written reads back."""

import ipaddress
import json
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bootstrap.addresses import canonical_ip, join_host_port, split_host_port
from bootstrap.document import parse
from bootstrap.downward import parse_downward
from bootstrap.durations import LONGEST, format_duration, parse_duration
from tests.property.strategies_bootstrap import PORTS, TEXT

GO_ESCAPES = {"\a": r"\a", "\v": r"\v", "\n": r"\n", "\\": r"\\", '"': r"\""}


def go_quoted(text: str) -> str:
    """Return the text as Go's strconv.Quote writes it, with its longest escapes."""

    def escape(character: str) -> str:
        code = ord(character)
        if character in GO_ESCAPES:
            return GO_ESCAPES[character]
        if code < 0x20:
            return f"\\x{code:02x}"
        return character if code < 0x7F else f"\\U{code:08x}"

    return '"' + "".join(map(escape, text)) + '"'


def refusal(function: Callable[[str], object], text: str) -> str:
    """Return why the function refuses the text, '' where it takes it."""
    try:
        function(text)
    except ValueError as error:
        return str(error)
    return ""


@given(st.integers(-LONGEST, LONGEST))
def test_a_duration_reads_back(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@given(TEXT)
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    why = refusal(parse_duration, text)

    assert why.startswith("expected a duration") if why else text


@given(st.text() | st.ip_addresses().map(str))
@example("10.0.0.1\n")
@example("::ffff:10.0.0.1")
def test_addresses_are_those_of_the_library(text: str) -> None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        expected = ""
    else:
        mapped = getattr(address, "ipv4_mapped", None)
        expected = str(mapped or address)

    assert canonical_ip(text) == expected


@given(st.ip_addresses().map(str) | st.just("istiod.ns"), PORTS)
def test_host_and_port_read_back(host: str, port: int) -> None:
    assert split_host_port(join_host_port(host, port)) == (host, port)


@given(TEXT)
def test_any_text_is_host_and_port_or_refused(text: str) -> None:
    why = refusal(split_host_port, text)

    assert why.startswith("expected host:port") if why else split_host_port(text)[0] in text


@given(st.text(), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_a_document_or_refused(before: str, after: str) -> None:
    assert "\n" not in refusal(parse, before + "{" + after)


@given(
    st.dictionaries(st.text("ab./-", min_size=1), st.text(st.characters(exclude_categories=["Cs"])))
)
def test_pod_information_reads_back(pairs: dict[str, str]) -> None:
    for quote in (go_quoted, lambda text: json.dumps(text, ensure_ascii=False)):
        text = "".join(f"{key}={quote(value)}\n" for key, value in pairs.items())

        assert parse_downward(text) == (pairs, [])


@given(st.lists(st.text('a="\\\n\rxu0')).map("\n".join))
def test_bad_lines_cost_only_themselves(noise: str) -> None:
    pairs, _ = parse_downward(f'first="1"\n{noise}\nlast="2"\n')

    assert pairs["last"] == "2"
    assert "first" in pairs


@pytest.mark.parametrize("length", range(7))
def test_every_digit_of_a_fraction_counts(length: int) -> None:
    fraction = "1" * length

    assert parse_duration(f"0.{fraction}s") == int(fraction.ljust(9, "0"))
