"""Envoy's life under a clock of its own, with whatever may happen happening in any order."""

import heapq
import itertools

from hypothesis import given
from hypothesis import strategies as st

from agent.lifecycle.plan import Plan
from agent.lifecycle.state import TRANSITIONS, Command, Event, State, exit_code, step

STOP_SECONDS, HURRIED_SECONDS, PAUSE_SECONDS = 5.0, 0.5, 2.0
#: What comes from outside, at any time.
OUTSIDE = (
    *(Event.DRAIN_REQUESTED, Event.QUIT_REQUESTED, Event.TERM_RECEIVED, Event.TERM_BEFORE_LIVE),
    *(Event.ENVOY_CRASHED, Event.ENVOY_EXITED),
)
TERMS = (Event.TERM_RECEIVED, Event.TERM_BEFORE_LIVE)
TIMES = st.floats(0, 60)
HAPPENINGS = st.lists(st.tuples(TIMES, st.sampled_from(OUTSIDE)), max_size=8)
PLANS = st.builds(
    Plan,
    delay_seconds=st.floats(0, 20),
    minimum_seconds=st.floats(0, 20),
    deadline_seconds=st.floats(0, 50),
)


class Life:
    """One run of the table, as the shell would run it."""

    def __init__(
        self, plan: Plan, happenings: list[tuple[float, Event]], *, met_after: float, obeys: bool
    ) -> None:
        self.plan = plan
        self.met_after = met_after  #: seconds from the signal, if the plan lets it count then
        self.obeys = obeys  #: whether Envoy exits when it is asked
        self.now = 0.0
        self.state = State.RUNNING
        self.log: list[tuple[float, Event | None, Command]] = []
        self.ended_in: State | None = None
        self._order = itertools.count()
        self._due: list[tuple[float, int, Event]] = []
        for at, event in happenings:
            self._schedule(at, event)

    def _schedule(self, at: float, event: Event) -> None:
        heapq.heappush(self._due, (at, next(self._order), event))

    def run(self) -> "Life":
        while self._due and self.state is not State.EXITED:
            self.now, _, event = heapq.heappop(self._due)
            before = self.state
            self.state, commands = step(before, event)
            if self.state is State.EXITED:
                self.ended_in = before
            for command in commands:
                self.log.append((self.now, event, command))
                self._obey(command)
        return self

    def _obey(self, command: Command) -> None:
        plan = self.plan
        after = {
            Command.WATCH_CONDITION: (
                max(plan.watch_after_seconds, self.met_after),
                Event.CONDITION_MET,
            ),
            Command.START_DEADLINE: (plan.deadline_seconds, Event.DEADLINE_REACHED),
            Command.START_STOP_TIMER: (STOP_SECONDS, Event.STOP_ELAPSED),
            Command.START_SHORT_STOP_TIMER: (HURRIED_SECONDS, Event.STOP_ELAPSED),
            Command.START_PAUSE: (PAUSE_SECONDS, Event.PAUSE_ELAPSED),
            Command.KILL_ENVOY: (0.0, Event.ENVOY_EXITED),
        }
        if self.obeys:
            after[Command.STOP_ENVOY] = (0.0, Event.ENVOY_EXITED)
        if command in after:
            seconds, event = after[command]
            self._schedule(self.now + seconds, event)

    def times(self, command: Command) -> list[float]:
        return [at for at, _, issued in self.log if issued is command]


LIVES = st.builds(
    lambda plan, happenings, met_after, obeys: Life(
        plan, happenings, met_after=met_after, obeys=obeys
    ).run(),
    PLANS,
    HAPPENINGS,
    st.floats(0, 100),
    st.booleans(),
)


@given(LIVES)
def test_envoy_is_stopped_at_most_once_and_killed_at_most_once(life: Life) -> None:
    assert len(life.times(Command.STOP_ENVOY)) <= 1
    assert len(life.times(Command.KILL_ENVOY)) <= 1


@given(LIVES)
def test_envoy_is_killed_only_after_it_was_asked_to_stop(life: Life) -> None:
    if killed := life.times(Command.KILL_ENVOY):
        assert life.times(Command.STOP_ENVOY)[0] <= killed[0]


@given(PLANS, HAPPENINGS, TIMES)
def test_every_signal_leads_to_an_end_in_time(
    plan: Plan, happenings: list[tuple[float, Event]], at: float
) -> None:
    """Nothing waits longer than the deadline, and then for an Envoy that does not obey."""
    signals = [*happenings, (at, Event.TERM_RECEIVED)]

    life = Life(plan, signals, met_after=1e9, obeys=False).run()

    first = min(when for when, event in signals if event in TERMS)
    assert life.state is State.EXITED
    assert life.now <= first + max(plan.deadline_seconds + HURRIED_SECONDS, STOP_SECONDS)


@given(PLANS, TIMES, st.floats(0, 100))
def test_one_signal_alone_ends_envoy_when_the_plan_says_so(
    plan: Plan, at: float, met_after: float
) -> None:
    """Cases D3 and D8: not before the minimum, not after the deadline."""
    life = Life(plan, [(at, Event.TERM_RECEIVED)], met_after=met_after, obeys=True).run()

    (stopped,) = life.times(Command.STOP_ENVOY)
    planned = min(max(plan.watch_after_seconds, met_after), plan.deadline_seconds)
    assert stopped == at + planned


@given(LIVES, st.integers(-64, 255))
def test_the_exit_code_is_determined(life: Life, status: int) -> None:
    """Zero for an end that was asked for, Envoy's own for one that was not."""
    if life.ended_in is None:
        return

    code = exit_code(life.ended_in, status)

    asked = life.ended_in not in (State.RUNNING, State.DRAINING)
    assert code == (0 if asked else status if status >= 0 else 128 - status)


@given(LIVES)
def test_an_end_is_final(life: Life) -> None:
    if life.state is State.EXITED:
        assert all(step(State.EXITED, event) == (State.EXITED, ()) for event in Event)


def test_every_state_that_waits_for_an_end_has_a_timer() -> None:
    timers = {
        State.TERMINATING: {Command.START_DEADLINE},
        State.STOPPING: {Command.START_STOP_TIMER, Command.START_SHORT_STOP_TIMER},
        State.RESTARTING: {Command.START_PAUSE},
        State.KILLING: {Command.KILL_ENVOY},  # which the kernel sees to
    }
    for (before, _), (after, commands) in TRANSITIONS.items():
        if after is not before and after in timers:
            assert timers[after] & set(commands)
