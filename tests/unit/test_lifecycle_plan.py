from itertools import cycle

import pytest

from agent.lifecycle.plan import (
    LONGEST_SECONDS,
    Plan,
    describe,
    draw,
    parse_plan,
    plan_document,
)
from agent.reader import Reader


def plan(termination_seconds: float = 5.0, **environ: str) -> Plan:
    read = Reader(environ)
    found = parse_plan(read, termination_seconds=termination_seconds)
    assert read.warnings == []
    return found


def warnings(**environ: str) -> list[str]:
    read = Reader(environ)
    parse_plan(read, termination_seconds=5.0)
    return read.warnings


def test_by_default_a_drain_takes_five_seconds() -> None:
    found = plan()

    assert found[:5] == ("duration", 0, 5, LONGEST_SECONDS, 0)
    assert {source.partition(",")[0] for source in found.sources.values()} == {"default"}


def test_the_fixed_duration_is_that_of_the_proxy_config() -> None:
    """Case D2."""
    found = plan(30)

    assert (found.watch_after_seconds, found.sources["minimum"]) == (30, "terminationDrainDuration")


def test_the_minimum_of_the_fixed_duration_is_itself() -> None:
    assert plan(MINIMUM_DRAIN_DURATION="60s").minimum_seconds == 5


def test_exit_on_zero_counts_connections() -> None:
    found = plan(EXIT_ON_ZERO_ACTIVE_CONNECTIONS="true", MINIMUM_DRAIN_DURATION="30s")

    assert found[:4] == ("connections", 0, 30, LONGEST_SECONDS)
    assert found.sources["condition"] == "EXIT_ON_ZERO_ACTIVE_CONNECTIONS"


def test_minimum_and_duration_are_both_honoured_where_connections_are_counted() -> None:
    """Case D3."""
    found = plan(30, EXIT_ON_ZERO_ACTIVE_CONNECTIONS="true", MINIMUM_DRAIN_DURATION="10s")

    assert (found.watch_after_seconds, found.deadline_seconds) == (10, 30)
    assert found.sources["deadline"] == "terminationDrainDuration"


def test_a_deadline_of_its_own_stands_in_for_the_duration() -> None:
    found = plan(30, AGENT_EXIT_ON="requests", AGENT_DRAIN_DEADLINE="2m")

    assert (found.deadline_seconds, found.sources["deadline"]) == (120, "AGENT_DRAIN_DEADLINE")


@pytest.mark.parametrize(
    ("asked", "condition"),
    [
        ("duration", "duration"),
        ("connections", "connections"),
        ("requests", "requests"),
        ("app", "app"),
    ],
)
def test_a_condition_is_chosen_by_name(asked: str, condition: str) -> None:
    found = plan(AGENT_EXIT_ON=asked, EXIT_ON_ZERO_ACTIVE_CONNECTIONS="true")

    assert (found.condition, found.sources["condition"]) == (condition, "AGENT_EXIT_ON")


def test_the_grace_period_leaves_time_for_the_end() -> None:
    """Case D4: grace=60, drain=45."""
    assert plan(45, AGENT_TERMINATION_GRACE_PERIOD="60").watch_after_seconds == 45
    found = plan(AGENT_EXIT_ON="app", AGENT_TERMINATION_GRACE_PERIOD="60s")
    assert found.deadline_seconds == 57
    assert found.sources["deadline"] == "AGENT_TERMINATION_GRACE_PERIOD"


@pytest.mark.parametrize(("grace", "deadline"), [("4", 2), ("0", 0), ("90", 30)])
def test_the_earlier_of_deadline_and_grace_period_counts(grace: str, deadline: float) -> None:
    found = plan(
        AGENT_EXIT_ON="app",
        MINIMUM_DRAIN_DURATION="0s",
        AGENT_DRAIN_DEADLINE="30s",
        AGENT_TERMINATION_GRACE_PERIOD=grace,
    )

    assert found.deadline_seconds == deadline


def test_a_deadline_that_leaves_no_time_wins_and_is_told() -> None:
    read = Reader({"AGENT_DRAIN_DELAY": "10s", "AGENT_TERMINATION_GRACE_PERIOD": "30"})

    found = parse_plan(read, termination_seconds=45)

    (warning,) = read.warnings
    assert warning == (
        "the deadline of 27s (AGENT_TERMINATION_GRACE_PERIOD) leaves no time for a drain of at"
        " least 45s (terminationDrainDuration) after 10s (AGENT_DRAIN_DELAY); the deadline wins"
    )
    assert (found.drain_after_seconds, found.watch_after_seconds) == (10, 27)


