"""Keeps whoever may send requests from filling the log."""

from typing import Final

#: Prometheus asks every 15 seconds, the kubelet every 10: what they meet is told each time.
INTERVAL_SECONDS: Final = 5.0


class Pace:
    """Says whether a line about a thing is due: so many in each interval."""

    def __init__(self, lines: int = 1) -> None:
        self._lines = lines
        #: By thing: when its interval began, and the lines since.
        self._told: dict[str, tuple[float, int]] = {}

    def is_due(self, about: str, now: float) -> bool:
        """Return whether to say something, which is then taken as said.

        Args:
            about: names the thing; of a set that no caller can make grow.
            now: monotonic seconds.
        """
        began, lines = self._told.get(about, (now, 0))
        if now - began >= INTERVAL_SECONDS:
            began, lines = now, 0
        if lines >= self._lines:
            return False
        self._told[about] = began, lines + 1
        return True
