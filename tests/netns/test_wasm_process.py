"""The process that fetches modules where no name server answers."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from agent.wasm.order import FetchOrder, write_order, write_settings
from agent.wasm.settings import FetchSettings
from tests.netns.namespaces import ROOT
from tests.netns.resolvers import without_answers
from tests.waiting import until

pytestmark = pytest.mark.root


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


async def test_an_agent_that_is_gone_leaves_no_process_that_waits(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    settings = write_settings(FetchSettings(str(tmp_path)))
    with ours, theirs:
        process = await asyncio.create_subprocess_exec(
            *without_answers(tmp_path),
            *(sys.executable, "-P", "-m", "agent.wasm", settings),
            stdin=theirs.fileno(),
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        theirs.close()
        try:
            ours.send(write_order(1, FetchOrder("http://modules.example.com/a", "", 60, None)))
            await until(lambda: threads(process.pid) > 1)
            ours.close()

            async with asyncio.timeout(20):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
