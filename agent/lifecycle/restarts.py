"""What an Envoy died of, whether another one is started, and when.

Source: cases.md V1, V3, V5 and V7; bootstrap.md section 6.2: never, unless asked to.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from agent.backoff import backoff_seconds

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 30.0
#: An Envoy that lived for so long was well: what it dies of has nothing to do with earlier deaths.
WELL_SECONDS: Final = 600.0
KILL: Final = 9


class Restarts(NamedTuple):
    """How many restarts are allowed, and how many there were."""

    allowed: int = 0  #: in a row. AGENT_ENVOY_RESTARTS.
    used: int = 0


def next_restart(
    restarts: Restarts, status: int, lived_seconds: float, rng: Callable[[], float]
) -> tuple[Restarts, float | None]:
    """Return the count after one more restart, and the pause before it; None to give up.

    An Envoy that exits with 0 was asked to, by whoever talks to its admin port.

    Args:
        restarts: the count so far.
        status: Envoy's exit code, or minus the signal that ended it.
        lived_seconds: how long it lived.
        rng: chance, in [0, 1).
    """
    used = 0 if lived_seconds >= WELL_SECONDS else restarts.used
    if status == 0 or used >= restarts.allowed:
        return restarts, None
    pause = backoff_seconds(used + 1, rng, first=FIRST_SECONDS, longest=LONGEST_SECONDS)
    return restarts._replace(used=used + 1), pause


def describe_death(status: int, oom_kills: int) -> str:
    """Return how Envoy ended, in words.

    Args:
        status: its exit code, or minus the signal that ended it.
        oom_kills: how many processes the kernel has killed meanwhile for want of memory.
    """
    if status >= 0:
        return f"exit status {status}"
    if oom_kills:
        return f"killed by signal {-status}: out of memory, says the container's cgroup"
    if status == -KILL:
        return "killed by signal 9, without a word of the container's cgroup about memory"
    return f"killed by signal {-status}"
