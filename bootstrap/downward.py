"""The files that Kubernetes writes of a pod's labels and annotations.

One `key="value"` per line, the value quoted as Go does. Source: bootstrap.md section 4.4.
"""

import json
from typing import Final

SIMPLE_ESCAPES: Final = {
    "a": b"\a",
    "b": b"\b",
    "f": b"\f",
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "v": b"\v",
    "\\": b"\\",
    '"': b'"',
}
HEX_LENGTHS: Final = {"x": 2, "u": 4, "U": 8}
OCTAL_LENGTH: Final = 3
HEX: Final = frozenset("0123456789abcdefABCDEF")
OCTAL: Final = frozenset("01234567")


def parse_downward(text: str, *, name: str = "pod information") -> tuple[dict[str, str], list[str]]:
    """Return the file's pairs, and a warning for each line whose value does not parse.

    Args:
        text: the file; lines without '=' are skipped.
        name: how warnings call the file.

    Source: bootstrap.md section 8, defect 46: one bad line costs that line.
    """
    pairs: dict[str, str] = {}
    warnings: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        key, equals, quoted = line.removesuffix("\r").partition("=")
        if not equals:
            continue
        try:
            pairs[key] = unquote(quoted)
        except ValueError as error:
            warnings.append(f"{name} line {number}, key {key!r}: {error}; the line is ignored")
    return pairs, warnings


def unquote(quoted: str) -> str:
    """Return the text of a Go string literal in double quotes.

    Raises:
        ValueError: it is none.
    """
    inner = quoted[1:-1]
    if len(quoted) < len('""') or quoted[0] != '"' or quoted[-1] != '"':
        raise ValueError("expected a value in double quotes")
    if "\\" not in inner:
        if '"' in inner:
            raise ValueError("expected a value with escaped quotes")
        return inner
    # Where Go and JSON write alike, which is nearly always, C code reads it.
    if "\\/" not in inner and "\\ud" not in inner and "\\uD" not in inner:
        try:
            return str(json.loads(quoted))
        except ValueError:
            pass
    return _unescape(inner)


def _unescape(text: str) -> str:
    """Return the text with Go's escapes resolved, of which some stand for single bytes."""
    first, *rest = text.split("\\")
    result = bytearray(_literal(first))
    escaped = iter(rest)
    for part in escaped:
        if not part:  # two backslashes: what follows the second is literal
            following = next(escaped, None)
            if following is None:
                raise ValueError("expected a whole escape sequence at the end")
            result += b"\\" + _literal(following)
        elif part[0] in SIMPLE_ESCAPES:
            result += SIMPLE_ESCAPES[part[0]] + _literal(part[1:])
        else:
            value, length = _numeric(part)
            result += value + _literal(part[length:])
    return result.decode("utf-8", "replace")


def _literal(text: str) -> bytes:
    if '"' in text:
        raise ValueError("expected a value with escaped quotes")
    return text.encode("utf-8", "replace")


def _numeric(part: str) -> tuple[bytes, int]:
    """Return the bytes of a numeric escape at the start of the text, and its length."""
    length = HEX_LENGTHS.get(part[0])
    digits = part[:OCTAL_LENGTH] if length is None else part[1 : 1 + length]
    if length is None:
        valid = len(digits) == OCTAL_LENGTH and set(digits) <= OCTAL
    else:
        valid = len(digits) == length and set(digits) <= HEX
    if not valid:
        raise ValueError(f"expected an escape sequence, found '\\{part[:1]}'")
    number = int(digits, 8 if length is None else 16)
    if length in (None, HEX_LENGTHS["x"]):
        return _byte(number), len(digits) + (length is not None)
    try:
        return chr(number).encode(), len(digits) + 1
    except (ValueError, OverflowError):  # beyond Unicode, or half of a surrogate pair
        raise ValueError(f"expected a character, found '\\{part[0]}{digits}'") from None


def _byte(number: int) -> bytes:
    try:
        return bytes((number,))
    except ValueError:
        raise ValueError(f"expected a byte, found '\\{number:o}'") from None
