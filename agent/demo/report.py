"""The demo's table, a line at a time: what was done, what was expected, what was seen, how long."""

from typing import Final, NamedTuple

HEADINGS: Final = ("step", "expected", "seen", "ms")
STEP_WIDTH: Final = 37
EXPECTED_WIDTH: Final = 27


class Line(NamedTuple):
    """One finished step."""

    step: str
    expected: str
    seen: str
    milliseconds: float

    @property
    def differs(self) -> bool:
        """Return whether something else was seen than expected."""
        return self.seen != self.expected


def heading() -> str:
    """Return the first line of the table."""
    step, expected, seen, milliseconds = HEADINGS
    return f"{opening(step, expected)}{seen:<{EXPECTED_WIDTH}} {milliseconds:>6}"


def opening(step: str, expected: str) -> str:
    """Return a line as far as it is known when its step begins."""
    return f"{step:<{STEP_WIDTH}} {expected:<{EXPECTED_WIDTH}} "


def closing(line: Line) -> str:
    """Return the rest of a line, known when its step has ended."""
    mark = "   <-- differs" if line.differs else ""
    return f"{line.seen:<{EXPECTED_WIDTH}} {line.milliseconds:>6.0f}{mark}"


def summary(lines: list[Line], seconds: float) -> str:
    """Return the last line of the table."""
    different = sum(line.differs for line in lines)
    verdict = f"{different} of {len(lines)} steps differ" if different else "all as expected"
    return f"{verdict}, {seconds:.1f} s"
