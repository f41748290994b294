"""Who is connected, what each is doing, and who goes where there is room for no more.

The order of going: those that have not asked, then those that do not read their answer, then those
whose answer is being made; in each group the one that has been at it longest. So a newcomer always
gets in, and whoever is answered soon is never the oldest, whatever other clients do.
"""

from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")

WAITING, STALLED, BUSY = range(3)


class Crowd(Generic[T]):
    """Members in groups, each group in the order in which they joined it."""

    def __init__(self) -> None:
        self._groups: tuple[dict[T, None], ...] = ({}, {}, {})

    def __len__(self) -> int:
        return sum(map(len, self._groups))

    def put(self, member: T, group: int) -> None:
        """Have a member in one group alone, as its latest."""
        self.remove(member)
        self._groups[group][member] = None

    def remove(self, member: T) -> None:
        """Forget a member, if it is one."""
        for group in self._groups:
            group.pop(member, None)

    def members(self, *groups: int) -> list[T]:
        """Return those in some groups, or all of them, in their order of going."""
        return list(chain.from_iterable(self._groups[group] for group in groups or range(3)))

    def first_to_go(self) -> T:
        """Return who makes room; there must be somebody."""
        return next(chain.from_iterable(self._groups))
