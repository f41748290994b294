"""When the next stream to the control plane may begin: a fleet must not come back as one.

Theory of operation. The agent opens a stream only when Envoy does, and Envoy waits before it comes
back: a random time below 500 ms after a stream that was answered, a bound that doubles up to 30
seconds with each that was not. To that the agent adds what Envoy does not know. When a control
plane restarts, all streams end together, and half a second is too narrow for all of them; those of
them that fail while it is away fail together, too, so the more of them, the wider. One that dies of
what it is asked for answers, and ends all streams again: a stream is a good one, after which none
has failed, only once it has lasted. And a control plane that says RESOURCE_EXHAUSTED asks for time:
it gets the base at least, and the more the more often it says so in a row.

Source: xds-identity-dns.md section 2.11; cases.md X5.
"""

from collections.abc import Callable
from typing import Final

from agent.xds.endings import RESOURCE_EXHAUSTED

#: Of streams that have ended together, and as much more for each that fails then. Envoy goes on
#: with what it has meanwhile.
SPREAD_SECONDS: Final = 1.0
WIDEST_SECONDS: Final = 10.0
#: A stream that was answered, and has lasted for so long, is a good one.
STEADY_SECONDS: Final = 10.0
#: For who is asked for time.
BASE_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
#: A power of two beyond it would exceed the longest delay anyway.
LAST_DOUBLING: Final = 8


class Pace:
    """The delays of one agent."""

    def __init__(self, rng: Callable[[], float]) -> None:
        """Begin without any; `rng` gives chance, in [0, 1)."""
        self._rng = rng
        self._begins_at = 0.0
        self._began_at = 0.0
        self._is_answered = False
        self._ended = 0  #: streams, the last good one and those after it

    def began(self, now: float) -> None:
        """Take note that a stream begins."""
        self._began_at = now
        self._is_answered = False

    def answered(self) -> None:
        """Take note of a response on the current stream."""
        self._is_answered = True

    def ended(self, code: int, now: float) -> None:
        """Take note of how the control plane has ended a stream.

        Args:
            code: gRPC's.
            now: seconds, on any clock.
        """
        is_good = self._is_answered and now - self._began_at >= STEADY_SECONDS
        self._ended = 1 if is_good else self._ended + 1
        if code == RESOURCE_EXHAUSTED:
            doubled = BASE_SECONDS * 2.0 ** min(self._ended, LAST_DOUBLING)
            longest = min(doubled, LONGEST_SECONDS)
            delay = BASE_SECONDS + self._rng() * (longest - BASE_SECONDS)
        else:
            delay = self._rng() * min(self._ended * SPREAD_SECONDS, WIDEST_SECONDS)
        self._begins_at = now + delay

    def delay(self, now: float) -> float:
        """Return the seconds until a stream may begin, zero if it may now."""
        return max(self._begins_at - now, 0.0)
