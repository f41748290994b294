"""When the next stream may begin. Source: section 2.11; cases X5."""

import pytest

from agent.xds.endings import RESOURCE_EXHAUSTED, UNAVAILABLE
from agent.xds.pace import (
    BASE_SECONDS,
    LONGEST_SECONDS,
    SPREAD_SECONDS,
    STEADY_SECONDS,
    WIDEST_SECONDS,
    Pace,
)

LATE = 1 - 2**-48


def delay(
    pace: Pace, code: int, *, answered: bool = False, seconds: float = STEADY_SECONDS
) -> float:
    """Return the delay after a stream that has lasted for so long."""
    pace.began(100.0 - seconds)
    if answered:
        pace.answered()
    pace.ended(code, 100.0)
    return pace.delay(100.0)


def test_at_first_nothing_is_waited_for() -> None:
    assert Pace(lambda: 0.5).delay(0.0) == 0


def test_those_whose_streams_have_ended_together_come_back_one_by_one() -> None:
    delays = [delay(Pace(rng), UNAVAILABLE, answered=True) for rng in (lambda: 0.0, lambda: 0.5)]

    assert delays == [0, SPREAD_SECONDS / 2]


def test_the_more_of_them_fail_the_wider_they_are_spread() -> None:
    pace = Pace(lambda: 0.5)
    delays = [delay(pace, UNAVAILABLE) for _ in range(20)]

    assert delays[:3] == [SPREAD_SECONDS / 2, SPREAD_SECONDS, SPREAD_SECONDS * 3 / 2]
    assert delays[-1] == WIDEST_SECONDS / 2
    assert delay(pace, UNAVAILABLE, answered=True) == delays[0]


def test_an_answer_on_a_stream_that_ends_at_once_again_is_no_success() -> None:
    """A control plane that dies of what it is asked for must not be asked all the more often."""
    pace = Pace(lambda: 0.5)
    delays = [delay(pace, UNAVAILABLE, answered=True, seconds=1.0) for _ in range(20)]

    assert delays[:2] == [SPREAD_SECONDS / 2, SPREAD_SECONDS]
    assert delays[-1] == WIDEST_SECONDS / 2


@pytest.mark.parametrize("chance", [0.0, 0.5, LATE])
def test_who_is_told_to_wait_waits_the_base_at_least_and_longer_each_time(chance: float) -> None:
    """X5."""
    pace = Pace(lambda: chance)

    delays = [delay(pace, RESOURCE_EXHAUSTED) for _ in range(20)]

    assert all(BASE_SECONDS <= each <= LONGEST_SECONDS for each in delays)
    assert delays == sorted(delays)
    assert delays[0] <= 2 * BASE_SECONDS
    assert delays[-1] == pytest.approx(BASE_SECONDS + chance * (LONGEST_SECONDS - BASE_SECONDS))


def test_an_answer_forgets_earlier_refusals() -> None:
    pace = Pace(lambda: LATE)
    first = delay(pace, RESOURCE_EXHAUSTED)
    second = delay(pace, RESOURCE_EXHAUSTED)

    assert second > first
    assert delay(pace, RESOURCE_EXHAUSTED, answered=True) == first


def test_time_that_has_passed_is_not_waited_for_again() -> None:
    pace = Pace(lambda: 0.0)
    pace.ended(RESOURCE_EXHAUSTED, 100.0)

    assert pace.delay(100.25) == 0.75
    assert pace.delay(200.0) == 0
