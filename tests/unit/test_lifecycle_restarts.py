import pytest

from agent.lifecycle.restarts import WELL_SECONDS, Restarts, describe_death, next_restart


def deaths(allowed: int, *lives: float, status: int = 139) -> list[float | None]:
    """Return the pauses after Envoys that lived for so many seconds each."""
    restarts = Restarts(allowed)
    pauses = []
    for lived in lives:
        restarts, pause = next_restart(restarts, status, lived, lambda: 0.0)
        pauses.append(pause)
    return pauses


def test_nothing_is_restarted_unless_asked_to() -> None:
    assert deaths(0, 1.0) == [None]


def test_restarts_come_later_and_later_and_have_an_end() -> None:
    """Cases V1 and V7."""
    assert deaths(3, 1, 1, 1, 1) == [0.5, 1.0, 2.0, None]


def test_an_envoy_that_was_well_has_all_restarts_again() -> None:
    assert deaths(1, 1, WELL_SECONDS, 1) == [0.5, 0.5, None]


def test_an_envoy_that_was_asked_to_exit_is_left_alone() -> None:
    assert deaths(3, 1, status=0) == [None]


def test_a_killed_envoy_is_restarted() -> None:
    assert deaths(1, 1, status=-9) == [0.5]


@pytest.mark.parametrize(
    ("status", "oom_kills", "words"),
    [
        (1, 0, "exit status 1"),
        (-11, 0, "killed by signal 11"),
        (-9, 0, "killed by signal 9, without a word of the container's cgroup about memory"),
        (-9, 1, "killed by signal 9: out of memory, says the container's cgroup"),
    ],
)
def test_a_death_is_told_in_words(status: int, oom_kills: int, words: str) -> None:
    """Case V5."""
    assert describe_death(status, oom_kills) == words
