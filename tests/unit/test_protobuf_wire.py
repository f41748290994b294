"""Protobuf's wire format: what is read, what is written, and what is refused."""

import pytest

from agent.protobuf.wire import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    WireError,
    embedded,
    fields,
    last,
    last_text,
    message,
    text,
)


def test_fields_come_in_order_with_their_places() -> None:
    raw = message((1, "ab"), (2, 300), (1, b"c"))

    assert list(fields(raw)) == [(1, LENGTH, 2, 4), (2, VARINT, 5, 7), (1, LENGTH, 9, 10)]


def test_fixed_size_fields_are_passed_over() -> None:
    raw = b"\x09" + bytes(8) + b"\x15" + bytes(4)

    assert list(fields(raw)) == [(1, FIXED64, 1, 9), (2, FIXED32, 10, 14)]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\x00\x00", "no field has the number 0"),
        (b"\x80", "ends within a number"),
        (b"\x80" * 10 + b"\x01", "longer than ten bytes"),
        (b"\xfa\xff\xff\xff\x7f\x00", "no field has the number"),
        (b"\x0a", "ends within a number"),
        (b"\x0a\x05abc", "ends 2 bytes after the message"),
        (b"\x09abc", "ends 5 bytes after the message"),
        (b"\x0b", "has wire type 3"),
    ],
)
def test_nonsense_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        list(fields(raw))


def test_text_must_be_utf8() -> None:
    assert text("né".encode(), 0, 3) == "né"
    with pytest.raises(WireError, match="byte 1: string is not UTF-8"):
        text(b"a\xff", 1, 2)


def test_a_message_writes_what_it_is_given() -> None:
    raw = message((1, 0), (2, True), (16, b""), (3, "x" * 200))

    assert raw == b"\x08\x00\x10\x01\x82\x01\x00\x1a\xc8\x01" + b"x" * 200


def test_of_several_occurrences_the_last_counts_and_messages_are_merged() -> None:
    data = message((1, "one"), (2, 5), (1, b"two"), (3, "x"))

    assert last(data, 1) == b"two"
    assert last_text(data, 1) == "two"
    assert embedded(data, 1) == b"onetwo"
    assert last(data, 2) == last(data, 9) == b""
    assert embedded(data, 2) is None
