"""The stand-in for every application, run as a program; it needs h2, and nothing of ours.

    application.py        serve the ports of APPLICATION_PORTS, such as "80=http 443=https 93=tcp"
    application.py job    ask for JOB_URL until it answers 200, print the answer, and end once
                          there is /tmp/go

On every port it speaks HTTP/1.1 and HTTP/2, with TLS where that says https. It answers with JSON,
{"host", "port", "path", "protocol", "peer", "headers"}; `/slow?MILLISECONDS` with `ok`, after that
time; `/metrics` with a metric; gRPC's health service with SERVING. SIGUSR1 makes it unhealthy, and
healthy again: it then answers 503 and NOT_SERVING, a port that says tcp is closed, and there is no
/tmp/healthy.

It writes /tmp/begun once it listens. SIGTERM: it serves on for a second, as a good application does
until its clients know, listens no more, finishes what has begun, and ends.

A job whose JOB_ENDS_SIDECAR is set tells the sidecar to end, as a job must whose sidecar is not a
native one.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from h2.exceptions import ProtocolError

PREFACE = b"PRI * HTTP/2.0"
HEALTH = "/grpc.health.v1.Health/Check"
SERVING, NOT_SERVING = b"\0\0\0\0\2\x08\1", b"\0\0\0\0\2\x08\2"
BEGUN, HEALTHY, GO = map(Path, ("/tmp/begun", "/tmp/healthy", "/tmp/go"))  # noqa: S108 - in a container
LINGER_SECONDS = 1.0
JOB_SECONDS = 20
METRICS = b"# HELP application_up Whether it is.\n# TYPE application_up gauge\napplication_up 1\n"
Headers = dict[str, str]


class Application:
    """What is served."""

    def __init__(self, ports: dict[int, str]) -> None:
        self.ports = ports
        self.is_healthy = True
        self.begun: set[asyncio.Task[None]] = set()
        self.servers: dict[int, asyncio.Server] = {}

    async def listen(self, port: int) -> None:
        tls = None
        if self.ports[port] == "https":
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(Path(__file__).with_name("tls.pem"))
            tls.set_alpn_protocols(["h2", "http/1.1"])
        self.servers[port] = await asyncio.start_server(
            self.serve, None, port, ssl=tls, reuse_port=True, backlog=1024
        )

    async def toggle(self) -> None:
        """Become unhealthy, or healthy again; what of that takes time is done first."""
        for port, spoken in self.ports.items():
            if spoken == "tcp" and self.is_healthy:
                self.servers.pop(port).close()
            elif spoken == "tcp":
                await self.listen(port)
        self.is_healthy = not self.is_healthy
        mark_healthy(is_healthy=self.is_healthy)

    def begin(self, answer: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(answer)
        self.begun.add(task)
        task.add_done_callback(self.begun.discard)
        return task

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ProtocolError):
            head = await reader.readuntil(b"\r\n\r\n")
            serve = self.serve_http2 if head.startswith(PREFACE) else self.serve_http1
            await serve(head, reader, writer)
        writer.close()

    async def serve_http1(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async def send(status: int, body: bytes) -> None:
            length = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(f"HTTP/1.1 {status} \r\n{length}".encode() + body)
            await writer.drain()

        while True:
            request, *lines = head.decode("latin-1").split("\r\n")[:-2]
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines)
            }
            answer = self.answer(request.split()[1], "HTTP/1.1", headers, writer, send)
            await self.begin(answer)
            if headers.get("connection", "").lower() == "close":
                return
            head = await reader.readuntil(b"\r\n\r\n")

    async def serve_http2(
        self, received: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        while received:
            for event in connection.receive_data(received):
                if isinstance(event, RequestReceived):
                    self.begin(self.answer_http2(event, connection, writer))
            writer.write(connection.data_to_send())
            received = await reader.read(65536)

    async def answer_http2(
        self, request: RequestReceived, connection: H2Connection, writer: asyncio.StreamWriter
    ) -> None:
        headers = {bytes(k).decode(): bytes(v).decode() for k, v in request.headers or ()}
        stream = request.stream_id or 0

        async def send(status: int, body: bytes) -> None:
            connection.send_headers(stream, [(":status", str(status))])
            connection.send_data(stream, body, end_stream=True)

        if headers[":path"] == HEALTH:
            connection.send_headers(
                stream, [(":status", "200"), ("content-type", "application/grpc")]
            )
            connection.send_data(stream, SERVING if self.is_healthy else NOT_SERVING)
            connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)
        else:
            await self.answer(headers[":path"], "HTTP/2", headers, writer, send)
        writer.write(connection.data_to_send())
        await writer.drain()

    async def answer(
        self,
        path: str,
        protocol: str,
        headers: Headers,
        writer: asyncio.StreamWriter,
        send: Callable[[int, bytes], Awaitable[None]],
    ) -> None:
        what, _, query = path.partition("?")
        if what == "/slow":
            await asyncio.sleep(int(query) / 1000)
            await send(200, b"ok")
            return
        if what == "/metrics":
            await send(200, METRICS)
            return
        said = {
            "host": socket.gethostname(),
            "port": writer.get_extra_info("sockname")[1],
            "path": path,
            "protocol": protocol,
            "peer": writer.get_extra_info("peername")[0],
            "headers": headers,
        }
        await send(200 if self.is_healthy else 503, json.dumps(said).encode())


def mark_healthy(*, is_healthy: bool) -> None:
    HEALTHY.touch() if is_healthy else HEALTHY.unlink()


def say_begun() -> None:
    BEGUN.touch()


async def serve(ports: dict[int, str]) -> None:
    application = Application(ports)
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    loop.add_signal_handler(signal.SIGUSR1, lambda: application.begin(application.toggle()))
    for port in ports:
        await application.listen(port)
    mark_healthy(is_healthy=True)
    say_begun()
    await told.wait()
    await asyncio.sleep(LINGER_SECONDS)
    for server in application.servers.values():
        server.close()
    while application.begun:
        await asyncio.wait(application.begun)


def work(url: str, *, ends_sidecar: bool) -> int:
    """Do a job: get an answer; return the exit code."""
    say_begun()
    deadline = time.monotonic() + JOB_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - of a test
                sys.stdout.write(answer.read().decode() + "\n")
            break
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.1)  # a sidecar that is not a native one may not be there yet
    else:
        return 1
    while not GO.exists():
        time.sleep(0.05)
    if ends_sidecar:
        ending = urllib.request.Request("http://localhost:15020/quitquitquit", method="POST")
        urllib.request.urlopen(ending, timeout=5).close()  # noqa: S310 - of a test
    return 0


def main(argv: list[str]) -> int:
    if argv[1:] == ["job"]:
        ends_sidecar = bool(os.environ.get("JOB_ENDS_SIDECAR"))
        return work(os.environ["JOB_URL"], ends_sidecar=ends_sidecar)
    words = (word.split("=") for word in os.environ.get("APPLICATION_PORTS", "").split())
    asyncio.run(serve({int(port): spoken for port, spoken in words}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
