"""Asks upstream resolvers, over the transport that the client used.

Each try has a socket of its own, connected, so the kernel chooses a random source port and drops
what comes from anybody else; and an id of its own (D-15, RFC 5452).

Source: xds-identity-dns.md section 8.6.
"""

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, assert_never

import dns.rcode

from agent.dns.messages.query import MOST_BYTES, Query
from agent.dns.messages.upstream import Verdict, judge
from agent.dns.race import Address, Failure, Race, Server, Transport, try_seconds

log = logging.getLogger(__name__)

#: Nobody can guess it: ids are half of what keeps forged answers out.
CHANCE: Final = random.SystemRandom()


class Target(NamedTuple):
    """A resolver as the kernel knows it."""

    family: socket.AddressFamily
    address: Address


class Outcome(NamedTuple):
    """What came of asking upstream."""

    #: The answer with the client's id; none if there was none.
    reply: bytes | None
    #: Who gave it.
    server: Server | None
    #: What went wrong with the others, for people.
    notes: tuple[str, ...]


class Resolvers:
    """The upstream resolvers."""

    def __init__(self, *, parallel: bool, total_seconds: float) -> None:
        self._parallel = parallel
        self._total_seconds = total_seconds
        self._targets: dict[Server, Target] = {}
        #: Where our open sockets are, to know our own queries by when capture sends them to us.
        self._own: set[tuple[str, int]] = set()

    def use(self, servers: Sequence[Server]) -> None:
        """Ask these from now on; queries under way are not disturbed."""
        self._targets = {}
        for server in servers:
            try:
                found = socket.getaddrinfo(*server, flags=socket.AI_NUMERICHOST)
            except OSError as error:  # the zone of another machine
                log.warning("nameserver not used address=%s reason=%r", server, error.strerror)
            else:
                family, _, _, _, address = found[0]
                self._targets[server] = Target(family, address)  # type: ignore[arg-type]  # of IP

    def is_own(self, peer: Address) -> bool:
        """Return whether a client is this very object."""
        return (peer[0], peer[1]) in self._own

    async def ask(self, query: Query, over: Transport) -> Outcome:
        """Return the answer of the first resolver that has a good one, within the total time."""
        targets = self._targets
        race = Race(CHANCE.sample(list(targets), len(targets)), parallel=self._parallel)
        attempt = self._ask_udp if over == "udp" else self._ask_tcp
        async with asyncio.TaskGroup() as tasks:
            running = _Running(
                lambda server: tasks.create_task(_guarded(attempt(query, targets[server])))
            )
            try:
                patience = try_seconds(self._total_seconds, len(targets))
                return await self._run(race, running, query, patience)
            finally:
                running.cancel()

    async def _run(self, race: Race, running: "_Running", query: Query, patience: float) -> Outcome:
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._total_seconds
        running.begin(race.start())
        while running.servers:
            left = max(deadline - clock(), 0)
            is_last = race.is_over and race.fallback is None
            found = await running.first(left if is_last else min(patience, left))
            if found is None:
                if race.is_over or clock() >= deadline:
                    break
                running.begin(race.silent())
                continue
            server, result = found
            if isinstance(result, bytes):
                return _outcome(query, result, server, race.notes)
            running.begin(race.fail(server, result))
        notes = [*race.notes, *(f"{server}: no answer" for server in running.servers)]
        return _outcome(query, race.fallback, None, notes)

    async def _ask_udp(self, query: Query, target: Target) -> bytes | Failure:
        number = CHANCE.getrandbits(16)
        with self._socket(target, socket.SOCK_DGRAM) as sock:
            sock.connect(target.address)
            with self._known(sock):
                sock.send(number.to_bytes(2, "big") + query.tail)
                while True:
                    wire = await asyncio.get_running_loop().sock_recv(sock, MOST_BYTES)
                    verdict = judge(query, number, wire)
                    if verdict != "foreign":
                        return _result(wire, verdict)
                    # It may be forged: the true one may yet come. A flood holds nobody else up.
                    await asyncio.sleep(0)

    async def _ask_tcp(self, query: Query, target: Target) -> bytes | Failure:
        number = CHANCE.getrandbits(16)
        loop = asyncio.get_running_loop()
        with self._socket(target, socket.SOCK_STREAM) as sock:
            await loop.sock_connect(sock, target.address)
            with self._known(sock):
                message = number.to_bytes(2, "big") + query.tail
                await loop.sock_sendall(sock, len(message).to_bytes(2, "big") + message)
                size = int.from_bytes(await _receive(sock, 2), "big")
                wire = await _receive(sock, size)
                return _result(wire, judge(query, number, wire))

    @staticmethod
    def _socket(target: Target, kind: socket.SocketKind) -> socket.socket:
        return socket.socket(target.family, kind | socket.SOCK_NONBLOCK)

    @contextmanager
    def _known(self, sock: socket.socket) -> Iterator[None]:
        """Know a connected socket as our own."""
        host, port, *_ = sock.getsockname()
        self._own.add((host, port))
        try:
            yield
        finally:
            self._own.discard((host, port))


class _Running:
    """The tries under way."""

    def __init__(self, start: Callable[[Server], asyncio.Task[bytes | Failure]]) -> None:
        self._start = start
        self._tasks: dict[asyncio.Task[bytes | Failure], Server] = {}

    @property
    def servers(self) -> list[Server]:
        return list(self._tasks.values())

    def begin(self, servers: Sequence[Server]) -> None:
        for server in servers:
            self._tasks[self._start(server)] = server

    async def first(self, seconds: float) -> tuple[Server, bytes | Failure] | None:
        """Return the next result, or none within the time."""
        done, _ = await asyncio.wait(
            self._tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            return self._tasks.pop(task), task.result()
        return None

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


async def _guarded(attempt: Coroutine[Any, Any, bytes | Failure]) -> bytes | Failure:
    """Return the result of a try; what the kernel says against it is one, too."""
    try:
        return await attempt
    except OSError as error:
        return Failure((error.strerror or str(error)).lower())


async def _receive(sock: socket.socket, size: int) -> bytes:
    """Return exactly so many bytes; ConnectionError if the peer sends less."""
    received = b""
    while len(received) < size:
        piece = await asyncio.get_running_loop().sock_recv(sock, size - len(received))
        if not piece:
            raise ConnectionError("closed before its reply was complete")
        received += piece
    return received


def _result(wire: bytes, verdict: Verdict) -> bytes | Failure:
    match verdict:
        case "answer":
            return wire
        case "unhelpful":
            return Failure(dns.rcode.to_text(dns.rcode.Rcode(wire[3] & 0xF)), wire)
        case "foreign":
            return Failure("answered another question")
        case "malformed":
            return Failure("malformed reply")
        case _:
            assert_never(verdict)


def _outcome(
    query: Query, wire: bytes | None, server: Server | None, notes: Sequence[str]
) -> Outcome:
    reply = query.wire[:2] + wire[2:] if wire else None
    return Outcome(reply, server, tuple(notes))
