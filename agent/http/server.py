"""An HTTP/1.1 server for a handful of small endpoints: asyncio transports, httptools' parser.

One task per connection takes a request, calls the handler and writes the reply, so pipelined
requests are answered in order. What arrives meanwhile is held unparsed, so the end of the
connection is noticed while a handler works, and a client cannot queue more than a few requests.
The write buffer's limit is zero: a piece of a reply is made when the kernel took the one before.

What one connection may hold, times how many there may be, is what all clients together can make
this process grow by: 256 of 64 KiB. A newcomer takes the place of another one (crowd.py).

Source: performance.md, decision 7; status-lifecycle.md sections 3.1 and 3.3.
"""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final, NamedTuple, cast

from agent.http import parser
from agent.http.crowd import BUSY, WAITED_FOR, Crowd
from agent.http.message import Headers, Reply, Request, frame, refusal, render_head
from agent.http.parser import Refusal, RequestParser
from agent.http.port.server import bind

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Reply]]

#: Held of what arrives while a request is answered; beyond it the client is made to wait.
HELD_BYTES: Final = 16 * 1024
#: Read at once; asyncio's own 256 KiB would be held by every client that sends ahead.
READ_BYTES: Final = 16 * 1024
#: Written at once.
WRITE_BYTES: Final = 64 * 1024
#: In one turn of the loop. As many as there may be would push out each other, unheard.
ACCEPTED_AT_ONCE: Final = 32
#: Connections that the kernel keeps for us.
BACKLOG: Final = 511
#: An answer to a client that closed its side may take this long; it may be gone altogether.
HALF_CLOSED_SECONDS: Final = 10.0
#: How long to take in what a refused client still sends; a reset could overtake the refusal.
LINGER_SECONDS: Final = 1.0


class Limits(NamedTuple):
    """What clients may cost."""

    request: parser.Limits = parser.Limits()
    connections: int = 256
    #: From a request's first byte, or the connection's start, to the request's last byte.
    read_seconds: float = 15.0
    #: Given to a client to take WRITE_BYTES of a reply.
    stall_seconds: float = 15.0
    #: Given to replies that are under way when the server closes.
    close_seconds: float = 1.0


class GoneError(Exception):
    """A client is not there any more, or does not read its reply."""


@asynccontextmanager
async def listening(
    handle: Handler,
    *,
    port: int,
    name: str,
    common: Headers = (),
    limits: Limits = Limits(),  # noqa: B008 -- immutable
) -> AsyncIterator[int]:
    """Serve on all addresses until the block is left; yield the port, of use where it was 0.

    Args:
        handle: called for each request; what it raises is logged and answered with 500.
        port: to listen on, 0 for any.
        name: of this server, for messages.
        common: headers that every response gets, refusals too.
        limits: of clients.

    Raises:
        SystemRefusedError: the port is taken, or may not be used.
    """
    sock = bind(port, name)
    tasks = asyncio.TaskGroup()
    await tasks.__aenter__()
    state = _Server(handle, tasks, common, limits)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Connection(state), sock=sock, backlog=ACCEPTED_AT_ONCE
    )
    sock.listen(BACKLOG)  # the kernel was told the same number
    try:
        yield sock.getsockname()[1]
    finally:
        server.close()
        await state.close()
        # Without the error that ends the block: it is not one of these tasks'.
        await tasks.__aexit__(None, None, None)


class _Server:
    """What the connections of one server share."""

    def __init__(
        self, handle: Handler, tasks: asyncio.TaskGroup, common: Headers, limits: Limits
    ) -> None:
        self.handle = handle
        self.tasks = tasks
        self.limits = limits
        self.is_closing = False
        self.crowd: Crowd[_Connection] = Crowd()
        #: What was just received, copied before the next one is.
        self.received = memoryview(bytearray(READ_BYTES))
        self._common = common
        self._all_gone = asyncio.Event()
        self._date = (0, "")

    def add(self, connection: "_Connection") -> None:
        """Admit a connection, if need be in place of another one."""
        if len(self.crowd) >= self.limits.connections:
            self.crowd.first_to_go().drop()
        self.crowd.add(connection, connection.peer)

    def remove(self, connection: "_Connection") -> None:
        """Forget a connection."""
        self.crowd.remove(connection)
        if self.is_closing and not self.crowd:
            self._all_gone.set()

    def head(self, status: int, headers: Headers) -> bytes:
        """Return the head of a response, with date and common headers."""
        now = int(time.time())
        if self._date[0] != now:
            text = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now))
            self._date = (now, text)
        return render_head(status, (*headers, ("Date", self._date[1]), *self._common))

    async def close(self) -> None:
        """End all connections; replies under way get a moment."""
        self.is_closing = True
        for connection in self.crowd.members():
            if connection.is_idle:
                connection.drop()
        try:
            async with asyncio.timeout(self.limits.close_seconds):
                if self.crowd:
                    await self._all_gone.wait()
        except TimeoutError:
            log.warning("cut off replies=%d", len(self.crowd))
            for connection in self.crowd.members():
                connection.drop()


