"""A socket for one gRPC channel, whose bytes go on to its server over TLS of ours.

gRPC speaks HTTP/2 on it in the clear, and is the only one that can: the kernel makes up the
socket's name, and says of each client which process it is.

Source: xds-identity-dns.md sections 2.2 and 2.3, deviation D-1.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable
from typing import Final

from agent.channel import proxy
from agent.channel.settings import NOT_CONNECTED, Peer
from agent.channel.tls import Context, Session, TlsError
from agent.http.connection.client import connect_soonest

#: Less than gRPC allows a connection as a whole: it is for us to say what was wrong.
CONNECT_SECONDS: Final = 4.8
READ_BYTES: Final = 64 * 1024
#: Twice the longest chain that OpenSSL takes. There are messages of which it takes any number, and
#: while some come at once, nothing else has its turn.
HANDSHAKE_BYTES: Final = 256 * 1024
#: No server that reads has so much to come: gRPC is asked for nothing beyond 64 kB.
UNREAD_BYTES: Final = 1024 * 1024
#: Anybody in the pod can connect, if to no avail: there must be room left for gRPC.
BACKLOG: Final = 4096
ACCEPTED_AT_ONCE: Final = 256
#: Until it is tried again to accept a connection, where there is no file descriptor for it.
PAUSE_SECONDS: Final = 0.5
CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid


class TlsFront:
    """The connections of one channel."""

    def __init__(
        self,
        peer: Peer,
        context: Context,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        unacknowledged_milliseconds: int = 0,
    ) -> None:
        """Listen; nothing is dialled before gRPC connects.

        Args:
            peer: the server.
            context: of TLS.
            connect_seconds: until there is a connection.
            unacknowledged_milliseconds: that what was sent may be in a connection which is kept;
                zero: as long as the kernel likes.
        """
        self._peer = peer
        self.address = peer.address
        self._context = context
        self._connect_seconds = connect_seconds
        self._unacknowledged_milliseconds = unacknowledged_milliseconds
        self.failure = ""  #: why the last connection has failed, "" if it has not
        self._loop = asyncio.get_running_loop()
        self._carried: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(0)
        self._listener.bind("")
        self._listener.listen(BACKLOG)
        name: bytes = self._listener.getsockname()
        self.target = f"unix-abstract:{name[1:].decode()}"  #: what gRPC connects to
        self._listen()

    def stop(self) -> None:
        """Listen no more; for the name is anybody's then, gRPC must have ended before."""
        if self._pause:
            self._pause.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()

    async def close(self) -> None:
        """End every connection."""
        self.stop()
        tasks = list(self._carried)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Take whoever has connected; strangers are gone before anything else has its turn."""
        try:
            for _ in range(ACCEPTED_AT_ONCE):
                local, _ = self._listener.accept()
                if _is_own(local):
                    self._begin(local)
                else:
                    local.close()
        except BlockingIOError:
            return  # that was all
        except OSError as error:  # not the end: somebody else could have the name
            self._fail(str(error), is_open=False)
            self._loop.remove_reader(self._listener)
            self._pause = self._loop.call_later(PAUSE_SECONDS, self._listen)

    def _begin(self, local: socket.socket) -> None:
        local.settimeout(0)
        task = self._loop.create_task(self._carry(local))
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)
        task.add_done_callback(lambda _: local.close())  # even if it has not begun

    async def _carry(self, local: socket.socket) -> None:
        """Carry one connection of gRPC's to its end."""
        try:
            async with asyncio.timeout(self._connect_seconds):
                remote, session = await self._connect()
        except TimeoutError:
            self._fail(f"no connection within {self._connect_seconds:g}s", is_open=False)
        except (OSError, ValueError) as error:  # ValueError: of a name that no resolver takes
            self._fail(str(error), is_open=False)
        else:
            self.failure = ""
            await self._exchange(local, remote, session)

    async def _connect(self) -> tuple[socket.socket, Session]:
        """Return a connection that is secured.

        Raises:
            OSError: there is none, or not to whom it should be; says why.
        """
        sock = await self._dial()
        try:
            session = Session(self._context, self._peer.server_name)
            await _shake_hands(sock, session)
            limit = self._unacknowledged_milliseconds
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)
        except BaseException:
            sock.close()
            raise
        return sock, session

    async def _dial(self) -> socket.socket:
        address, url = self._peer.address, self._peer.proxy
        if not url:
            host, _, port = address.rpartition(":")
            return await connect_soonest(host.strip("[]"), int(port))
        sock = await connect_soonest(*proxy.place(url))
        try:
            await _open_tunnel(sock, proxy.write_request(address, url))
        except BaseException:
            sock.close()
            raise
        return sock

    async def _exchange(
        self, local: socket.socket, remote: socket.socket, session: Session
    ) -> None:
        """Carry what both sides send until gRPC's has ended."""
        secured = _SecuredEnd(session, self._fail)
        outside, _ = await self._loop.create_connection(lambda: secured, sock=remote)
        try:
            plain = _PlainEnd(session, outside)
            inside, _ = await self._loop.connect_accepted_socket(lambda: plain, local)
            try:
                secured.begin(inside)
                await plain.ended
            finally:
                inside.abort()
        finally:
            outside.abort()

    def _fail(self, reason: str, *, is_open: bool = True) -> None:
        """Note why, in gRPC's words, before it sees that its connection has ended."""
        prefix = "" if is_open else f"{NOT_CONNECTED}; last error: "
        self.failure = f"{prefix}{self._peer.address}: {reason}"


