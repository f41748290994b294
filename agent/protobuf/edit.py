"""Numbers and choices in protobuf messages, and replacing fields with all other bytes kept."""

from collections.abc import Sequence

from agent.protobuf.wire import LENGTH, VARINT, fields, message

MASK64 = 2**64 - 1
MASK32 = 2**32 - 1


def oneof(data: bytes, numbers: Sequence[int]) -> tuple[int, bytes]:
    """Return which of several embedded messages was set last, 0 for none, and its content."""
    chosen, content = 0, b""
    for field, wire_type, start, end in fields(data):
        if field in numbers and wire_type == LENGTH:
            content = (content if field == chosen else b"") + data[start:end]
            chosen = field
    return chosen, content


def integer(data: bytes, number: int) -> int:
    """Return the value of an int64 field."""
    value = 0
    for field, wire_type, start, end in fields(data):
        if field == number and wire_type == VARINT:
            value = sum((byte & 0x7F) << 7 * at for at, byte in enumerate(data[start:end]))
    value &= MASK64
    return value - 2**64 if value >= 2**63 else value


def enumeration(data: bytes, number: int) -> int:
    """Return the value of an enum field, negative ones apart."""
    return integer(data, number) & MASK32


def without(data: bytes, *numbers: int) -> bytes:
    """Return the message without some fields."""
    kept, begin = [], 0
    for field, _, _, end in fields(data):
        if field not in numbers:
            kept.append(data[begin:end])
        begin = end
    return b"".join(kept)


def replaced(data: bytes, number: int, content: bytes) -> bytes:
    """Return the message with another value of an embedded message or bytes field."""
    return without(data, number) + message((number, content))
