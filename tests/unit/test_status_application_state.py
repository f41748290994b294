"""When a result becomes a report. Source: xds-identity-dns.md section 9.3."""

import pytest

from agent.status.application.settings import Thresholds
from agent.status.application.state import State, next_due, observe


def reports(results: str, thresholds: Thresholds) -> str:
    """Return what is reported after each of some results: h, u or - for nothing."""
    state, found = State(), ""
    for result in results:
        state, is_news = observe(state, is_healthy=result == "h", thresholds=thresholds)
        found += result if is_news else "-"
    return found


@pytest.mark.parametrize(
    ("results", "thresholds", "expected"),
    [
        ("uhu", Thresholds(1, 1), "uhu"),  # T-H5
        ("hhh", Thresholds(1, 1), "h--"),
        ("uuu", Thresholds(1, 1), "u--"),
        ("hhuuuuu", Thresholds(1, 3), "h---u--"),
        ("huuhuuhuuu", Thresholds(1, 3), "h--------u"),
        ("uhhuhhhh", Thresholds(3, 1), "u-----h-"),
        ("uhuh", Thresholds(2, 2), "----"),
    ],
)
def test_a_row_that_is_long_enough_is_reported_once(
    results: str, thresholds: Thresholds, expected: str
) -> None:
    assert reports(results, thresholds) == expected


@pytest.mark.parametrize(
    ("now", "due"),
    [
        (100.0, 110.0),
        (100.4, 110.0),  # the check took a while, or began late
        (99.999, 110.0),  # a timer that went off early
        (110.0, 120.0),  # it took a whole period
        (127.5, 130.0),
    ],
)
def test_checks_are_whole_periods_apart(now: float, due: float) -> None:
    assert next_due(100.0, 10.0, now) == due
