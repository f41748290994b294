"""Random and hostile requests leave the status server as it was.

FUZZ_EXAMPLES sets how many are drawn, twenty times as many as it says; FUZZ_SEED draws others.
"""

import asyncio
import json
import os
import re
import socket
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import pytest
from aiohttp import web

from agent.http.client import fetch
from tests.fakes.hostile import Conversation, draw
from tests.fakes.scraped import ENVOY, TEXT, page
from tests.fakes.status_process import SECRET, Running, status_process
from tests.fakes.web import Admin, Pages, web_server
from tests.waiting import LOOK_SECONDS

REQUESTS: Final = 20 * int(os.environ.get("FUZZ_EXAMPLES", "50"))
SEED: Final = os.environ.get("FUZZ_SEED", "0")
CLIENTS: Final = 24
#: What stands for the network: capture lets it in, and it is not the pod's own (D9).
FOREIGN: Final = "127.0.0.6"
ANSWERS: Final = frozenset((100, 200, 307, 400, 403, 404, 405, 408, 413, 417, 431, 500, 503, 505))
LEAKED_KIB: Final = 4096
#: What is no answer, or not all of one.
BROKEN: Final = (
    b"",
    b"SSH-2.0-none\r\n",
    b"HTTP/1.1 103 Early Hints\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot gzip",
    b"HTTP/1.1 999 \xff\r\nX: " + b"y" * 200_000,
)


class Misbehaving:
    """An application that does something else each time."""

    def __init__(self, random: Random) -> None:
        self._random = random

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        choice = self._random.random()
        if choice < 0.1:
            await asyncio.Event().wait()
        if choice < 0.2 and request.transport:
            request.transport.abort()
        if choice < 0.4:
            location = self._random.choice(("/probe", "//x/", "x:y", "http://[", "/\u00e9\u20ac"))
            return web.Response(status=302, headers={"Location": location})
        if choice < 0.5 and request.transport:
            request.transport.write(self._random.choice(BROKEN))
            request.transport.close()
        return web.Response(status=self._random.choice((200, 404, 503)), text="x" * 20_000)


class Clients:
    """Hostile ones, and what they have seen."""

    def __init__(self, port: int, random: Random) -> None:
        self.statuses: Counter[int] = Counter()
        self._port = port
        self._random = random
        self._left = 0
        self._staying: list[asyncio.StreamWriter] = []

    async def attack(self, requests: int) -> None:
        """Send that many, several clients at once."""
        self._left = requests
        async with asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(self._send())
        for writer in self._staying:
            writer.transport.abort()
        self._staying.clear()

    async def _send(self) -> None:
        while self._left > 0:
            conversation = draw(self._random)
            self._left -= 1
            with suppress(OSError):
                await self._hold(conversation)

    async def _hold(self, conversation: Conversation) -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, local_addr=(FOREIGN, 0)
        )
        try:
            for piece in conversation.pieces:
                writer.write(piece)
                await writer.drain()
            if conversation.end == "reads":
                writer.write_eof()
                async with asyncio.timeout(30):
                    self._note(await reader.read())
        finally:
            if conversation.end == "stays":
                self._staying.append(writer)
            else:
                reset(writer)

    def _note(self, answer: bytes) -> None:
        assert SECRET.encode() not in answer, f"seed {SEED}: {answer!r}"
        statuses = re.findall(rb"HTTP/1\.1 (\d+) [A-Z]", answer)
        self.statuses.update(map(int, statuses))


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


async def ask(server: Running, path: str) -> bytes:
    response = await fetch("GET", "127.0.0.1", server.port, path, timeout_seconds=30)
    assert response.status == 200, path
    return response.body


async def attack(server: Running, clients: Clients, requests: int) -> None:
    """Have them send, and be the kubelet meanwhile: whatever others do, it is answered."""
    attacking = asyncio.create_task(clients.attack(requests))
    while not attacking.done():
        assert await ask(server, "/healthz/ready") == b""
    await attacking


async def at_rest(server: Running, files: int, tasks: int) -> int:
    """Return the memory it has, once it holds no more files and tasks than at first."""
    end = time.monotonic() + 60
    while await count_tasks(server) > tasks or server.open_files() > files:
        held = await ask(server, "/debug/tasks")
        assert time.monotonic() < end, f"seed {SEED}: {server.open_files()} files, {held!r}"
        await asyncio.sleep(LOOK_SECONDS)
    return server.resident_kib()


async def count_tasks(server: Running) -> int:
    return int(json.loads(await ask(server, "/debug/tasks"))["count"])


@pytest.mark.slow
async def test_hostile_requests_change_nothing(tmp_path: Path) -> None:
    random = Random(SEED)  # noqa: S311 -- to be drawn again
    misbehaving = Misbehaving(Random(SEED))  # noqa: S311 -- as above
    application = Pages({"/probe": misbehaving, "/metrics": page("# TYPE a gauge\na 1\n", TEXT)})
    async with (
        web_server(Admin()) as admin_port,
        web_server(Pages({"/stats/prometheus": page(ENVOY * 500)})) as envoy_port,
        web_server(application) as application_port,
        status_process(
            tmp_path,
            admin_port=admin_port,
            envoy_port=envoy_port,
            application_port=application_port,
        ) as server,
    ):
        for path in ("/healthz/ready", "/metrics", "/debug/memory"):  # imports what they need
            await ask(server, path)
        files, tasks = server.open_files(), await count_tasks(server)
        clients = Clients(server.port, random)
        await attack(server, clients, REQUESTS // 2)  # what all may hold at once has been held
        before = await at_rest(server, files, tasks)
        await attack(server, clients, REQUESTS // 2)
        grown = await at_rest(server, files, tasks) - before
        log, calls = server.log(), await server.calls()

    assert set(clients.statuses) <= ANSWERS, f"seed {SEED}: {clients.statuses}"
    assert {200, 307, 400, 403, 404, 413, 431} <= set(clients.statuses)
    assert calls == ""
    assert "Traceback" not in log
    assert "never retrieved" not in log
    assert grown < LEAKED_KIB
