"""Who is asked when. Source: xds-identity-dns.md section 8.6."""

import pytest

from agent.dns.race import Failure, Race, Server, try_seconds

A, B, C = (Server(f"10.0.0.{number}") for number in (1, 2, 3))
SERVFAIL = Failure("SERVFAIL", b"reply")
REFUSED = Failure("connection refused")


def test_in_series_the_next_is_asked_when_the_last_is_silent() -> None:
    """N2d."""
    race = Race([A, B], parallel=False)

    asked = [race.start(), *(race.silent() for _ in range(4))]

    assert asked == [[A], [B], [A], [B], []]
    assert race.is_over


def test_in_series_the_next_is_asked_at_once_when_one_fails() -> None:
    """D-14."""
    race = Race([A, B, C], parallel=False)

    assert race.start() == [A]
    assert race.fail(A, SERVFAIL) == [B]
    assert race.silent() == [C]
    assert race.fail(C, REFUSED) == [B]
    assert race.silent() == []
    assert race.fallback == b"reply"
    assert race.notes == ["10.0.0.1: SERVFAIL", "10.0.0.3: connection refused"]


def test_whoever_fails_is_not_asked_again() -> None:
    race = Race([A], parallel=False)

    race.start()

    assert race.fail(A, REFUSED) == []
    assert race.is_over
    assert race.fallback is None


def test_the_first_answer_that_may_be_bettered_is_kept() -> None:
    race = Race([A, B], parallel=False)

    race.start()
    race.fail(A, SERVFAIL)
    race.fail(B, Failure("REFUSED", b"other"))

    assert race.fallback == b"reply"


def test_in_parallel_all_are_asked_at_once() -> None:
    race = Race([A, B, C], parallel=True)

    assert race.start() == [A, B, C]
    assert race.fail(B, SERVFAIL) == []
    assert race.silent() == [A, C]
    assert race.silent() == []


@pytest.mark.parametrize("parallel", [False, True])
def test_nobody_is_asked_where_there_is_nobody(parallel: bool) -> None:  # noqa: FBT001 - a parameter
    """D-12."""
    race = Race([], parallel=parallel)

    assert race.start() == []
    assert race.is_over


@pytest.mark.parametrize(
    ("total", "servers", "seconds"),
    [(5.0, 1, 0.8), (5.0, 3, 0.8), (5.0, 10, 0.5), (0.1, 1, 0.05), (0.1, 4, 0.025)],
)
def test_each_has_its_time_within_the_total(total: float, servers: int, seconds: float) -> None:
    assert try_seconds(total, servers) == pytest.approx(seconds)


def test_a_server_is_written_as_people_do() -> None:
    assert str(Server("10.0.0.1")) == "10.0.0.1"
    assert str(Server("::1", 5353)) == "::1#5353"
