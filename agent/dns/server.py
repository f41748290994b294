"""Listens for queries: UDP and TCP, both families.

Source: xds-identity-dns.md section 8.2; RFC 7766.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Final

from agent.dns.race import Address, Server, Transport
from agent.errors import SystemRefusedError

log = logging.getLogger(__name__)

MAX_BYTES: Final = 65535
#: Datagrams taken before others get their turn.
BATCH: Final = 64
#: For a burst; the kernel grants what it allows.
RECEIVE_BUFFER_BYTES: Final = 1 << 20
#: Of a TCP connection: time for its first query, and between any two; queries altogether.
FIRST_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 8.0
MAX_QUERIES: Final = 128
#: Connections at the same time; any more are closed again.
MAX_CONNECTIONS: Final = 256
BACKLOG: Final = 128
#: What a host name stands for.
HOSTS: Final = {"localhost": ("127.0.0.1", "::1"), "": ("0.0.0.0", "::")}  # noqa: S104 - as asked
NO_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
#: How often a free port is looked for that is free for TCP, too.
PORT_TRIES: Final = 10

#: Returns the reply, or none at all, or what to wait for.
Answer = Callable[[bytes, Address, Transport], bytes | Coroutine[Any, Any, bytes] | None]


@asynccontextmanager
async def listening(host: str, port: int, answer: Answer) -> AsyncIterator[list[Server]]:
    """Serve until the block is left; yield where.

    Args:
        host: an address, a name, '' for all addresses, or 'localhost' for both loopback ones.
        port: for both transports, 0 for any that is free.
        answer: called with each query.

    Raises:
        SystemRefusedError: an address is taken, or not ours.
    """
    pairs = _bind(host, port)
    group = asyncio.TaskGroup()
    await group.__aenter__()
    tasks = _Tasks(group)
    with ExitStack() as stack:
        try:
            for udp, tcp in pairs:
                stack.enter_context(_UdpServer(udp, answer, tasks).serving())
                server = await asyncio.start_server(_TcpServer(answer, tasks).accept, sock=tcp)
                stack.callback(server.close)
            yield [Server(*udp.getsockname()[:2]) for udp, _ in pairs]
        finally:
            stack.close()
            tasks.cancel()
            # Without the error that ends the block: it is not one of these tasks'.
            await group.__aexit__(None, None, None)


class _Tasks:
    """Queries and connections under way; one that fails is logged and harms no other."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(self._logged(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        for task in self._running:
            task.cancel()

    async def _logged(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            log.exception("a query could not be handled")


class _UdpServer:
    """Answers datagrams, straight from the socket.

    A transport of asyncio takes one datagram per turn of the loop.
    """

    def __init__(self, sock: socket.socket, answer: Answer, tasks: _Tasks) -> None:
        self._sock = sock
        self._answer = answer
        self._tasks = tasks
        self._buffer = memoryview(bytearray(MAX_BYTES))

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Answer until the block is left."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._sock, self._read)
        try:
            yield
        finally:
            loop.remove_reader(self._sock)
            self._sock.close()

    def _read(self) -> None:
        for _ in range(BATCH):
            try:
                size, peer = self._sock.recvfrom_into(self._buffer)
            except OSError:  # nothing more to read
                return
            reply = self._answer(bytes(self._buffer[:size]), peer, "udp")
            if isinstance(reply, bytes):
                self._send(reply, peer)
            elif reply is not None:
                self._tasks.start(self._finish(reply, peer))

    def _send(self, reply: bytes, peer: Address) -> None:
        with suppress(OSError):  # a full buffer, or nobody there: datagrams may get lost
            self._sock.sendto(reply, peer)

    async def _finish(self, pending: Coroutine[Any, Any, bytes], peer: Address) -> None:
        self._send(await pending, peer)


class _TcpServer:
    """Answers the queries of each connection as they are ready, in any order (RFC 7766)."""

    def __init__(self, answer: Answer, tasks: _Tasks) -> None:
        self._answer = answer
        self._tasks = tasks
        self._connections = 0

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= MAX_CONNECTIONS:
            writer.close()
            return
        self._connections += 1
        self._tasks.start(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        try:
            async with asyncio.TaskGroup() as pending:
                with suppress(OSError, EOFError, TimeoutError):
                    for number in range(MAX_QUERIES):
                        patience = IDLE_SECONDS if number else FIRST_SECONDS
                        async with asyncio.timeout(patience):
                            wire = await _read_message(reader)
                        reply = self._answer(wire, peer, "tcp")
                        if isinstance(reply, bytes):
                            await _write_message(writer, reply)
                        elif reply is not None:
                            pending.create_task(_finish(reply, writer))
        finally:
            self._connections -= 1
            writer.close()


async def _finish(pending: Coroutine[Any, Any, bytes], writer: asyncio.StreamWriter) -> None:
    reply = await pending
    with suppress(OSError, TimeoutError):
        await _write_message(writer, reply)


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(2), "big")
    return await reader.readexactly(size)


async def _write_message(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(len(message).to_bytes(2, "big") + message)
    async with asyncio.timeout(IDLE_SECONDS):
        await writer.drain()


def _bind(host: str, port: int) -> list[tuple[socket.socket, socket.socket]]:
    """Return UDP and TCP sockets for each address of the host.

    Of several addresses, those of a family that the kernel does not have are left out.
    """
    hosts = HOSTS.get(host, (host,))
    for last in (False,) * (PORT_TRIES - 1) + (True,):
        with ExitStack() as stack:
            try:
                pairs = _bind_all(hosts, port, stack)
            except OSError as error:
                if port == 0 and error.errno == errno.EADDRINUSE and not last:
                    continue  # free for one transport, but not for the other
                raise _refused(host, port, error) from error
            stack.pop_all()
            return pairs
    raise AssertionError("unreachable: the last try returns or raises")


def _bind_all(
    hosts: Sequence[str], port: int, stack: ExitStack
) -> list[tuple[socket.socket, socket.socket]]:
    pairs = []
    missing: OSError | None = None
    for host in hosts:
        try:
            udp = stack.enter_context(_bound(host, port, socket.SOCK_DGRAM))
        except OSError as error:
            if len(hosts) == 1 or error.errno not in NO_FAMILY:
                raise
            missing = error
            continue
        port = udp.getsockname()[1]
        pairs.append((udp, stack.enter_context(_bound(host, port, socket.SOCK_STREAM))))
    if missing and not pairs:
        raise missing
    return pairs


def _bound(host: str, port: int, kind: socket.SocketKind) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=kind)[0]
    sock = socket.socket(family, kind | socket.SOCK_NONBLOCK)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        sock.bind(address)
        if kind == socket.SOCK_STREAM:
            sock.listen(BACKLOG)  # it is only now that a second holder of the port is refused
    except OSError:
        sock.close()
        raise
    return sock


def _refused(host: str, port: int, error: OSError) -> SystemRefusedError:
    reason = (os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)).lower()
    hint = f"; find its holder with 'ss -lnptu sport = :{port}'"
    return SystemRefusedError(
        f"DNS proxy on {host}:{port}: {reason}" + (hint if error.errno == errno.EADDRINUSE else "")
    )
