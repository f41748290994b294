"""A small reader and writer of protobuf's wire format.

The relay passes on the bytes that it was given and only looks at their outer fields, so unknown
ones survive and a generated module (12 ms and 2 MB for every pod) is never loaded.

Source: xds-identity-dns.md section 2.17.
"""

from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5
FIXED_BYTES: Final = {FIXED64: 8, FIXED32: 4}
MAX_KEY: Final = 0xFFFFFFFF  #: field numbers end at 2**29 - 1
MAX_VARINT_BITS: Final = 64

#: Number, wire type, and where the content begins and ends.
Field = tuple[int, int, int, int]
Value = bytes | str | int


class WireError(ValueError):
    """Bytes that are no protobuf message, or text in it that is no UTF-8."""


def fields(data: bytes) -> Iterator[Field]:
    """Yield the outer fields in order of occurrence; WireError where the bytes make no sense."""
    at, size = 0, len(data)
    while at < size:
        key, start = _varint(data, at)
        number, wire_type = key >> 3, key & 7
        if number == 0 or key > MAX_KEY:
            raise WireError(f"byte {at}: no field has the number {number}")
        if wire_type == LENGTH:
            length, start = _varint(data, start)
            at = start + length
        elif wire_type == VARINT:
            _, at = _varint(data, start)
        elif wire_type in FIXED_BYTES:
            at = start + FIXED_BYTES[wire_type]
        else:
            # Groups (3 and 4) are older than proto3; no xDS message has one.
            raise WireError(f"byte {at}: field {number} has wire type {wire_type}")
        if at > size:
            raise WireError(f"field {number} ends {at - size} bytes after the message")
        yield number, wire_type, start, at


def text(data: bytes, start: int, end: int) -> str:
    """Return the string between two positions."""
    try:
        return data[start:end].decode()
    except UnicodeDecodeError as error:
        raise WireError(f"byte {start}: string is not UTF-8: {error.reason}") from None


def last(data: bytes, number: int) -> bytes:
    """Return the content of a field: of several, the last one counts; nothing if there is none."""
    content = b""
    for field, wire_type, start, end in fields(data):
        if field == number and wire_type == LENGTH:
            content = data[start:end]
    return content


def last_text(data: bytes, number: int) -> str:
    """Return the content of a field as text."""
    content = last(data, number)
    return text(content, 0, len(content))


def embedded(data: bytes, number: int) -> bytes | None:
    """Return an embedded message: its occurrences are merged by joining their bytes."""
    found = [
        data[start:end]
        for field, wire_type, start, end in fields(data)
        if field == number and wire_type == LENGTH
    ]
    return b"".join(found) if found else None


def message(*content: tuple[int, Value]) -> bytes:
    """Return a message of (field number, value) pairs, in the order given.

    Bytes are an embedded message or a bytes field, text is a string, a non-negative number or a
    bool is a varint. Nothing is left out: whoever wants proto3's default gives no pair.
    """
    parts: list[bytes] = []
    for number, value in content:
        if isinstance(value, int):
            parts += (_encode_varint(number << 3 | VARINT), _encode_varint(value))
        else:
            body = value.encode() if isinstance(value, str) else value
            parts += (_encode_varint(number << 3 | LENGTH), _encode_varint(len(body)), body)
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the top bit says that more follows
                break
            shift += 7
            if shift >= MAX_VARINT_BITS:
                raise WireError(f"byte {at}: number is longer than ten bytes")
    except IndexError:
        raise WireError(f"byte {at}: message ends within a number") from None
    return value, at


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits fit into a byte
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
