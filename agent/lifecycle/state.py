"""What happens to Envoy when something happens to the pod: a table of states and events.

Theory of operation. One Envoy lives and dies with the agent. While it RUNs it may be asked to
drain, either by the native sidecar's preStop hook (DRAINING: finish old work, keep running) or
by a signal (TERMINATING: the same, with an end in sight). Whoever wants it gone leads to
STOPPING: Envoy is asked with SIGTERM, once, and only if it does not obey in time (KILLING) is
it killed. Envoy's own death ends every state at once, unless it was RUNNING and may be started
again (RESTARTING). A pod without Envoy (PROXYLESS) only waits to be told to end.

Every state that waits for an end has a timer, so that each is left within its time.

Events are facts, commands are orders; a pair that is not in the table changes nothing.

Source: bootstrap.md section 6.5 with the decisions of the specification's README.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class State(Enum):
    """Where Envoy's life stands."""

    RUNNING = "running"
    DRAINING = "draining"  #: asked by POST /drain; nobody asked for the end yet
    TERMINATING = "terminating"  #: draining, until the condition is met or the deadline is over
    STOPPING = "stopping"  #: SIGTERM was sent to Envoy
    KILLING = "killing"  #: SIGKILL was sent to Envoy
    RESTARTING = "restarting"  #: Envoy died; another one is started after a pause
    PROXYLESS = "running without Envoy"
    EXITED = "exited"


class Event(Enum):
    """What happened."""

    DRAIN_REQUESTED = "drain requested"
    QUIT_REQUESTED = "quit requested"
    TERM_RECEIVED = "termination signal received"
    TERM_BEFORE_LIVE = "termination signal received before Envoy was live"
    CONDITION_MET = "drain condition met"
    DEADLINE_REACHED = "drain deadline reached"
    STOP_ELAPSED = "Envoy did not stop in time"
    PAUSE_ELAPSED = "pause before the restart is over"
    ENVOY_CRASHED = "Envoy crashed and may be restarted"
    ENVOY_EXITED = "Envoy exited"


class Command(Enum):
    """What the shell has to do, in the order given."""

    DRAIN_LISTENERS = "drain listeners"
    WATCH_CONDITION = "watch the condition"
    START_DEADLINE = "start the deadline"
    STOP_ENVOY = "stop Envoy"
    START_STOP_TIMER = "start the stop timer"
    START_SHORT_STOP_TIMER = "start the short stop timer"
    KILL_ENVOY = "kill Envoy"
    START_PAUSE = "start the pause before a restart"
    START_ENVOY = "start Envoy"


_STOP = (State.STOPPING, (Command.STOP_ENVOY, Command.START_STOP_TIMER))
_STOP_SOON = (State.STOPPING, (Command.STOP_ENVOY, Command.START_SHORT_STOP_TIMER))
_KILL = (State.KILLING, (Command.KILL_ENVOY,))
_EXITED = (State.EXITED, ())
_DRAIN = (Command.DRAIN_LISTENERS,)

Transitions = Mapping[tuple[State, Event], tuple[State, tuple[Command, ...]]]

_WITH_ENVOY: Final[Transitions] = {
    (State.RUNNING, Event.DRAIN_REQUESTED): (State.DRAINING, _DRAIN),
    (State.RUNNING, Event.TERM_RECEIVED): (
        State.TERMINATING,
        (Command.START_DEADLINE, Command.DRAIN_LISTENERS, Command.WATCH_CONDITION),
    ),
    (State.RUNNING, Event.TERM_BEFORE_LIVE): _STOP_SOON,
    (State.RUNNING, Event.QUIT_REQUESTED): _STOP,
    (State.RUNNING, Event.ENVOY_CRASHED): (State.RESTARTING, (Command.START_PAUSE,)),
    # The application is gone once a native sidecar gets its signal: nothing is left to drain.
    (State.DRAINING, Event.DRAIN_REQUESTED): (State.DRAINING, _DRAIN),
    (State.DRAINING, Event.TERM_RECEIVED): _STOP,
    (State.DRAINING, Event.TERM_BEFORE_LIVE): _STOP,
    (State.DRAINING, Event.QUIT_REQUESTED): _STOP,
    (State.TERMINATING, Event.DRAIN_REQUESTED): (State.TERMINATING, _DRAIN),
    (State.TERMINATING, Event.CONDITION_MET): _STOP,
    (State.TERMINATING, Event.QUIT_REQUESTED): _STOP,
    # Whoever has a deadline, or sends a second signal, has waited long enough.
    (State.TERMINATING, Event.DEADLINE_REACHED): _STOP_SOON,
    (State.TERMINATING, Event.TERM_RECEIVED): _STOP_SOON,
    (State.TERMINATING, Event.TERM_BEFORE_LIVE): _STOP_SOON,
    (State.STOPPING, Event.TERM_RECEIVED): _KILL,
    (State.STOPPING, Event.TERM_BEFORE_LIVE): _KILL,
    (State.STOPPING, Event.STOP_ELAPSED): _KILL,
    (State.STOPPING, Event.DEADLINE_REACHED): (
        State.STOPPING,
        (Command.START_SHORT_STOP_TIMER,),
    ),
}
_WITHOUT_ENVOY: Final[Transitions] = {
    (State.RESTARTING, Event.DRAIN_REQUESTED): (State.RESTARTING, _DRAIN),
    (State.RESTARTING, Event.PAUSE_ELAPSED): (State.RUNNING, (Command.START_ENVOY,)),
} | {
    (state, event): _EXITED
    for state in (State.RESTARTING, State.PROXYLESS)
    for event in (Event.TERM_RECEIVED, Event.TERM_BEFORE_LIVE, Event.QUIT_REQUESTED)
}
TRANSITIONS: Final[Transitions] = {
    (state, event): _EXITED
    for state in State
    for event in (Event.ENVOY_CRASHED, Event.ENVOY_EXITED)
    if state not in (State.RESTARTING, State.PROXYLESS, State.EXITED)
} | {**_WITH_ENVOY, **_WITHOUT_ENVOY}

#: States in which Envoy's death is its own doing, so that its exit code is passed on.
ON_ITS_OWN: Final = frozenset((State.RUNNING, State.DRAINING))


def step(state: State, event: Event) -> tuple[State, tuple[Command, ...]]:
    """Return the next state and what to do on the way there."""
    return TRANSITIONS.get((state, event), (state, ()))


def exit_code(before: State, envoy_status: int) -> int:
    """Return the agent's exit code.

    Args:
        before: the state in which Envoy was when it ended.
        envoy_status: its exit code, or minus the signal that ended it.

    Source: the specification's README: an Envoy that dies by itself gives the agent its own
    exit code, 128 + signal when it was signalled; an end that was asked for is 0.
    """
    if before not in ON_ITS_OWN:
        return 0
    return 128 - envoy_status if envoy_status < 0 else envoy_status
