"""Which upstream resolver is asked when.

Theory of operation. In series, one resolver is asked at a time, in the order given; the next one
when the last has failed or has been silent for the time of one try. In parallel, all are asked at
once. Whoever is silent is asked a second time, for UDP loses packets; whoever has failed is not.
Those asked before are still listened to: the first answer wins, however late. An answer that may
be bettered, such as SERVFAIL, is what the client gets if no better one comes.

Source: xds-identity-dns.md section 8.6, deviations D-12 and D-14; cases.md N2d.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

ROUNDS: Final = 2
DNS_PORT: Final = 53
#: How long one is waited for before another is asked, too: two that are dead cost less than 2 s.
TRY_SECONDS: Final = 0.8

Transport = Literal["udp", "tcp"]
#: Of the other end of a socket: host, port, and for IPv6 two more numbers.
Address = tuple[str, int] | tuple[str, int, int, int]


class Server(NamedTuple):
    """Where a resolver listens."""

    host: str  #: an address, perhaps with a zone
    port: int = DNS_PORT

    def __str__(self) -> str:
        """Return it as people write it."""
        port = "" if self.port == DNS_PORT else f"#{self.port}"
        return f"{self.host}{port}"


class Failure(NamedTuple):
    """What came of a try that brought no good answer."""

    reason: str
    reply: bytes | None = None  #: an answer that another resolver may better


def try_seconds(total: float, servers: int) -> float:
    """Return the time of one try, such that all resolvers get theirs within the total."""
    return min(TRY_SECONDS, total / max(servers, ROUNDS))


class Race:
    """The tries of one query."""

    def __init__(self, servers: Sequence[Server], *, parallel: bool) -> None:
        self._batch = len(servers) if parallel else 1
        self._parallel = parallel
        self._queue = deque([*servers] * ROUNDS)
        self._failed: set[Server] = set()
        #: The answer if there is no better one.
        self.fallback: bytes | None = None
        #: What went wrong so far, for people.
        self.notes: list[str] = []

    def start(self) -> list[Server]:
        """Return whom to ask first; nobody if there is no resolver (D-12)."""
        return self._next()

    def silent(self) -> list[Server]:
        """Return whom to ask too, because those asked last are silent."""
        return self._next()

    def fail(self, server: Server, failure: Failure) -> list[Server]:
        """Return whom to ask instead."""
        self.notes.append(f"{server}: {failure.reason}")
        self._failed.add(server)
        if self.fallback is None:
            self.fallback = failure.reply
        return [] if self._parallel else self._next()

    @property
    def is_over(self) -> bool:
        """Nobody else would be asked."""
        return all(server in self._failed for server in self._queue)

    def _next(self) -> list[Server]:
        batch: list[Server] = []
        while self._queue and len(batch) < self._batch:
            server = self._queue.popleft()
            if server not in self._failed:
                batch.append(server)
        return batch
