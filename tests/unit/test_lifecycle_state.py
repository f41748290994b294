import pytest

from agent.lifecycle.state import TRANSITIONS, Command, Event, State, exit_code, step

WITH_ENVOY = [
    state for state in State if state not in (State.RESTARTING, State.PROXYLESS, State.EXITED)
]


def run(*events: Event) -> tuple[State, list[Command]]:
    state = State.RUNNING
    issued: list[Command] = []
    for event in events:
        state, commands = step(state, event)
        issued += commands
    return state, issued


def test_a_signal_drains_and_then_stops_envoy() -> None:
    state, commands = run(Event.TERM_RECEIVED, Event.CONDITION_MET, Event.ENVOY_EXITED)

    assert state is State.EXITED
    assert commands == [
        Command.START_DEADLINE,
        Command.DRAIN_LISTENERS,
        Command.WATCH_CONDITION,
        Command.STOP_ENVOY,
        Command.START_STOP_TIMER,
    ]


def test_a_signal_before_envoy_is_live_drains_nothing() -> None:
    """Case S5."""
    state, commands = run(Event.TERM_BEFORE_LIVE)

    assert state is State.STOPPING
    assert Command.DRAIN_LISTENERS not in commands


def test_a_drained_native_sidecar_stops_at_its_signal() -> None:
    state, commands = run(Event.DRAIN_REQUESTED, Event.TERM_RECEIVED)

    assert state is State.STOPPING
    assert commands.count(Command.DRAIN_LISTENERS) == 1


def test_each_drain_request_asks_envoy_again() -> None:
    state, commands = run(Event.DRAIN_REQUESTED, Event.DRAIN_REQUESTED)

    assert state is State.DRAINING
    assert commands == [Command.DRAIN_LISTENERS, Command.DRAIN_LISTENERS]


@pytest.mark.parametrize("event", [Event.TERM_RECEIVED, Event.DEADLINE_REACHED])
def test_a_second_signal_or_the_deadline_stops_envoy_in_a_hurry(event: Event) -> None:
    state, commands = run(Event.TERM_RECEIVED, event)

    assert state is State.STOPPING
    assert commands[-2:] == [Command.STOP_ENVOY, Command.START_SHORT_STOP_TIMER]


@pytest.mark.parametrize("event", [Event.STOP_ELAPSED, Event.TERM_RECEIVED])
def test_an_envoy_that_does_not_stop_is_killed(event: Event) -> None:
    state, commands = run(Event.QUIT_REQUESTED, event)

    assert state is State.KILLING
    assert commands[-1] is Command.KILL_ENVOY


@pytest.mark.parametrize("state", WITH_ENVOY)
def test_envoys_end_ends_every_state(state: State) -> None:
    """Cases D21, D27."""
    assert step(state, Event.ENVOY_EXITED) == (State.EXITED, ())


@pytest.mark.parametrize("state", [each for each in WITH_ENVOY if each is not State.RUNNING])
def test_an_envoy_that_was_to_end_is_not_restarted(state: State) -> None:
    assert step(state, Event.ENVOY_CRASHED) == (State.EXITED, ())


def test_a_running_envoy_that_crashed_is_started_again() -> None:
    """Case V1."""
    state, commands = run(Event.ENVOY_CRASHED, Event.PAUSE_ELAPSED)

    assert state is State.RUNNING
    assert commands == [Command.START_PAUSE, Command.START_ENVOY]


@pytest.mark.parametrize("state", [State.RESTARTING, State.PROXYLESS])
@pytest.mark.parametrize(
    "event", [Event.TERM_RECEIVED, Event.TERM_BEFORE_LIVE, Event.QUIT_REQUESTED]
)
def test_where_there_is_no_envoy_the_end_is_at_once(state: State, event: Event) -> None:
    assert step(state, event) == (State.EXITED, ())


def test_a_pair_that_is_not_in_the_table_changes_nothing() -> None:
    assert (State.STOPPING, Event.DRAIN_REQUESTED) not in TRANSITIONS
    assert step(State.STOPPING, Event.DRAIN_REQUESTED) == (State.STOPPING, ())


@pytest.mark.parametrize(
    ("before", "status", "code"),
    [
        (State.RUNNING, 139, 139),
        (State.RUNNING, -9, 137),
        (State.RUNNING, 0, 0),
        (State.DRAINING, -11, 139),
        (State.TERMINATING, 1, 0),
        (State.STOPPING, 0, 0),
        (State.KILLING, -9, 0),
        (State.RESTARTING, 139, 0),
        (State.PROXYLESS, 0, 0),
    ],
)
def test_an_envoy_that_dies_by_itself_passes_its_code_on(
    before: State, status: int, code: int
) -> None:
    """Case V4."""
    assert exit_code(before, status) == code
