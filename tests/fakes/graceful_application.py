"""An application that ends as a good one does, run as a program: `python ... PORT [SECONDS]`.

It speaks HTTP/1.1 with connections kept alive, HTTP/2 without TLS, and repeats what it reads once a
connection was upgraded. `/slow?MILLISECONDS` takes that long. It writes `listening`. On SIGTERM it
serves on for SECONDS (0), closes its listening socket and writes `closed T`, T by CLOCK_MONOTONIC;
it ends when what had begun is finished, and then writes `ended T`.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Coroutine

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

PREFACE = b"PRI * HTTP/2.0"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Application:
    """All connections, and what has begun on them."""

    def __init__(self) -> None:
        self.begun: set[asyncio.Task[None]] = set()

    def begin(self, answer: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(answer)
        self.begun.add(task)
        task.add_done_callback(self.begun.discard)
        return task

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            serve = self.serve_http2 if head.startswith(PREFACE) else self.serve_http1
            await serve(head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left
        finally:
            writer.close()

    async def serve_http1(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while b"upgrade: websocket" not in head.lower():
            await self.begin(answer_http1(head.split()[1].decode(), writer))
            head = await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHING)
        while data := await reader.read(4096):
            writer.write(data)

    async def serve_http2(
        self, received: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        while received:
            for event in connection.receive_data(received):
                if isinstance(event, RequestReceived):
                    self.begin(answer_http2(event, connection, writer))
            writer.write(connection.data_to_send())
            received = await reader.read(65536)


async def answer_http1(path: str, writer: asyncio.StreamWriter) -> None:
    await pause(path)
    writer.write(ANSWER)
    await writer.drain()


async def answer_http2(
    request: RequestReceived, connection: H2Connection, writer: asyncio.StreamWriter
) -> None:
    headers = {bytes(name): bytes(value) for name, value in request.headers or ()}
    await pause(headers[b":path"].decode())
    stream = request.stream_id or 0
    connection.send_headers(stream, [(":status", "200")])
    connection.send_data(stream, b"ok", end_stream=True)
    writer.write(connection.data_to_send())
    await writer.drain()


async def pause(path: str) -> None:
    milliseconds = path.partition("?")[2]
    await asyncio.sleep(int(milliseconds) / 1000 if milliseconds.isdigit() else 0)


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def main(port: int, seconds: float) -> None:
    application = Application()
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    server = await asyncio.start_server(application.serve, None, port)
    say("listening")
    await told.wait()
    await asyncio.sleep(seconds)
    server.close()
    say(f"closed {time.monotonic()}")
    while application.begun:
        await asyncio.wait(application.begun)
    say(f"ended {time.monotonic()}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float((*sys.argv, "0")[2])))
