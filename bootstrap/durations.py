"""Durations: Go's text in, protobuf's JSON text out, whole nanoseconds between.

Source: bootstrap.md section 2, parsing rules, and section 3.3.
"""

from typing import Final

SECOND: Final = 1_000_000_000
MILLISECOND: Final = 1_000_000
NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
DIGITS: Final = frozenset("0123456789")
#: Go counts nanoseconds in 64 bits: 292 years.
LONGEST: Final = 2**63 - 1
EXPECTED: Final = "a duration such as '5s' or '300ms'"


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a Go duration such as '45s', '1m30s' or '0'.

    Raises:
        ValueError: the message says what was expected.
    """
    rest = text[1:] if text.startswith(("+", "-")) else text
    if rest == "0":
        return 0
    total, position = 0, 0
    while position < len(rest):
        part, position = _part(rest, position)
        total += part
    if not rest or total > LONGEST:
        raise ValueError(f"expected {EXPECTED}")
    return -total if text.startswith("-") else total


def format_duration(nanoseconds: int) -> str:
    """Return protobuf's JSON form: '45s', or '0.500s' with 3, 6 or 9 digits."""
    sign = "-" if nanoseconds < 0 else ""
    seconds, rest = divmod(abs(nanoseconds), SECOND)
    if not rest:
        return f"{sign}{seconds}s"
    digits = f"{rest:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{sign}{seconds}.{digits}s"


def _part(text: str, start: int) -> tuple[int, int]:
    """Return the nanoseconds of one number and unit, and where the next begins."""
    point = _skip_digits(text, start)
    end = _skip_digits(text, point + 1) if text[point : point + 1] == "." else point
    whole, fraction = text[start:point], text[point + 1 : end]
    after = end
    while after < len(text) and text[after] not in DIGITS and text[after] != ".":
        after += 1
    unit = NANOSECONDS.get(text[end:after])
    digits = whole + fraction
    # 40 digits are beyond 292 years in any unit; int() refuses very long ones in its own words.
    if unit is None or not digits or len(digits) > 40:  # noqa: PLR2004 - explained above
        raise ValueError(f"expected {EXPECTED}")
    return int(digits) * unit // 10 ** len(fraction), after


def _skip_digits(text: str, position: int) -> int:
    while position < len(text) and text[position] in DIGITS:
        position += 1
    return position
