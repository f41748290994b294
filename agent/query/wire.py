"""Bytes of a protobuf message whose type nobody here knows, as JSON values by field number.

The format does not say what a field of bytes is: text, a message, or bytes. What reads as printable
text is taken for that, then what reads as a message; the rest is base64.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final

from agent.protobuf.wire import FIXED32, FIXED64, VARINT, WireError, fields

SIZES: Final = {FIXED32: 4, FIXED64: 8}
#: Deeper, bytes are bytes.
MAX_DEPTH: Final = 32
NO_NAMES: Final[Mapping[int, str]] = {}
REDACTED: Final = "[redacted]"
#: How a private key begins and ends, whatever its kind.
PRIVATE_KEY: Final = "PRIVATE KEY-----"


def decode(raw: bytes, names: Mapping[int, str] = NO_NAMES, depth: int = 0) -> dict[str, Any]:
    """Return fields by name, else by number; what occurs more than once is a list.

    Raises:
        WireError: it is no message.
    """
    found: dict[str, list[Any]] = {}
    for number, wire_type, start, end in fields(raw):
        content = raw[start:end]
        if wire_type == VARINT:
            value: Any = _varint(content)
        elif wire_type in SIZES:
            value = int.from_bytes(content, "little")
        else:
            value = _bytes(content, depth)
        found.setdefault(names.get(number, str(number)), []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _varint(content: bytes) -> int:
    return sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(content))


def _bytes(content: bytes, depth: int) -> object:
    text = as_text(content)
    if text is not None:
        return text
    if depth < MAX_DEPTH:
        try:
            return decode(content, depth=depth + 1)
        except WireError:
            pass
    return encode(content)


def encode(content: bytes) -> str:
    """Return bytes as base64, unless there is a private key in them."""
    return REDACTED if PRIVATE_KEY.encode() in content else base64.b64encode(content).decode()


def as_text(content: bytes) -> str | None:
    """Return bytes as text, none if they are none that one can print."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    is_printable = all(character.isprintable() or character in "\n\t\r" for character in text)
    return text if is_printable else None