def test_a_drain_is_put_off_no_longer_than_the_deadline() -> None:
    assert Plan(delay_seconds=10, deadline_seconds=4).drain_after_seconds == 4


def test_the_delay_comes_before_the_duration() -> None:
    """Cases D12 and D30."""
    found = plan(AGENT_DRAIN_DELAY="5s")

    assert (found.drain_after_seconds, found.watch_after_seconds) == (5, 10)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("AGENT_EXIT_ON", "never", "expected one of duration, connections, requests, app"),
        ("AGENT_DRAIN_DELAY", "-1s", "expected a duration from 0s to 24h"),
        ("MINIMUM_DRAIN_DURATION", "5", "expected a duration such as '5s' or '300ms'"),
        ("AGENT_DRAIN_DEADLINE", "25h", "expected a duration from 0s to 24h"),
        ("AGENT_TERMINATION_GRACE_PERIOD", "soon", "expected a duration such as"),
        ("AGENT_DRAIN_JITTER", "100%", "expected a share from 0% up to 100%"),
        ("AGENT_DRAIN_JITTER", "nan", "expected a share from 0% up to 100%"),
        ("AGENT_DRAIN_JITTER", "some", "expected a number"),
        ("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "yes", "expected 'true' or 'false'"),
    ],
)
def test_an_unusable_value_is_told_and_leaves_the_default(
    name: str, text: str, expected: str
) -> None:
    (warning,) = warnings(**{name: text})

    assert warning.startswith(f"{name}={text!r}: {expected}")
    assert parse_plan(Reader({name: text}), termination_seconds=5) == plan()


@pytest.mark.parametrize("text", ["25%", "0.25"])
def test_a_share_is_written_either_way(text: str) -> None:
    assert plan(AGENT_DRAIN_JITTER=text).jitter_ratio == 0.25


def ends(of: Plan) -> list[float]:
    """Return the last moment of each of 100 plans whose chances are spread evenly."""
    chances = cycle(number / 100 for number in range(100))
    drawn = [draw(of, lambda: next(chances)) for _ in range(100)]
    field = "watch_after_seconds" if of.condition == "duration" else "deadline_seconds"
    return [getattr(each, field) for each in drawn]


def test_jitter_spreads_the_fixed_duration_both_ways() -> None:
    """Case D28."""
    found = ends(plan(20, AGENT_DRAIN_JITTER="25%"))

    assert max(found) - min(found) >= 0.4 * 20
    assert min(found) == pytest.approx(15, abs=0.2)
    assert max(found) == pytest.approx(25)


def test_jitter_never_passes_the_deadline_nor_gathers_there() -> None:
    found = ends(plan(20, AGENT_DRAIN_JITTER="25%", AGENT_TERMINATION_GRACE_PERIOD="25"))

    assert max(found) == 22
    assert found.count(22) == 1


def test_jitter_moves_the_deadline_of_a_condition_but_not_its_minimum() -> None:
    found = ends(plan(AGENT_EXIT_ON="app", AGENT_DRAIN_DEADLINE="20s", AGENT_DRAIN_JITTER="50%"))

    assert min(found) == pytest.approx(20 / 3, abs=0.2)
    assert max(found) == 20
    tight = plan(AGENT_EXIT_ON="app", AGENT_DRAIN_DEADLINE="6s", AGENT_DRAIN_JITTER="50%")
    assert min(ends(tight)) == 5


def test_without_jitter_nothing_is_left_to_chance() -> None:
    assert draw(plan(), lambda: 0.5) == plan()


def test_the_plan_is_told_in_one_line() -> None:
    found = plan(EXIT_ON_ZERO_ACTIVE_CONNECTIONS="1", AGENT_TERMINATION_GRACE_PERIOD="60")

    assert describe(found) == (
        "condition=connections (EXIT_ON_ZERO_ACTIVE_CONNECTIONS) delay=0s (default)"
        " minimum=5s (default) deadline=57s (AGENT_TERMINATION_GRACE_PERIOD) jitter=0% (default)"
    )


def test_the_plan_is_shown_with_its_sources() -> None:
    assert plan_document(plan(30, AGENT_DRAIN_JITTER="25%")) == {
        "condition": {"value": "duration", "from": "default"},
        "delay_seconds": {"value": 0, "from": "default"},
        "minimum_seconds": {"value": 30, "from": "terminationDrainDuration"},
        "deadline_seconds": {
            "value": LONGEST_SECONDS,
            "from": "default, without AGENT_TERMINATION_GRACE_PERIOD",
        },
        "jitter_ratio": {"value": 0.25, "from": "AGENT_DRAIN_JITTER"},
    }
