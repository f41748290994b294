"""Load on a server, run as a program: `python load.py HOST PORT KIND=RATE...`, rates per second.

Each kind begins requests at its rate, whatever became of earlier ones, and leaves a connection as
soon as it is told to, as a good client does:

    fresh     a new connection for each request
    kept      HTTP/1.1 connections that are kept alive, until a response says `connection: close`
    http2     streams on one HTTP/2 connection, until it says GOAWAY; then on another one
    upgraded  one upgraded connection, on which every message must come back

It writes `begun` once each kind had an answer, and then obeys the lines of its standard input,
saying when each is done as `COMMAND T`, T by CLOCK_MONOTONIC:

    more N    wait for N more answers
    quiet     begin nothing more, except on the upgraded connection, and have all answered
    hang-up   close the upgraded connection
    leave     close all connections, also those that nobody told to leave

At the end of the input it writes what became of each kind as JSON,
{kind: {"ok": number, "failed": [reason...]}}.
"""

import asyncio
import json
import sys
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable

from hpack import Decoder, Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
REQUEST = ((":method", "GET"), (":scheme", "http"), (":authority", "load"), (":path", "/slow?5"))
TIMEOUT_SECONDS = 5


class FailedError(Exception):
    """A request without the answer it must have."""


class Http1:
    """One HTTP/1.1 connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, *headers: str) -> str:
        """Send a request; return the head of its answer."""
        lines = ("GET /slow?5 HTTP/1.1", "Host: load", *headers)
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        if head.startswith("http/1.1 200 "):
            await self.reader.readexactly(len("ok"))
        elif not head.startswith("http/1.1 101 "):
            raise FailedError(head.partition("\r\n")[0])
        return head

    def close(self) -> None:
        self.writer.close()


class Http2:
    """One HTTP/2 connection; the libraries' own ones end at GOAWAY, with streams still open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.is_leaving = False
        self._encoder, self._decoder = Encoder(), Decoder()
        self._next = 1
        self._streams: dict[int, asyncio.Future[None]] = {}
        writer.write(PREFACE + SettingsFrame(0).serialize())
        self._reading = asyncio.create_task(self._read())

    async def ask(self) -> None:
        """Send a request on a stream of its own; return when it is answered."""
        stream, self._next = self._next, self._next + 2
        frame = HeadersFrame(stream, self._encoder.encode(REQUEST))
        frame.flags |= {"END_HEADERS", "END_STREAM"}
        answered = self._streams[stream] = asyncio.get_running_loop().create_future()
        self.writer.write(frame.serialize())
        await answered

    async def _read(self) -> None:
        try:
            while True:
                head = await self.reader.readexactly(HEAD_BYTES)
                frame, length = Frame.parse_frame_header(memoryview(head))
                frame.parse_body(memoryview(await self.reader.readexactly(length)))
                self._take(frame)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self.is_leaving = True
            for answered in self._streams.values():
                answered.set_exception(FailedError(f"connection ended: {error!r}"))

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, SettingsFrame | PingFrame) and "ACK" not in frame.flags:
            answer = type(frame)(0)
            answer.flags.add("ACK")
            if isinstance(answer, PingFrame) and isinstance(frame, PingFrame):
                answer.opaque_data = frame.opaque_data
            self.writer.write(answer.serialize())
        elif isinstance(frame, GoAwayFrame):
            self.is_leaving = True
        elif isinstance(frame, RstStreamFrame):
            self._finish(frame.stream_id, f"stream reset {frame.error_code}")
        elif isinstance(frame, HeadersFrame):
            headers = {
                name: value for name, value, *_ in self._decoder.decode(frame.data, raw=True)
            }
            if headers.get(b":status", b"200") != b"200":  # trailers have none
                self._finish(frame.stream_id, f"status {headers[b':status']!r}")
        if isinstance(frame, HeadersFrame | DataFrame) and "END_STREAM" in frame.flags:
            self._finish(frame.stream_id, "")

    def _finish(self, stream: int, reason: str) -> None:
        if answered := self._streams.pop(stream, None):
            answered.set_exception(FailedError(reason)) if reason else answered.set_result(None)
        if self.is_leaving and not self._streams:
            self.close()

    def close(self) -> None:
        self.writer.close()


