"""Replies of upstream resolvers, kept for their lifetime.

Bounded in bytes; what was not asked for longest goes first.

Source: AGENT_DNS_CACHE of docs/settings.md; RFC 2308.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from agent.dns.messages.query import HEADER, Query
from agent.dns.messages.upstream import aged, lifetime

MAX_BYTES: Final = 4_000_000
#: What an entry costs besides its reply and twice its key, about.
ENTRY_BYTES: Final = 300


class Kept(NamedTuple):
    """A reply and its times, in seconds of the same clock."""

    wire: bytes
    server: str  #: who gave it, for people
    since: float
    until: float


class Cache:
    """Replies by query."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()

    def get(self, query: Query, now: float) -> tuple[bytes, Kept] | None:
        """Return a reply, but for its id, and what it is made of."""
        key = _key(query)
        kept = self._kept.get(key)
        if kept is None:
            return None
        if now >= kept.until:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return aged(query, kept.wire, int(now - kept.since)), kept

    def put(self, query: Query, wire: bytes, server: str, now: float) -> None:
        """Keep a reply that was just received, if it says something for some time."""
        seconds = lifetime(query, wire)
        if seconds <= 0:
            return
        key = _key(query)
        self._drop(key)
        self._kept[key] = Kept(wire, server, now, now + seconds)
        self._bytes += _size(key, wire)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._bytes = 0

    def _drop(self, key: bytes) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= _size(key, kept.wire)


def _key(query: Query) -> bytes:
    """Return all of the query but its id and its letters' case: flags and EDNS matter, too."""
    name_end = query.end - 4
    wire = query.wire
    return wire[2 : HEADER.size] + wire[HEADER.size : name_end].lower() + wire[name_end:]


def _size(key: bytes, wire: bytes) -> int:
    return len(key) + len(wire) + ENTRY_BYTES
