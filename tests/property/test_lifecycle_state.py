from hypothesis import given
from hypothesis import strategies as st

from agent.lifecycle.state import Command, Event, State, step

EVENTS = st.lists(st.sampled_from(Event), max_size=12)
STARTS_A_TIMER = {
    State.TERMINATING: {Command.START_DRAIN_TIMER},
    State.STOPPING: {Command.START_STOP_TIMER, Command.START_SHORT_STOP_TIMER},
}


@given(EVENTS)
def test_envoy_is_stopped_at_most_once_and_killed_at_most_once(events: list[Event]) -> None:
    state = State.RUNNING
    issued: list[Command] = []
    for event in events:
        state, commands = step(state, event)
        issued += commands

    assert issued.count(Command.STOP_ENVOY) <= 1
    assert issued.count(Command.KILL_ENVOY) <= 1


@given(EVENTS)
def test_whoever_waits_for_an_end_has_a_timer(events: list[Event]) -> None:
    state = State.RUNNING
    for event in events:
        before = state
        state, commands = step(before, event)
        if state is not before and state in STARTS_A_TIMER:
            assert STARTS_A_TIMER[state] & set(commands)


@given(EVENTS)
def test_envoys_end_is_final_whatever_came_before(events: list[Event]) -> None:
    state = State.RUNNING
    for event in [*events, Event.ENVOY_EXITED, *events]:
        state, _ = step(state, event)

    assert state is State.EXITED
