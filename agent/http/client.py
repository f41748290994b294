"""An HTTP client for the pod itself: Envoy's admin port, probes and scrapes.

Every call is a connection of its own, unless the caller brings what keeps connections (kept/). It
sends the headers it is given, Host, Content-Length and Connection, and nothing else; it knows no
proxies, cookies or redirects. It speaks HTTP/1.1, and HTTP/2 where TLS negotiates that, or the
caller knows that the server does.

Source: performance.md, decision 7; status-lifecycle.md section 5.8.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agent.http.connection.client import Connection, Place, connect, open_connection
from agent.http.message import (
    Headers,
    HttpError,
    Response,
    first_value,
    join_host_port,
    leaves_open,
    may_ask_again,
    render_request,
)
from agent.http.parser import ResponseParser

if TYPE_CHECKING:
    import ssl  # few pods need it

    from agent.http.kept.client import Kept

__all__ = ["HttpError", "Incoming", "Response", "dial", "fetch", "stream"]


async def fetch(
    method: str,
    host: str,
    port: int,
    target: str,
    *,
    headers: Headers = (),
    body: bytes = b"",
    timeout_seconds: float | None,
    limit_bytes: int = 1 << 20,
    source: str | None = None,
    tls: "ssl.SSLContext | None" = None,
) -> Response:
    """Return a small answer, body included.

    Args:
        method: sent as it is.
        host: an IP address, `localhost` (which is tried on every address) or another name.
        port: of the server.
        target: path and query, sent as they are.
        headers: in this order; Host and Connection (`close`) are added unless given.
        body: of the request.
        timeout_seconds: for everything, from connect to the last byte; None waits for ever.
        limit_bytes: of the answer's body; more is an error.
        source: address to connect from; set for probes, which also get the kubelet's SO_LINGER.
        tls: speak TLS; SNI is sent only where the host is a name.

    Raises:
        HttpError: no connection, no complete answer in time, no HTTP, or too long.
    """
    async with stream(
        method,
        host,
        port,
        target,
        headers=headers,
        body=body,
        timeout_seconds=timeout_seconds,
        source=source,
        tls=tls,
    ) as incoming:
        pieces = []
        size = 0
        async for piece in incoming:
            size += len(piece)
            if size > limit_bytes:
                raise incoming.error(f"answer is longer than {limit_bytes} bytes")
            pieces.append(piece)
    return Response(incoming.status, incoming.headers, b"".join(pieces))


@asynccontextmanager
async def stream(
    method: str,
    host: str,
    port: int,
    target: str,
    *,
    headers: Headers = (),
    body: bytes = b"",
    timeout_seconds: float | None,
    source: str | None = None,
    tls: "ssl.SSLContext | None" = None,
    http2: bool = False,
    kept: "Kept | None" = None,
) -> AsyncIterator["Incoming"]:
    """Yield an answer whose head was read; its body is iterated over, at the reader's pace.

    Arguments and errors are those of `fetch`; errors also come while iterating. `http2` has that
    be spoken without asking. A connection of `kept` is used, and given back after a whole answer;
    a GET that finds it dead is sent again, over a new one.
    """
    origin = f"{'https' if tls else 'http'}://{join_host_port(host, port)}"
    what = f"{method} {origin}{target.partition('?')[0]}"  # a query may hold what no log should
    deadline = _deadline(timeout_seconds)
    kept = kept if leaves_open(headers) else None
    full = _complete(headers, host, port, method, body, goes_on=kept is not None)
    try:
        head = render_request(method, target, full)
    except ValueError as error:
        raise HttpError(f"{method} {join_host_port(host, port)}", str(error)) from None
    call = _Call(what, deadline, method, origin, target, headers, body, head)
    place = Place(host, port, source, tls)
    async with AsyncExitStack() as stack:
        async with _translated(what, deadline):
            incoming = await _again(stack, call, place, kept) if kept else None
            if incoming is None:
                incoming = Incoming(call, await open_connection(place, http2=http2), place, kept)
                stack.callback(incoming.end)
                await incoming.begin()
        yield incoming


async def _again(
    stack: AsyncExitStack, call: "_Call", place: Place, kept: "Kept"
) -> "Incoming | None":
    """Return an answer over a connection that was kept, None where a new one is needed."""
    if not (connection := kept.take(place)):
        return None
    incoming = Incoming(call, connection, place, kept)
    stack.callback(incoming.end)
    try:
        await incoming.begin()
    except (OSError, ValueError):
        if not may_ask_again(call.method, has_begun=incoming.has_begun):
            raise
        incoming.end()
        return None
    return incoming


class _Call(NamedTuple):
    """What is asked, for either version of HTTP."""

    what: str
    deadline: "_Deadline"
    method: str
    origin: str
    target: str
    headers: Headers
    body: bytes
    head: bytes  #: of HTTP/1.1


async def dial(
    host: str, port: int, *, timeout_seconds: float | None, source: str | None = None
) -> socket.socket:
    """Return a connected non-blocking socket; the caller closes it. See `fetch` for the rest."""
    deadline = _deadline(timeout_seconds)
    async with _translated(join_host_port(host, port), deadline):
        return await connect(host, port, source)


class _Deadline(NamedTuple):
    seconds: float
    at: float | None  #: in the loop's time


def _deadline(seconds: float | None) -> _Deadline:
    if seconds is None:
        return _Deadline(0.0, None)
    return _Deadline(seconds, asyncio.get_running_loop().time() + seconds)


class Parser(Protocol):
    """What makes an answer of what is read."""

    status: int  #: 0 until the head is complete
    headers: Headers
    trailers: Headers
    pieces: deque[bytes]  #: what there is of the body until it is taken
    is_complete: bool

    @property
    def has_begun(self) -> bool:
        """Whether something came of it."""

    @property
    def goes_on(self) -> bool:
        """Whether it is complete, and another may follow on the connection."""

    def feed(self, data: bytes, /) -> None:
        """Take what was read, nothing at the end; ValueError says what is wrong with it."""


class Incoming:
    """An answer on its way: status and headers are here, the body is iterated over once."""

    def __init__(
        self, call: _Call, connection: Connection, place: Place, kept: "Kept | None"
    ) -> None:
        self._call = call
        self._place = place
        self._kept = kept
        self._connection = connection
        self._is_ours = True  #: until it is given back
        self._exchange = connection.exchange
        self._parser: Parser = self._exchange or ResponseParser(is_head=call.method == "HEAD")

    @property
    def status(self) -> int:
        """Return the status code."""
        return self._parser.status

    @property
    def headers(self) -> Headers:
        """Return the headers, without trailers."""
        return self._parser.headers

    @property
    def trailers(self) -> Headers:
        """Return what came after the body; of HTTP/1.1 nothing is kept."""
        return self._parser.trailers

    @property
    def has_begun(self) -> bool:
        """Whether something came of it."""
        return self._parser.has_begun

    @property
    def is_complete(self) -> bool:
        """Whether the whole body was received."""
        return self._parser.is_complete

    def error(self, reason: str) -> HttpError:
        """Return an error about this answer."""
        return HttpError(self._call.what, reason)

    async def begin(self) -> None:
        """Ask; return when status and headers are known. Interim answers are passed over."""
        call = self._call
        if self._exchange:
            self._exchange.request(
                call.method, call.origin, call.target, headers=call.headers, body=call.body
            )
        else:
            self._connection.write(call.head + call.body)
        while not self.status:
            await self._receive()

    def end(self) -> None:
        """Close the connection, unless it is given back."""
        if self._exchange:
            self._give_back()
        if self._is_ours:
            self._is_ours = False
            self._connection.close(is_whole=self.is_complete)

    def __aiter__(self) -> "Incoming":
        return self

    async def __anext__(self) -> bytes:
        """Return what there is of the body by now, in one piece; nothing is held back."""
        pieces = self._parser.pieces
        while not pieces and not self.is_complete:
            async with _translated(self._call.what, self._call.deadline):
                await self._receive()
        if not pieces:
            raise StopAsyncIteration
        piece = b"".join(pieces)
        pieces.clear()
        return piece

    async def _receive(self) -> None:
        self._parser.feed(await self._connection.read())
        if not self._exchange:  # that of HTTP/2 holds the answer, so it is needed to the end
            self._give_back()

    def _give_back(self) -> None:
        """Have the connection kept where it may be; what else comes over it is nobody's."""
        is_free = self._is_ours and self._parser.goes_on and self._connection.is_quiet
        if self._kept and is_free:
            self._is_ours = False
            self._kept.put(self._place, self._connection)


@asynccontextmanager
async def _translated(what: str, deadline: _Deadline) -> AsyncIterator[None]:
    """Bound what is awaited and turn what the system, or a parser, says into an HttpError."""
    try:
        async with asyncio.timeout_at(deadline.at):
            yield
    except TimeoutError as error:
        # The system's own has an errno: what is not answered at all times out after minutes.
        limit = "" if error.errno else f" after {round(deadline.seconds, 3):g} s"
        raise HttpError(what, f"timed out{limit}") from error
    except OSError as error:
        raise HttpError(what, _reason(error)) from error
    except ValueError as error:
        raise HttpError(what, str(error)) from None


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or not error.errno:
        return (str(error.strerror or error) or type(error).__name__).lower()
    return os.strerror(error.errno).lower()


def _complete(
    headers: Headers, host: str, port: int, method: str, body: bytes, *, goes_on: bool
) -> Headers:
    extra = []
    if not first_value(headers, "host"):
        extra.append(("Host", join_host_port(host, port)))
    if not goes_on and not first_value(headers, "connection"):
        extra.append(("Connection", "close"))
    if body or method not in ("GET", "HEAD"):
        extra.append(("Content-Length", str(len(body))))
    return (*extra, *headers)
