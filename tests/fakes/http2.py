"""The other end of HTTP/2, on h2: in memory, and behind TLS that agrees on nothing else."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, StreamEnded, WindowUpdated


class Asked(NamedTuple):
    """A request as the server has it."""

    fields: tuple[tuple[str, str], ...]  #: pseudo headers included, in order
    stream: int

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.fields)


#: Answers by what it does to the server's connection.
Answer = Callable[[H2Connection, Asked], None]


class Peer:
    """A server's connection."""

    def __init__(self, answer: Answer, *, at_once: bool = False) -> None:
        """Answer each request, or at once what has but begun."""
        self.asked: list[Asked] = []
        self.connection = H2Connection(
            H2Configuration(client_side=False, header_encoding="latin-1")
        )
        self._answer = answer
        self._at_once = at_once
        #: The latest one, of which there may be more to come.
        self.begun: Asked | None = None
        self._unsent = b""
        self.connection.initiate_connection()

    def receive(self, data: bytes) -> bytes:
        """Take what the client has sent; return what it gets."""
        for event in self.connection.receive_data(data):
            if isinstance(event, RequestReceived):
                fields = tuple((str(name), str(value)) for name, value in event.headers)
                self.begun = Asked(fields, event.stream_id)
                if self._at_once:
                    self._answer(self.connection, self.begun)
            elif isinstance(event, StreamEnded) and self.begun and not self._at_once:
                self.asked.append(self.begun)
                self._answer(self.connection, self.begun)
            elif isinstance(event, WindowUpdated) and self._unsent:
                self._go_on()
        return self.connection.data_to_send()

    def stream_body(self, body: bytes) -> None:
        """Send a body as fast as the client lets us."""
        self._unsent = body
        self._go_on()

    def _go_on(self) -> None:
        assert self.begun
        stream = self.begun.stream
        while self._unsent and (room := self.connection.local_flow_control_window(stream)):
            piece = self._unsent[: min(room, self.connection.max_outbound_frame_size)]
            self._unsent = self._unsent[len(piece) :]
            self.connection.send_data(stream, piece, end_stream=not self._unsent)


def status(code: int = 200, body: bytes = b"", **headers: str) -> Answer:
    """Return an answer that is sent at once."""

    def answer(connection: H2Connection, asked: Asked) -> None:
        fields = [(":status", str(code)), *headers.items()]
        connection.send_headers(asked.stream, fields, end_stream=not body)
        if body:
            connection.send_data(asked.stream, body, end_stream=True)

    return answer


class Server:
    """Serves connections, each with a peer of its own."""

    def __init__(self, answer: Answer, *, at_once: bool) -> None:
        self.port = 0
        self.peers: list[Peer] = []
        self.serving: set[asyncio.Task[Any]] = set()  #: connections that are open
        self._answer = answer
        self._at_once = at_once

    @property
    def asked(self) -> list[Asked]:
        return [each for peer in self.peers for each in peer.asked]

    @property
    def begun(self) -> list[Asked]:
        return [peer.begun for peer in self.peers if peer.begun]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(self._answer, at_once=self._at_once)
        self.peers.append(peer)
        if task := asyncio.current_task():
            self.serving.add(task)
            task.add_done_callback(self.serving.discard)
        try:
            while data := await reader.read(65536):
                writer.write(peer.receive(data))
                await writer.drain()
        except ConnectionError:
            pass  # a probe that knows enough leaves
        finally:
            writer.transport.abort()


@asynccontextmanager
async def http2_server(
    answer: Answer, tls: ssl.SSLContext | None = None, *, at_once: bool = False
) -> AsyncIterator[Server]:
    """Run a server on the loopback, which answers requests, or at once what has but begun."""
    serving = Server(answer, at_once=at_once)
    server = await asyncio.start_server(serving.serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        serving.port = server.sockets[0].getsockname()[1]
        yield serving
    for connection in serving.serving:
        connection.cancel()
    if serving.serving:
        await asyncio.wait(serving.serving)
