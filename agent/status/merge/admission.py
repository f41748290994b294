"""How many scrapes may go on at once, and what they may hold together.

Each holds two connections and the buffers of both, and a compressor: a quarter of a megabyte for
as long as its caller takes to read. A thousand of them were 300 MB.
"""

from collections import Counter
from typing import Final, Self

#: A pair of Prometheus servers, an agent of the node and a person, twice.
TOTAL: Final = 8
#: One caller that reads nothing keeps no other one out.
PER_PEER: Final = 4
#: Pages of the application that are collected, of all scrapes: three of the largest.
HELD_BYTES: Final = 32 * 1024 * 1024


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


class Budget:
    """Bytes that may be held, by all who share it."""

    def __init__(self, total: int = HELD_BYTES) -> None:
        self.left = total


class Held:
    """What is held of one page, until its block is left."""

    def __init__(self, budget: Budget) -> None:
        self.body = bytearray()
        self._budget = budget
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Have room for others again."""
        self._budget.left += self._size
        self._size = 0
        self.body.clear()

    def add(self, piece: bytes) -> bool:
        """Hold some more, and return whether there was room for it."""
        if len(piece) > self._budget.left:
            return False
        self._budget.left -= len(piece)
        self._size += len(piece)
        self.body += piece
        return True
