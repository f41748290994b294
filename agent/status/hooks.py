"""What the status server asks of the rest of the agent, as plain callables."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple


class Hooks(NamedTuple):
    """The agent as its status server sees it."""

    #: Why the agent is ending, such as "received signal: terminated"; None while it is not.
    terminating: Callable[[], str | None]
    #: Further conditions of being ready, by name; each returns the reason against it, or None.
    checks: Mapping[str, Callable[[], str | None]]
    #: What does not make the pod unready but belongs beside the reason, by name.
    details: Mapping[str, Callable[[], str | None]]
    #: Ask Envoy to drain; returns when it was asked.
    drain: Callable[[], Awaitable[None]]
    #: End the agent; called when the caller has its answer.
    quit: Callable[[], None]
    #: Have scopes log from other levels on for some seconds; ValueError says what is no level.
    set_log_levels: Callable[[str, float], None] | None = None
    #: How many Envoys were started: what was true of one is not of the next.
    starts: Callable[[], int] = lambda: 1
    #: What /debug/NAME shows this pod, as JSON; it may be awaitable, or a generator of lines that
    #: are shown as they come. None: nothing to show yet. `control_plane` is a part of readiness.
    documents: Mapping[str, Callable[[], object]] = {}