class Load:
    """What is asked, and what became of it."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.is_quiet = False
        self.ok: dict[str, int] = defaultdict(int)
        self.failed: dict[str, list[str]] = defaultdict(list)
        self.under_way: set[asyncio.Task[None]] = set()
        self._answered = asyncio.Event()
        self._idle: deque[Http1] = deque()
        self._http2: asyncio.Task[Http2] | None = None
        self._upgraded: asyncio.Task[Http1] | None = None
        self._speaking = asyncio.Lock()
        self._hung_up = False

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port)

    async def fresh(self) -> None:
        connection = Http1(*await self.connect())
        try:
            await connection.ask()
        finally:
            connection.close()

    async def kept(self) -> None:
        connection = self._idle.pop() if self._idle else Http1(*await self.connect())
        head = await connection.ask()
        if "\r\nconnection: close\r\n" in head:
            connection.close()
        else:
            self._idle.append(connection)

    async def http2(self) -> None:
        if self._http2 is None or (self._http2.done() and self._http2.result().is_leaving):
            self._http2 = asyncio.create_task(self._connect_http2())
        await (await asyncio.shield(self._http2)).ask()

    async def _connect_http2(self) -> Http2:
        return Http2(*await self.connect())

    async def upgraded(self) -> None:
        async with self._speaking:
            if self._hung_up:
                return
            if self._upgraded is None:
                self._upgraded = asyncio.create_task(self._upgrade())
            connection = await self._upgraded
            connection.writer.write(b"said")
            await connection.reader.readexactly(len(b"said"))

    async def _upgrade(self) -> Http1:
        connection = Http1(*await self.connect())
        await connection.ask("Connection: upgrade", "Upgrade: websocket")
        return connection

    async def more(self, number: int) -> None:
        wanted = self.answers() + number
        await self.until(lambda: self.answers() >= wanted)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._answered.clear()
            await self._answered.wait()

    def answers(self) -> int:
        return sum(self.ok.values()) + sum(map(len, self.failed.values()))

    async def quiet(self) -> None:
        self.is_quiet = True
        while self.under_way:
            await asyncio.wait(self.under_way)

    async def hang_up(self) -> None:
        async with self._speaking:
            self._hung_up = True
            if self._upgraded:
                self._upgraded.result().close()

    async def leave(self) -> None:
        await self.hang_up()
        for connection in self._idle:
            connection.close()
        if self._http2:
            self._http2.result().close()

    async def pace(self, kind: str, rate: float) -> None:
        ask: Callable[[], Awaitable[None]] = getattr(self, kind)
        due = time.monotonic()
        while not (self.is_quiet and kind != "upgraded") and not self._hung_up:
            task = asyncio.create_task(self.request(kind, ask))
            self.under_way.add(task)
            task.add_done_callback(self.under_way.discard)
            due += 1 / rate
            await asyncio.sleep(due - time.monotonic())

    async def request(self, kind: str, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await ask()
            self.ok[kind] += 1
        except (OSError, EOFError, FailedError) as error:
            self.failed[kind].append(f"{time.monotonic()} {error!r}")
        self._answered.set()


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def main(host: str, port: int, rates: dict[str, float]) -> None:
    load = Load(host, port)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    paces = [asyncio.create_task(load.pace(kind, rate)) for kind, rate in rates.items()]
    await load.until(lambda: all(load.ok[kind] or load.failed[kind] for kind in rates))
    say("begun")
    while words := (await commands.readline()).decode().split():
        command: Callable[..., Awaitable[None]] = getattr(load, words[0].replace("-", "_"))
        await command(*map(int, words[1:]))
        say(f"{words[0]} {time.monotonic()}")
    for pace in paces:
        pace.cancel()
    say(json.dumps({kind: {"ok": load.ok[kind], "failed": load.failed[kind]} for kind in rates}))


if __name__ == "__main__":
    wanted = (word.split("=") for word in sys.argv[3:])
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), {kind: float(rate) for kind, rate in wanted}))
