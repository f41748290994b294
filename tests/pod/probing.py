"""One question of a kubelet to a container, asked from where this thread's sockets are."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, assert_never

import aiohttp
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, StreamEnded, StreamReset

from tests.pod.objects import Exec, Grpc, Handler, HttpGet, Sleep, TcpSocket

USER_AGENT: Final = "kube-probe/1.33"
HEALTH: Final = "/grpc.health.v1.Health/Check"
SERVING: Final = b"\0\0\0\0\2\x08\1"
#: Runs a command in the container; returns its exit code and what it wrote.
Run = Callable[[Sequence[str]], Awaitable[tuple[int, str]]]


class Verdict(NamedTuple):
    """What a container said."""

    passed: bool
    said: str


async def ask(handler: Handler, ip: str, run: Run, *, timeout_seconds: float) -> Verdict:
    """Return what a container answers; silence and refusals are answers."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _ask(handler, ip, run)
    except TimeoutError:
        return Verdict(passed=False, said=f"nothing within {timeout_seconds:g} s")
    except (OSError, aiohttp.ClientError) as error:
        return Verdict(passed=False, said=repr(error))


async def _ask(handler: Handler, ip: str, run: Run) -> Verdict:
    match handler:
        case HttpGet():
            return await _ask_http(handler, ip)
        case TcpSocket(port):
            _, writer = await asyncio.open_connection(ip, port)
            writer.close()
            return Verdict(passed=True, said="")
        case Grpc(port, service):
            return await _ask_grpc(ip, port, service)
        case Exec(command):
            code, said = await run(command)
            return Verdict(code == 0, f"exit {code}: {said}")
        case Sleep(seconds):
            await asyncio.sleep(seconds)
            return Verdict(passed=True, said="")
    assert_never(handler)


async def _ask_http(handler: HttpGet, ip: str) -> Verdict:
    headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Connection": "close"}
    host = f"[{ip}]" if ":" in ip else ip
    url = f"{handler.scheme.lower()}://{host}:{handler.port}/{handler.path.lstrip('/')}"
    connector = aiohttp.TCPConnector(ssl=False, force_close=True)  # certificates are not verified
    async with (
        aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout()) as session,
        session.get(
            url, headers={**headers, **dict(handler.headers)}, allow_redirects=False
        ) as reply,
    ):
        body = await reply.text()
        return Verdict(200 <= reply.status < 400, f"{reply.status} {body}".strip())


async def _ask_grpc(ip: str, port: int, service: str) -> Verdict:
    """Ask the health service, which needs no more of gRPC than this."""
    name = service.encode()
    field = b"\x0a" + bytes([len(name)]) + name if name else b""
    message = b"\0" + len(field).to_bytes(4, "big") + field
    connection = H2Connection(H2Configuration())
    connection.initiate_connection()
    headers = [(":method", "POST"), (":scheme", "http"), (":authority", f"{ip}:{port}")]
    more = [(":path", HEALTH), ("content-type", "application/grpc"), ("te", "trailers")]
    connection.send_headers(1, headers + more)
    connection.send_data(1, message, end_stream=True)
    reader, writer = await asyncio.open_connection(ip, port)
    received = b""
    with contextlib.closing(writer):
        while True:
            writer.write(connection.data_to_send())
            data = await reader.read(65536)
            for event in connection.receive_data(data) if data else ():
                received += event.data if isinstance(event, DataReceived) else b""
                if isinstance(event, StreamEnded | StreamReset | ConnectionTerminated):
                    return Verdict(received == SERVING, f"answer {received!r}")
            if not data:
                return Verdict(passed=False, said="hung up")
