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
    "parse_count",
    "parse_duration",
    "parse_float",
    "parse_host_port",
    "parse_int",
    "parse_period",
    "parse_port",
    "parse_text",
]

T = TypeVar("T")

MAX_PORT: Final = 65535
#: An address in brackets, or a name, and perhaps a port; or an IPv6 address alone.
HOST_PORT: Final = r"\[([^][]+)\](?::(.+))?|([^][:]+)(?::([^:]+))?|([^][:]*:[^][:]*:[^][]*)"


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
        return self._read(name, parse, default, self.warnings, "; using the default")

    def require(self, name: str, parse: Callable[[str], T], *, default: T) -> T:
        """Return the parsed value; one that does not parse is an error, the default a stand-in."""
        return self._read(name, parse, default, self.errors, "")

    def _read(
        self, name: str, parse: Callable[[str], T], default: T, notes: list[str], then: str
    ) -> T:
        text = self.values.get(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            start = f"{name}="  # it is noted once, however many settings come from it
            if not any(note.startswith(start) for note in notes):
                notes.append(f"{start}{text!r}: {error}{then}")
            return default


def parse_text(text: str) -> str:
    """Return the text unchanged."""
    return text


def parse_int(text: str) -> int:
    """Return a decimal integer; blanks and underscores are not accepted."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError("expected a whole number")
    return int(text)


def parse_count(text: str) -> int:
    """Return a whole number that is not below zero."""
    count = parse_int(text)
    if count < 0:
        raise ValueError("expected 0 or more")
    return count


def parse_period(text: str) -> float:
    """Return the seconds of a duration that is above zero."""
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError("expected a duration above zero")
    return seconds


def parse_port(text: str) -> int:
    """Return a TCP port in 0..65535."""
    port = parse_int(text)
    if not 0 <= port <= MAX_PORT:
        raise ValueError("expected a port in 0..65535")
    return port


def parse_host_port(text: str, *, default_port: int = 0) -> tuple[str, int]:
    """Return host and port of `host:port`, `[::1]:port` or, with a default port, of the host.

    The host is without brackets.
    """
    found = re.fullmatch(HOST_PORT, text)
    port = found and (found[2] or found[4] or str(default_port))
    try:
        number = parse_port(port or "")
    except ValueError:
        number = 0
    if not (found and number):
        raise ValueError("expected host:port")
    return found[1] or found[3] or found[5], number


def parse_float(text: str) -> float:
    """Return a decimal number; blanks, underscores and other scripts' digits are not accepted."""
    if not text.isascii() or re.search(r"[\s_]", text):
        raise ValueError("expected a number")
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number") from None
