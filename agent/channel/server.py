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
from typing import Final

from agent.channel import proxy
from agent.channel.settings import Peer
from agent.channel.tls import Context, Session
from agent.http.connection.client import connect_soonest

#: Less than gRPC allows a connection as a whole: it is for us to say what was wrong.
CONNECT_SECONDS: Final = 4.8
#: For what is under way once one of the sides has ended.
LINGER_SECONDS: Final = 1.0
READ_BYTES: Final = 64 * 1024
#: What gRPC says where there was no connection at all.
NOT_CONNECTED: Final = "failed to connect to all addresses"
CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid


class TlsFront:
    """The connections of one channel."""

    def __init__(
        self, peer: Peer, context: Context, *, connect_seconds: float = CONNECT_SECONDS
    ) -> None:
        """Listen; nothing is dialled before gRPC connects."""
        self._peer = peer
        self.address = peer.address
        self._context = context
        self._connect_seconds = connect_seconds
        self.failure = ""  #: why the last connection has failed, "" if it has not
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(0)
        self._listener.bind("")
        self._listener.listen()
        name: bytes = self._listener.getsockname()
        self.target = f"unix-abstract:{name[1:].decode()}"  #: what gRPC connects to
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def close(self) -> None:
        """End every connection."""
        await _end(self._task)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        carried: set[asyncio.Task[None]] = set()
        try:
            while True:
                local, _ = await loop.sock_accept(self._listener)
                task = loop.create_task(self._carry(local))
                carried.add(task)
                task.add_done_callback(carried.discard)
        finally:
            self._listener.close()
            await _end(*carried)

    async def _carry(self, local: socket.socket) -> None:
        with local:
            if not _is_own(local):
                return
            try:
                async with asyncio.timeout(self._connect_seconds):
                    stream = await self._connect()
            except TimeoutError:
                self._fail(f"no connection within {self._connect_seconds:g}s", is_open=False)
            except OSError as error:
                self._fail(str(error), is_open=False)
            else:
                self.failure = ""
                with stream.sock:
                    await self._exchange(local, stream)

    async def _connect(self) -> "TlsStream":
        """Return a connection that is secured.

        Raises:
            OSError: there is none, or not to whom it should be; says why.
        """
        sock = await self._dial()
        try:
            stream = TlsStream(sock, Session(self._context, self._peer.server_name))
            await stream.handshake()
        except BaseException:
            sock.close()
            raise
        return stream

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

    async def _exchange(self, local: socket.socket, stream: "TlsStream") -> None:
        """Carry what either side sends until one has ended."""
        up = asyncio.ensure_future(_pass_up(local, stream))
        down = asyncio.ensure_future(self._pass_down(stream, local))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if not up.done() or up.exception():  # gRPC is there, for what the server said last
                await asyncio.wait((up, down), timeout=LINGER_SECONDS)
        finally:
            await _end(up, down)

    async def _pass_down(self, stream: "TlsStream", local: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await stream.read():
                await loop.sock_sendall(local, data)
        except OSError as error:
            self._fail(str(error), is_open=True)
        with contextlib.suppress(OSError):  # gRPC was faster
            local.shutdown(socket.SHUT_WR)

    def _fail(self, reason: str, *, is_open: bool) -> None:
        """Note why, in gRPC's words, before it sees that its connection has ended."""
        prefix = "" if is_open else f"{NOT_CONNECTED}; last error: "
        self.failure = f"{prefix}{self._peer.address}: {reason}"


class TlsStream:
    """A TLS session and the socket that it goes over."""

    def __init__(self, sock: socket.socket, session: Session) -> None:
        self.sock = sock
        self._session = session
        self._sending = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    async def handshake(self) -> None:
        """Return when it is secured; OSError says why it cannot be."""
        try:
            while not self._session.handshake():
                await self._send()
                if not await self._receive():
                    raise OSError("connection closed during the TLS handshake")
        finally:
            await self._send()  # the last message, or what is wrong

    async def read(self) -> bytes | None:
        """Return the next bytes, none at the end; OSError says what has ended it early."""
        while (data := self._session.read()) == b"":
            await self._send()  # what TLS itself has to answer
            if not await self._receive():
                return None
        return data

    async def write(self, data: bytes) -> None:
        """Send some bytes; OSError if there is nobody for them."""
        self._session.write(data)
        await self._send()

    async def close(self) -> None:
        """Say that nothing follows."""
        self._session.close()
        await self._send()

    async def _receive(self) -> bool:
        data = await self._loop.sock_recv(self.sock, READ_BYTES)
        self._session.receive(data)
        return bool(data)

    async def _send(self) -> None:
        async with self._sending:  # one record after the other
            if data := self._session.take():
                await self._loop.sock_sendall(self.sock, data)


async def _pass_up(local: socket.socket, stream: TlsStream) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(local, READ_BYTES):
        await stream.write(data)
    await stream.close()


async def _open_tunnel(sock: socket.socket, request: bytes) -> None:
    """Ask a proxy for a tunnel; OSError says why there is none."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, request)
    head = b""
    # Byte by byte: what follows is TLS.
    while not head.endswith(proxy.END) and len(head) < proxy.MAX_HEAD_BYTES:
        if not (data := await loop.sock_recv(sock, 1)):
            break
        head += data
    proxy.read_answer(head)


def _is_own(local: socket.socket) -> bool:
    """Return whether this very process has connected."""
    raw = local.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return bool(CREDENTIALS.unpack(raw)[0] == os.getpid())


async def _end(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
