"""Messages of unknown types, by the numbers of their fields."""

from typing import Any

import pytest

from agent.protobuf.wire import WireError, message
from agent.query.wire import MAX_DEPTH, REDACTED, decode, encode

KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n"


def test_fields_are_numbers_texts_and_messages() -> None:
    fixed = b"\x2d\x01\x00\x00\x00\x31\x02\x00\x00\x00\x00\x00\x00\x00"
    raw = message((1, 300), (2, "text\n"), (3, message((1, 1)))) + fixed

    assert decode(raw) == {"1": 300, "2": "text\n", "3": {"1": 1}, "5": 1, "6": 2}


def test_what_occurs_again_is_a_list_and_names_stand_for_numbers() -> None:
    raw = message((34, "a"), (34, "b"), (1, 0))

    assert decode(raw, {34: "certificates"}) == {"certificates": ["a", "b"], "1": 0}


@pytest.mark.parametrize(
    ("content", "shown"),
    [(b"\xff", "/w=="), (b"\x00", "AA=="), (b"", ""), ("é".encode(), "é")],
)
def test_bytes_are_text_if_they_can_be_printed(content: bytes, shown: str) -> None:
    assert decode(message((1, content))) == {"1": shown}


def test_there_is_a_depth_at_which_bytes_are_bytes() -> None:
    raw = message((1, 1))
    for _ in range(MAX_DEPTH + 5):
        raw = message((1, raw))

    found: Any = decode(raw)

    for _ in range(MAX_DEPTH + 1):
        found = found["1"]
    assert isinstance(found, str)


def test_what_is_no_message_is_an_error() -> None:
    with pytest.raises(WireError):
        decode(b"\xff")


def test_bytes_with_a_private_key_are_not_shown() -> None:
    assert encode(b"\xff" + KEY.encode()) == REDACTED
    assert encode(b"\xff") == "/w=="
