"""What the long-running process does without, and that it can have it when it needs it."""

import asyncio
import json
import sys
from pathlib import Path

from aiohttp import web

from tests.fakes.web import Pages, server_context, web_server

SCRIPT = """
import json, sys
from agent.process import import_frameworks
import_frameworks()
import agent.run
unneeded = (
    *("ssl", "typing_extensions", "h2"),
    *("agent.status.application", "agent.status.page", "agent.effective"),
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
