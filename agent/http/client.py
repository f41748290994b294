"""An HTTP client for the pod itself: Envoy's admin port, probes and scrapes.

Every call is a connection of its own. It sends the headers it is given, Host, Content-Length
and Connection, and nothing else; it knows no proxies, cookies or redirects. It speaks HTTP/1.1, and
HTTP/2 where TLS negotiates that, or the caller knows that the server does.

Source: performance.md, decision 7; status-lifecycle.md section 5.8.
"""

import asyncio
import functools
import os
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from agent.http.message import (
    Headers,
    HttpError,
    Response,
    first_value,
    join_host_port,
    render_request,
)
from agent.http.parser import ResponseParser

if TYPE_CHECKING:
    import ssl  # few pods need it
    from concurrent.futures import ThreadPoolExecutor

    from agent.http.tls.client import TlsStream

__all__ = ["HttpError", "Incoming", "Response", "dial", "fetch", "stream"]

READ_BYTES: Final = 64 * 1024
MAX_PORT: Final = 65535
RESOLVERS: Final = 4
#: On, for one second, as the kubelet sets it; on, for none: reset instead of waiting.
LINGER: Final = struct.pack("ii", 1, 1)
NO_LINGER: Final = struct.pack("ii", 1, 0)


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
) -> AsyncIterator["Incoming"]:
    """Yield an answer whose head was read; its body is iterated over, at the reader's pace.

    Arguments and errors are those of `fetch`; errors also come while iterating. `http2` has that
    be spoken without asking.
    """
    origin = f"{'https' if tls else 'http'}://{join_host_port(host, port)}"
    what = f"{method} {origin}{target.partition('?')[0]}"  # a query may hold what no log should
    deadline = _deadline(timeout_seconds)
    try:
        head = render_request(method, target, _complete(headers, host, port, method, body))
    except ValueError as error:
        raise HttpError(f"{method} {join_host_port(host, port)}", str(error)) from None
    async with AsyncExitStack() as stack:
        async with _translated(what, deadline):
            sock = await _connect(host, port, source)
            stack.callback(sock.close)
            reader, writer = await asyncio.open_connection(sock=sock)
            stack.callback(writer.transport.abort)
            received: Readable = reader
            send: Callable[[bytes], None] = writer.write
            if tls:
                channel = await _secured(reader, writer, tls, host)
                received, send, http2 = channel, channel.write, channel.protocol == "h2"
            parser: Parser = ResponseParser(is_head=method == "HEAD")
            if http2:
                from agent.http.http2 import Exchange  # noqa: PLC0415 - h2, for few connections

                parser = exchange = Exchange(send)
                exchange.request(method, origin, target, headers=headers, body=body)
            else:
                send(head + body)
            incoming = Incoming(what, received, deadline, parser)
            stack.callback(_end, sock, incoming)
            await incoming.read_head()
        yield incoming


def _end(sock: socket.socket, incoming: "Incoming") -> None:
    if not incoming.is_complete and sock.fileno() >= 0:
        # What is unsent must not hold up the event loop for the second of SO_LINGER.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)


async def dial(
    host: str, port: int, *, timeout_seconds: float | None, source: str | None = None
) -> socket.socket:
    """Return a connected non-blocking socket; the caller closes it. See `fetch` for the rest."""
    deadline = _deadline(timeout_seconds)
    async with _translated(join_host_port(host, port), deadline):
        return await _connect(host, port, source)


class _Deadline(NamedTuple):
    seconds: float
    at: float | None  #: in the loop's time


def _deadline(seconds: float | None) -> _Deadline:
    if seconds is None:
        return _Deadline(0.0, None)
    return _Deadline(seconds, asyncio.get_running_loop().time() + seconds)


class Readable(Protocol):
    """What an answer is read from."""

    async def read(self, n: int, /) -> bytes:
        """Return the next bytes, none at the end."""


class Parser(Protocol):
    """What makes an answer of what is read."""

    status: int  #: 0 until the head is complete
    headers: Headers
    trailers: Headers
    pieces: deque[bytes]  #: what there is of the body until it is taken
    is_complete: bool

    def feed(self, data: bytes, /) -> None:
        """Take what was read, nothing at the end; ValueError says what is wrong with it."""


class Incoming:
    """An answer on its way: status and headers are here, the body is iterated over once."""

    def __init__(self, what: str, reader: Readable, deadline: _Deadline, parser: Parser) -> None:
        self._what = what
        self._reader = reader
        self._deadline = deadline
        self._parser = parser

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
    def is_complete(self) -> bool:
        """Whether the whole body was received."""
        return self._parser.is_complete

    def error(self, reason: str) -> HttpError:
        """Return an error about this answer."""
        return HttpError(self._what, reason)

    async def read_head(self) -> None:
        """Return when status and headers are known; interim answers are passed over."""
        while not self.status:
            await self._receive()

    def __aiter__(self) -> "Incoming":
        return self

    async def __anext__(self) -> bytes:
        """Return what there is of the body by now, in one piece; nothing is held back."""
        pieces = self._parser.pieces
        while not pieces and not self.is_complete:
            async with _translated(self._what, self._deadline):
                await self._receive()
        if not pieces:
            raise StopAsyncIteration
        piece = b"".join(pieces)
        pieces.clear()
        return piece

    async def _receive(self) -> None:
        self._parser.feed(await self._reader.read(READ_BYTES))


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


def _complete(headers: Headers, host: str, port: int, method: str, body: bytes) -> Headers:
    extra = []
    if not first_value(headers, "host"):
        extra.append(("Host", join_host_port(host, port)))
    if not first_value(headers, "connection"):
        extra.append(("Connection", "close"))
    if body or method not in ("GET", "HEAD"):
        extra.append(("Content-Length", str(len(body))))
    return (*extra, *headers)


async def _secured(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tls: "ssl.SSLContext", host: str
) -> "TlsStream":
    """Return how to read and write a connection on which TLS is spoken from now on."""
    from agent.http.tls.client import TlsStream  # noqa: PLC0415 - few pods need it

    channel = TlsStream(reader, writer, tls, "" if _literal(host, 0) else host)
    await channel.handshake()
    return channel


async def _connect(host: str, port: int, source: str | None) -> socket.socket:
    if not 0 < port <= MAX_PORT:
        raise OSError(f"port {port}: expected 1 to {MAX_PORT}")
    failure: OSError | None = None
    for family, address in await _addresses(host, port, source):
        try:
            return await _connect_to(family, address, source)
        except OSError as error:
            failure = failure or error
    raise failure or OSError(f"no address of the family of {source}")


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


async def _addresses(
    host: str, port: int, source: str | None
) -> Sequence[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    """Return where to connect to; only addresses of the source's family where one is given."""
    if host == "localhost":  # no resolver, hence no thread, for the common case
        found = [*_literal("127.0.0.1", port), *_literal("::1", port)]
    elif not (found := _literal(host, port)):
        ask = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        answers = await asyncio.get_running_loop().run_in_executor(_resolvers(), ask)
        found = [(family, address) for family, _, _, _, address in answers]
    wanted = {family for family, _ in _literal(source, 0)} if source else None
    return [entry for entry in found if wanted is None or entry[0] in wanted]


@functools.cache
def _resolvers() -> "ThreadPoolExecutor":
    """Return threads of their own: one may wait for a name server for minutes.

    Those of asyncio are for others, too, and it waits for them at the end.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - few names are resolved

    return ThreadPoolExecutor(RESOLVERS, "resolver")


def _literal(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return [(family, (host, port))]
    return []
