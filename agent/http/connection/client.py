"""Connections of outgoing requests: where they lead, and what is spoken over them.

Source: status-lifecycle.md sections 5.3, 5.4 and 5.8.
"""

import asyncio
import functools
import socket
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import ssl  # few pods need it
    from concurrent.futures import Future, ThreadPoolExecutor

    from agent.http.http2 import Exchange
    from agent.http.tls.client import TlsStream

READ_BYTES: Final = 64 * 1024
MAX_PORT: Final = 65535
RESOLVERS: Final = 4
STAGGER_SECONDS: Final = 0.25
#: On, for one second, as the kubelet sets it.
LINGER: Final = struct.pack("ii", 1, 1)
#: At the end nothing may hold up the event loop for that second. Off: the kernel does the rest; on,
#: for no time: what is unsent is dropped, and the connection reset.
IN_BACKGROUND: Final = struct.pack("ii", 0, 0)
RESET: Final = struct.pack("ii", 1, 0)

Addresses = Sequence[tuple[socket.AddressFamily, tuple[Any, ...]]]

#: What the resolver is being asked for, by host and port.
_asked: "dict[tuple[str, int], Future[Addresses]]" = {}


class Place(NamedTuple):
    """Where a connection leads, from where, and what is spoken: it serves nothing else."""

    host: str
    port: int
    source: str | None
    tls: "ssl.SSLContext | None"


class Connection:
    """A connection of which one answer at a time is read."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._may_have_more = False
        self._tls: TlsStream | None = None
        self.exchange: Exchange | None = None  #: of HTTP/2

    async def open(self, place: Place, *, http2: bool) -> None:
        """Begin to read, and agree on what is spoken."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._sock)
        self.transport = self._writer.transport
        if place.tls:
            from agent.http.tls.client import TlsStream  # noqa: PLC0415 - few pods need it

            name = "" if _literal(place.host, 0) else place.host
            self._tls = TlsStream(self._reader, self._writer, place.tls, name)
            await self._tls.handshake()
            http2 = self._tls.protocol == "h2"
        if http2:
            from agent.http.http2 import Exchange  # noqa: PLC0415 - h2, for few connections

            self.exchange = Exchange(self.write)

    def write(self, data: bytes) -> None:
        """Send some bytes, in the background."""
        (self._tls or self._writer).write(data)

    async def read(self) -> bytes:
        """Return the next bytes, none at the end."""
        data = await (self._tls or self._reader).read(READ_BYTES)
        self._may_have_more = len(data) == READ_BYTES
        return data

    @property
    def is_quiet(self) -> bool:
        """Whether all that came was read, and it is open."""
        has_more = self._tls.may_have_more if self._tls else self._may_have_more
        return not (has_more or self._reader.at_eof() or self.transport.is_closing())

    def close(self, *, is_whole: bool = True) -> None:
        """Close it, at once where its answer is not whole."""
        if self._sock.fileno() >= 0:
            ending = IN_BACKGROUND if is_whole else RESET
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ending)
        if transport := getattr(self, "transport", None):
            transport.abort()
        self._sock.close()


async def open_connection(place: Place, *, http2: bool) -> Connection:
    """Return a new connection; OSError says why there is none."""
    connection = Connection(await connect(place.host, place.port, place.source))
    try:
        await connection.open(place, http2=http2)
    except BaseException:
        connection.close()
        raise
    return connection


async def connect(host: str, port: int, source: str | None) -> socket.socket:
    """Return a connected non-blocking socket; OSError says why there is none."""
    if not 0 < port <= MAX_PORT:
        raise OSError(f"port {port}: expected 1 to {MAX_PORT}")
    failure: OSError | None = None
    for family, address in await _addresses(host, port, source):
        try:
            return await _connect_to(family, address, source)
        except OSError as error:
            failure = failure or error
    raise failure or OSError(f"no address of the family of {source}")


async def connect_soonest(host: str, port: int) -> socket.socket:
    """Return a non-blocking socket connected to whichever address of a host answers first.

    They are tried in the resolver's order, each a quarter of a second after the one before it.

    Raises:
        OSError: none does; the text has the reason of each.
        ValueError: the host is no name that a resolver takes.

    Source: RFC 8305, section 5.
    """
    waiting = [*await _addresses(host, port, None)]
    trying: set[asyncio.Task[socket.socket]] = set()
    failures: list[str] = []
    try:
        while waiting or trying:
            if waiting:
                trying.add(asyncio.ensure_future(_connect_to(*waiting.pop(0), None)))
            limit = STAGGER_SECONDS if waiting else None
            await asyncio.wait(trying, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in trying if task.done()]:
                trying.remove(task)
                if not (error := task.exception()):
                    return task.result()
                failures.append(str(error))
    finally:
        for task in trying:
            task.add_done_callback(_close_result)
            task.cancel()
    raise OSError("; ".join(dict.fromkeys(failures)) or f"no address of {host}")


def _close_result(task: "asyncio.Task[socket.socket]") -> None:
    if not (task.cancelled() or task.exception()):
        task.result().close()


async def _connect_to(
    family: socket.AddressFamily, address: tuple[Any, ...], source: str | None
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        if source:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
            sock.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _addresses(host: str, port: int, source: str | None) -> Addresses:
    """Return where to connect to; only addresses of the source's family where one is given."""
    if host == "localhost":  # no resolver, hence no thread, for the common case
        found: Addresses = [*_literal("127.0.0.1", port), *_literal("::1", port)]
    elif not (found := _literal(host, port)):
        found = await _resolve(host, port)
    wanted = {family for family, _ in _literal(source, 0)} if source else None
    return [entry for entry in found if wanted is None or entry[0] in wanted]


async def _resolve(host: str, port: int) -> Addresses:
    """Return what the resolver answers.

    Who asks for what is being asked for waits for the same answer: where no name server answers,
    whoever tries again and again would else hold up every other name.
    """
    if (asked := _asked.get((host, port))) is None:
        asked = _asked[host, port] = _resolvers().submit(_ask, host, port)
        asked.add_done_callback(lambda _: _asked.pop((host, port)))
    return await asyncio.shield(asyncio.wrap_future(asked))


def _ask(host: str, port: int) -> Addresses:
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in answers]


@functools.cache
def _resolvers() -> "ThreadPoolExecutor":
    """Return threads of their own: one may wait for a name server for minutes.

    Those of asyncio are for others, too, and it waits for them at the end.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - few names are resolved

    return ThreadPoolExecutor(RESOLVERS, "resolver")


def _literal(host: str, port: int) -> Addresses:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return [(family, (host, port))]
    return []