class _Connection(asyncio.BufferedProtocol):
    """One client: its requests are answered one after the other."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._at_end = False
        self._head_sent = False
        #: Set while no request is being answered.
        self._arrival: asyncio.Future[Request | Refusal | None] | None = None
        self._written: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self._arrival is not None

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the task that answers."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.peer = self._transport.get_extra_info("peername")[0]
        self._parser = RequestParser(self._server.limits.request, self.peer)
        if self._server.is_closing:
            self._transport.abort()
            return
        self._server.add(self)
        self._task = self._server.tasks.create_task(self._serve())
        self._start_timer(self._server.limits.read_seconds, self._expire)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- a callback
        """Return where to put what arrives."""
        return self._server.received

    def buffer_updated(self, nbytes: int) -> None:
        """Take what arrives; it is parsed when no request is being answered."""
        self._parser.feed(bytes(self._server.received[:nbytes]))
        if self._arrival:
            self._look()
        elif len(self._parser.held) > HELD_BYTES:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """Finish the answer to a client that only closed its own side; most are gone altogether."""
        self._at_end = True
        if self._arrival:
            self._wake(None)
        else:
            self._server.crowd.move(self, WAITED_FOR)
            self._start_timer(HALF_CLOSED_SECONDS, self.drop)
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- a callback
        """Stop answering: nobody listens."""
        self._stop_timer()
        self._server.remove(self)
        if self._task:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Make the writer wait."""
        self._written = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let the writer go on."""
        if self._written and not self._written.done():
            self._written.set_result(None)
        self._written = None

    def drop(self) -> None:
        """Close at once; what was not written is lost."""
        self._server.remove(self)
        self._transport.abort()

    # Waiting for a request.

    async def _next(self) -> Request | Refusal | None:
        """Return the next request, None when there will be none."""
        arrival: asyncio.Future[Request | Refusal | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._arrival = arrival
        self._server.crowd.move(self, WAITED_FOR)
        self._look()
        if self._at_end or self._parser.is_over or self._server.is_closing:
            self._wake(None)
        self._transport.resume_reading()
        request = await arrival
        if self._at_end:
            self._start_timer(HALF_CLOSED_SECONDS, self.drop)
        return request

    def _look(self) -> None:
        request = self._parser.next()
        if request:
            self._wake(request)
            return
        if self._parser.wants_continue:
            self._parser.wants_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._parser.is_inside and self._timer is None:
            self._start_timer(self._server.limits.read_seconds, self._expire)

    def _wake(self, request: Request | Refusal | None) -> None:
        if self._arrival is None:
            return
        self._stop_timer()
        self._server.crowd.move(self, BUSY)
        if not self._arrival.done():
            self._arrival.set_result(request)
        self._arrival = None

    def _expire(self) -> None:
        if self._parser.is_inside:
            self._parser.refuse(408)
            self._look()
        else:
            self.drop()

    def _start_timer(self, seconds: float, call: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, call)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    # Answering.

    async def _serve(self) -> None:
        try:
            while request := await self._next():
                self._head_sent = False
                if isinstance(request, Refusal):
                    await self._write(self._refusal(request.status))
                    await self._linger()
                    break
                if not await self._answer(request):
                    break
        except GoneError:
            log.debug("! client %s takes nothing", self.peer)
            self.drop()
        except Exception:
            log.exception("request from %s failed", self.peer)
            if not self._head_sent:
                self._transport.write(self._refusal(500))
        finally:
            self._transport.close()

    async def _answer(self, request: Request) -> bool:
        """Write the reply; return whether the connection goes on."""
        reply = await self._server.handle(request)
        try:
            return await self._write_reply(request, reply)
        finally:
            if reply.then:
                reply.then()

    async def _write_reply(self, request: Request, reply: Reply) -> bool:
        framing = frame(request, reply, is_closing=self._server.is_closing)
        head = self._server.head(reply.status, (*reply.headers, *framing.headers))
        if isinstance(reply.body, bytes):
            await self._write(head + reply.body if framing.has_body else head)
        else:
            async with aclosing(reply.body) as pieces:
                first = await anext(pieces, b"")  # started, so that closing it cleans up
                await self._write(head)
                if framing.has_body:
                    await self._write_pieces(first, pieces, is_chunked=framing.is_chunked)
        return framing.goes_on

    async def _write_pieces(
        self, first: bytes, pieces: AsyncGenerator[bytes, None], *, is_chunked: bool
    ) -> None:
        await self._write_piece(first, is_chunked=is_chunked)
        async for piece in pieces:
            await self._write_piece(piece, is_chunked=is_chunked)
        if is_chunked:
            await self._write(b"0\r\n\r\n")

    async def _write_piece(self, piece: bytes, *, is_chunked: bool) -> None:
        if piece:  # an empty chunk would end the reply
            await self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)

    async def _write(self, data: bytes) -> None:
        """Write, and return when the kernel has all of it."""
        self._head_sent = True
        view = memoryview(data)
        for start in range(0, len(view), WRITE_BYTES):
            if self._transport.is_closing():
                raise GoneError
            self._transport.write(view[start : start + WRITE_BYTES])
            if self._written:
                await self._until_written(self._written)

    async def _until_written(self, written: asyncio.Future[None]) -> None:
        self._server.crowd.move(self, WAITED_FOR)
        try:
            async with asyncio.timeout(self._server.limits.stall_seconds):
                await written
        except TimeoutError:
            raise GoneError from None
        self._server.crowd.move(self, BUSY)

    async def _linger(self) -> None:
        """Take in what the client still sends, so that it sees the refusal before a reset."""
        with suppress(OSError):  # its reset may have come before the loop looks
            self._transport.write_eof()
        if not self._at_end:
            self._server.crowd.move(self, WAITED_FOR)
            self._arrival = arrival = asyncio.get_running_loop().create_future()
            self._start_timer(LINGER_SECONDS, self.drop)
            await arrival

    def _refusal(self, status: int) -> bytes:
        headers, body = refusal(status)
        return self._server.head(status, headers) + body
