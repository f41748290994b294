"""Whatever clocks and settings: a renewal is never too late, and jitter keeps its bounds."""

from hypothesis import given
from hypothesis import strategies as st

from agent.identity.rotation import (
    LONGEST_RETRY_SECONDS,
    SHORTEST_USE_SECONDS,
    Moment,
    Schedule,
    retry_delay,
    schedule,
)

LIFETIMES = st.floats(0.2, 10 * 365 * 86400)
RATIOS = st.floats(-1, 2)
CHANCES = st.floats(0, 1, exclude_max=True)
STEPS = st.floats(-3600, 3600)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    received = Moment(draw(st.floats(1e9, 3e9)), draw(st.floats(0, 1e8)))
    chances = iter(draw(st.tuples(CHANCES, CHANCES)))
    return schedule(
        received.wall + draw(LIFETIMES),
        received,
        grace_ratio=draw(RATIOS),
        jitter_ratio=draw(RATIOS),
        rng=lambda: next(chances),
    )


@given(schedules())
def test_renewal_is_due_before_expiry(made: Schedule) -> None:
    now = Moment(made.expires, made.received.running + made.expires - made.received.wall)

    assert made.received.wall <= made.renew_wall <= made.expires + 1e-6
    assert made.seconds_to_renewal(now) < 1e-6


@given(LIFETIMES, st.floats(0, 1), st.floats(0, 1), CHANCES, CHANCES)
def test_jitter_stays_within_its_bounds(
    lifetime: float, ratio: float, jitter: float, sign: float, amount: float
) -> None:
    chances = iter((sign, amount))
    made = schedule(
        lifetime,
        Moment(0, 0),
        grace_ratio=ratio,
        jitter_ratio=jitter,
        rng=lambda: next(chances),
    )

    earliest = lifetime * (1 - min(ratio + jitter, 1))
    latest = max(lifetime * (1 - max(ratio - jitter, 0)), min(SHORTEST_USE_SECONDS, lifetime / 2))
    assert earliest - 1e-6 <= made.renew_running <= latest + 1e-6


@given(schedules(), st.floats(0, 1), STEPS)
def test_a_step_of_the_wall_clock_makes_no_renewal_late(
    made: Schedule, share: float, step: float
) -> None:
    """Late is: after the moment that was planned, as time really passes."""
    planned = made.renew_running - made.received.running
    elapsed = planned * share
    now = Moment(made.received.wall + elapsed + step, made.received.running + elapsed)

    assert elapsed + made.seconds_to_renewal(now) <= planned + 1e-6


@given(schedules(), st.floats(0, 1e8), STEPS)
def test_less_is_left_the_later_it_is(made: Schedule, seconds: float, step: float) -> None:
    now = Moment(made.received.wall + step, made.received.running)
    later = Moment(now.wall + seconds, now.running + seconds)

    assert made.seconds_to_renewal(later) <= made.seconds_to_renewal(now)
    assert made.seconds_left(later) <= made.seconds_left(now)
    assert made.is_expired(later) or not made.is_expired(now)


@given(st.integers(1, 10**9), CHANCES)
def test_retries_come_soon_and_never_at_once(failures: int, chance: float) -> None:
    assert 0.25 <= retry_delay(failures, lambda: chance) <= 1.5 * LONGEST_RETRY_SECONDS
