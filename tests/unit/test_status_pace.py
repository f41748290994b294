"""How often a thing is said."""

from agent.status.pace import INTERVAL_SECONDS, Pace


def test_a_thing_is_said_once_in_each_interval() -> None:
    pace = Pace()

    said = [pace.is_due("x", now) for now in (100, 100, 104.9, 100 + INTERVAL_SECONDS, 106)]

    assert said == [True, False, False, True, False]


def test_it_may_be_said_more_often() -> None:
    pace = Pace(lines=3)

    assert [pace.is_due("x", now) for now in (0, 1, 2, 3, 5, 6)] == [True] * 3 + [False] + [
        True
    ] * 2


def test_things_do_not_silence_each_other() -> None:
    pace = Pace()

    assert pace.is_due("x", 0)
    assert pace.is_due("y", 0)
