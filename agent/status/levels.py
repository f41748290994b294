"""A change of log levels as a request asks for it."""

from typing import Final, NamedTuple
from urllib.parse import parse_qs

from agent.reader import parse_duration

USUAL: Final = "10m"
LONGEST_SECONDS: Final = 24 * 3600.0


class Change(NamedTuple):
    """Which levels hold, and for how long."""

    levels: str  #: as --log_output_level has them
    seconds: float


def parse_change(query: str) -> Change:
    """Return the change out of a query such as level=xdsproxy:debug&for=5m.

    Raises:
        ValueError: a line for what is missing or wrong; whether these are levels is not checked.
    """
    asked = parse_qs(query, keep_blank_values=True)
    if unknown := sorted(asked.keys() - {"level", "for"}):
        raise ValueError(f"{unknown[0]!r}: expected level=[SCOPE:]LEVEL,... and for=DURATION")
    if "level" not in asked:
        raise ValueError("expected level=[SCOPE:]LEVEL,... such as level=xdsproxy:debug&for=5m")
    text = asked.get("for", [USUAL])[-1]
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"for={text!r}: {error}") from None
    if not 0 <= seconds <= LONGEST_SECONDS:
        raise ValueError(f"for={text!r}: expected at most {LONGEST_SECONDS / 3600:g}h")
    return Change(",".join(asked["level"]), seconds)
