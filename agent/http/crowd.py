"""Who is connected, what each is doing, and who goes where there is room for no more.

One of whoever has the most connections goes, so that nobody pushes out anybody but themselves. Of
theirs, those go first whom we wait for, be it for a request or until they read an answer, and those
who may be gone; then those who wait for us; in either group the one that has been at it longest.
"""

from typing import Generic, TypeVar

T = TypeVar("T")

WAITED_FOR, BUSY = range(2)


class Crowd(Generic[T]):
    """Members by their peers' addresses, those of a group in the order in which they joined it."""

    def __init__(self) -> None:
        self._peers: dict[str, tuple[dict[T, None], dict[T, None]]] = {}
        self._homes: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._homes)

    def add(self, member: T, peer: str) -> None:
        """Have a member that we wait for."""
        self._homes[member] = peer
        self._peers.setdefault(peer, ({}, {}))[WAITED_FOR][member] = None

    def move(self, member: T, group: int) -> None:
        """Have a member in one group alone, as its latest; one that is gone stays so."""
        if member in self._homes:
            groups = self._peers[self._homes[member]]
            for each in groups:
                each.pop(member, None)
            groups[group][member] = None

    def remove(self, member: T) -> None:
        """Forget a member, if it is one."""
        if member not in self._homes:
            return
        peer = self._homes.pop(member)
        groups = self._peers[peer]
        for each in groups:
            each.pop(member, None)
        if not any(groups):
            del self._peers[peer]

    def members(self) -> list[T]:
        """Return all of them."""
        return list(self._homes)

    def first_to_go(self) -> T:
        """Return who makes room; there must be somebody."""
        waited_for, busy = max(self._peers.values(), key=lambda groups: sum(map(len, groups)))
        return next(iter(waited_for or busy))