class _End(asyncio.Protocol):
    """One side of a connection, which reads no faster than the other one takes it."""

    other: asyncio.Transport | None = None

    def pause_writing(self) -> None:
        if self.other:
            self.other.pause_reading()

    def resume_writing(self) -> None:
        if self.other:
            self.other.resume_reading()


class _PlainEnd(_End):
    """Where gRPC is; made when the server is there."""

    def __init__(self, session: Session, server: asyncio.Transport) -> None:
        self._session = session
        self.other = self._server = server
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if self._server.is_closing():  # gRPC is about to learn it
            return
        with contextlib.suppress(TlsError):  # which the other end has met, too
            self._session.write(data)
        self._server.write(self._session.take())

    def connection_lost(self, _: Exception | None) -> None:
        if not self._server.is_closing():
            self._session.close()
            self._server.write(self._session.take())
        if not self.ended.done():
            self.ended.set_result(None)


class _SecuredEnd(_End):
    """Where the server is; what comes before gRPC is there stays in the session."""

    def __init__(self, session: Session, fail: Callable[[str], None]) -> None:
        self._session = session
        self._fail = fail
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._own: asyncio.Transport = transport  # type: ignore[assignment]  # so does asyncio call it

    def begin(self, plain: asyncio.Transport) -> None:
        """Pass on what has come, and all that follows."""
        self.other = plain
        self._pass()

    def data_received(self, data: bytes) -> None:
        if not self._is_over:  # or it would be kept: nothing takes it from the session
            self._session.receive(data)
            self._pass()

    def eof_received(self) -> bool:
        self._is_over = True
        self._pass()
        return True  # gRPC reads what is left, and ends it

    def connection_lost(self, error: Exception | None) -> None:
        if error and not isinstance(error, BrokenPipeError):  # that one follows upon an end
            self._fail(str(error))
        self.eof_received()
        self.resume_writing()  # or the other end, which may wait for this one, would never end

    def _pass(self) -> None:
        if self.other is None:
            return
        try:
            data = self._session.read()
        except TlsError as error:
            self._fail(str(error))
            data = None
        if data:
            self.other.write(data)
        if data is None or self._is_over:
            self._is_over = True
            self.other.write_eof()
        answer = self._session.take()  # of TLS itself
        if answer and not self._own.is_closing():
            self._answer(answer)

    def _answer(self, data: bytes) -> None:
        """Send what no other end waits to send, hence is not told to wait with."""
        self._own.write(data)
        if self._own.get_write_buffer_size() > UNREAD_BYTES:
            self._fail("the server asks without end, and reads no answer")
            self._own.abort()


async def _shake_hands(sock: socket.socket, session: Session) -> None:
    """Return when a connection is secured; OSError says why it cannot be."""
    loop = asyncio.get_running_loop()
    size = 0
    try:
        while not session.handshake():
            await loop.sock_sendall(sock, session.take())
            if not (data := await loop.sock_recv(sock, READ_BYTES)):
                raise OSError("connection closed during the TLS handshake")
            session.receive(data)
            size += len(data)
            if size > HANDSHAKE_BYTES:
                raise OSError(f"no TLS handshake within {HANDSHAKE_BYTES // 1024} kB")
    except TlsError:
        with contextlib.suppress(OSError):  # if it still listens
            await loop.sock_sendall(sock, session.take())
        raise
    await loop.sock_sendall(sock, session.take())


async def _open_tunnel(sock: socket.socket, request: bytes) -> None:
    """Ask a proxy for a tunnel; OSError says why there is none."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, request)
    head = b""
    # Byte by byte: what follows is TLS.
    while not head.endswith(proxy.ENDS) and len(head) < proxy.MAX_HEAD_BYTES:
        if not (data := await loop.sock_recv(sock, 1)):
            break
        head += data
    proxy.read_answer(head)


def _is_own(local: socket.socket) -> bool:
    """Return whether this very process has connected."""
    raw = local.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return bool(CREDENTIALS.unpack(raw)[0] == os.getpid())
