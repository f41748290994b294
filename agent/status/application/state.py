"""When a result of a check becomes a report, and when the next check is due.

Theory of operation. Only results in a row count: a result of the other kind begins a new row. A
row that is long enough is reported, unless it says what was reported last. Nothing was reported at
first, so the first report may be either.

Source: xds-identity-dns.md section 9.3.
"""

from typing import NamedTuple

from agent.status.application.settings import Thresholds


class State(NamedTuple):
    """What is remembered from one check to the next."""

    reported: bool | None = None  #: healthy or not, as last reported; None before the first
    latest: bool | None = None  #: the result of the last check
    row: int = 0  #: how many checks in a row had that result


def observe(state: State, *, is_healthy: bool, thresholds: Thresholds) -> tuple[State, bool]:
    """Return the state after a check, and whether its result is to be reported."""
    row = state.row + 1 if is_healthy is state.latest else 1
    needed = thresholds.success if is_healthy else thresholds.failure
    is_news = row >= needed and is_healthy is not state.reported
    return State(is_healthy if is_news else state.reported, is_healthy, row), is_news


def next_due(due: float, period: float, now: float) -> float:
    """Return when the next check is due: whole periods after the last one, and not in the past.

    What a check or a late wake-up takes moves nothing; of a check that takes longer than a period,
    the periods it has missed are left out.

    Args:
        due: when the last check was due, monotonic seconds.
        period: seconds, above zero.
        now: monotonic seconds.
    """
    missed = max(int((now - due) // period), 0)
    return due + period * (missed + 1)
