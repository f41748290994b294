"""Typed reading of environment variables: every problem is noted, none stops the reading.

Source: bootstrap.md section 2, parsing rules.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from iptables.flags import parse_bool, parse_duration

__all__ = [
    "Reader",
    "parse_bool",
    "parse_duration",
    "parse_float",
    "parse_int",
    "parse_port",
    "parse_text",
]

T = TypeVar("T")

MAX_PORT: Final = 65535


class Reader:
    """Reads values by name from a mapping such as the environment.

    `warnings` collects what was replaced by a default, `errors` what has none.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.warnings: list[str] = []
        self.errors: list[str] = []

    def take(self, name: str, parse: Callable[[str], T], *, default: T) -> T:
        """Return the parsed value, or the default with a warning where it does not parse.

        An unset variable is the default; one set to nothing is parsed like any other text.
        """
        text = self.values.get(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.warnings.append(f"{name}={text!r}: {error}; using the default")
            return default

    def require(self, name: str, parse: Callable[[str], T], *, default: T) -> T:
        """Return the parsed value; one that does not parse is an error, the default a stand-in."""
        text = self.values.get(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.errors.append(f"{name}={text!r}: {error}")
            return default


def parse_text(text: str) -> str:
    """Return the text unchanged."""
    return text


def parse_int(text: str) -> int:
    """Return a decimal integer; blanks and underscores are not accepted."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError("expected a whole number")
    return int(text)


def parse_port(text: str) -> int:
    """Return a TCP port in 0..65535."""
    port = parse_int(text)
    if not 0 <= port <= MAX_PORT:
        raise ValueError("expected a port in 0..65535")
    return port


def parse_float(text: str) -> float:
    """Return a decimal number."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number") from None
