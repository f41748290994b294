"""What the long-running process does without, and that it can have it when it needs it."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from aiohttp import web

from tests.fakes.web import Pages, server_context, web_server

SCRIPT = """
import json, sys
from agent.process import import_frameworks
import_frameworks()
import agent.run
unneeded = (
    *("ssl", "typing_extensions", "h2", "cryptography"),
    *("agent.channel.server", "agent.channel.tls", "agent.channel.policies"),
    *("agent.status.application", "agent.status.page", "agent.masking"),
)
found = [name for name in unneeded if name in sys.modules]
import asyncio
from agent.http.client import fetch
from agent.http.tls.client import trusting_context
answer = asyncio.run(
    fetch("GET", "127.0.0.1", int(sys.argv[1]), "/", timeout_seconds=30, tls=trusting_context())
)
import typing_extensions
print(json.dumps([found, answer.status, typing_extensions.__name__]))
"""


async def test_without_ssl_and_yet_it_speaks_https(tmp_path: Path) -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    async with web_server(Pages({"/": answer}), tls=server_context(tmp_path)) as port:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SCRIPT, str(port), stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate()

    assert json.loads(printed) == [[], 200, "typing_extensions"]


CALL = """
import asyncio, os, sys
from agent.process import import_frameworks
import_frameworks(*sys.argv[2:])
import grpc.aio
async def call():
    async with grpc.aio.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
        try:
            await channel.unary_unary("/a/b")(b"")
        except grpc.aio.AioRpcError as error:
            print(error.code().name, os.environ.get("GRPC_VERBOSITY"))
asyncio.run(call())
"""
PREFACE_BYTES, HEADER_BYTES, HEADERS = 24, 9, 1
SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
GOAWAY = bytes((0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 11))


async def send_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take a call over HTTP/2, and end it as a server does that has had enough of its client."""
    await reader.readexactly(PREFACE_BYTES)
    writer.write(SETTINGS)
    kind = None
    while kind != HEADERS:
        header = await reader.readexactly(HEADER_BYTES)
        kind = header[3]
        await reader.readexactly(int.from_bytes(header[:3], "big"))
    writer.write(GOAWAY)
    writer.close()


@pytest.mark.parametrize(
    ("asked", "own", "is_silent"),
    [
        ((), None, True),
        (("NONE",), None, True),
        (("INFO",), None, False),
        (("NONE",), "INFO", False),
    ],
)
async def test_grpc_says_nothing_to_an_operator_who_has_not_asked(
    asked: tuple[str, ...], own: str | None, *, is_silent: bool
) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    server = await asyncio.start_server(send_away, "127.0.0.1", 0)
    async with server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CALL, str(server.sockets[0].getsockname()[1]), *asked),
            env=environ if own is None else {**environ, "GRPC_VERBOSITY": own},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, logged = await process.communicate()

    assert printed.decode().split() == ["UNAVAILABLE", str(own)]
    assert (b"goaway" not in logged) == is_silent, logged.decode()
