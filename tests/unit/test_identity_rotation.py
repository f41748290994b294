"""When certificates are renewed. Source: xds-identity-dns.md sections 4.7 and 5.7."""

import random
import statistics

import pytest

from agent.identity.rotation import Moment, Schedule, renewal_delay, retry_delay, schedule

NOW = Moment(wall=1_000_000.0, running=5_000.0)
DAY = 86_400.0


def plan(
    lifetime: float = DAY, *, ratio: float = 0.5, jitter: float = 0.0, seed: int = 0
) -> Schedule:
    return schedule(
        NOW.wall + lifetime,
        NOW,
        grace_ratio=ratio,
        jitter_ratio=jitter,
        rng=random.Random(seed).random,  # noqa: S311 - chance, no secret
    )


def after(seconds: float, *, step: float = 0.0) -> Moment:
    """Return the moment after some seconds, with a wall clock set forward by a step."""
    return Moment(NOW.wall + seconds + step, NOW.running + seconds)


@pytest.mark.parametrize(
    ("lifetime", "grace", "delay"),
    [(-1, 0.5, 0), (3600, 0.5, 1800), (3600, 0.25, 2700), (3600, 1, 0), (3600, 0, 3600)],
)
def test_renewal_comes_at_a_share_of_the_lifetime(
    lifetime: float, grace: float, delay: float
) -> None:
    """T-C1."""
    assert renewal_delay(lifetime, grace) == delay


@pytest.mark.parametrize("lifetime", [2, 10, 60, DAY])
def test_any_lifetime_is_renewed_in_its_middle(lifetime: float) -> None:
    """C12."""
    assert plan(lifetime).seconds_to_renewal(NOW) == lifetime / 2
    assert plan(lifetime).seconds_to_renewal(after(lifetime / 2)) == 0


def test_a_ratio_of_one_does_not_flood_the_ca() -> None:
    assert plan(DAY, ratio=1).seconds_to_renewal(NOW) == 1
    assert plan(0.5, ratio=1).seconds_to_renewal(NOW) == 0.25


def test_jitter_spreads_what_started_together() -> None:
    """T-C2, C11."""
    delays = [plan(3600, ratio=1, jitter=0.5, seed=seed).renew_wall for seed in range(1000)]

    spread = [delay - NOW.wall for delay in delays]
    assert 1 <= min(spread) < 60
    assert 1700 < max(spread) <= 1800
    assert statistics.stdev(spread) > 300


@pytest.mark.parametrize(
    ("step", "elapsed", "due"),
    [(0, DAY / 2 - 1, False), (3600, DAY / 2 - 3600, True), (-3600, DAY / 2, True),
     (3600, DAY / 2 - 3601, False), (-3600, DAY / 2 - 1, False)],
)  # fmt: skip
def test_a_step_of_the_clock_never_makes_renewal_late(
    step: float,
    elapsed: float,
    due: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    assert (plan().seconds_to_renewal(after(elapsed, step=step)) == 0) is due


def test_what_is_left_is_a_matter_of_the_wall_clock() -> None:
    made = plan()

    assert made.seconds_left(after(10, step=3600)) == DAY - 3610
    assert not made.is_expired(after(DAY - 1))
    assert made.is_expired(after(DAY))
    assert made.is_expired(after(DAY - 3600, step=3600))


def test_the_last_quarter_is_alarming() -> None:
    made = plan()

    assert not made.is_alarming(after(DAY * 0.75))
    assert made.is_alarming(after(DAY * 0.75 + 1))


def test_retries_grow_and_then_stay() -> None:
    delays = [retry_delay(failures, lambda: 0.5) for failures in (1, 2, 3, 12, 13, 10_000)]

    assert delays == [0.5, 0.75, 1.125, pytest.approx(43.2488, abs=1e-3), 60, 60]
    assert (retry_delay(1, lambda: 0.0), retry_delay(100, lambda: 1.0)) == (0.25, 90)
