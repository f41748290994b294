"""How many scrapes may go on at once.

Each holds two connections and the buffers of both, and a compressor: a quarter of a megabyte for
as long as its caller takes to read. A thousand of them were 300 MB.
"""

from collections import Counter
from typing import Final

#: A pair of Prometheus servers, an agent of the node and a person, twice.
TOTAL: Final = 8
#: One caller that reads nothing keeps no other one out.
PER_PEER: Final = 4


class Admission:
    """Counts the scrapes under way, by the address of who asked."""

    def __init__(self) -> None:
        self._peers: Counter[str] = Counter()

    def enter(self, peer: str) -> bool:
        """Return whether there is room for one more, which then `leave`s."""
        if self._peers.total() >= TOTAL or self._peers[peer] >= PER_PEER:
            return False
        self._peers[peer] += 1
        return True

    def leave(self, peer: str) -> None:
        """Give back the place of one that has entered."""
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]
