"""The process that fetches modules where no name server answers."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from agent.wasm.order import FetchOrder, write_order, write_settings
from agent.wasm.settings import FetchSettings
from tests.netns.namespaces import ROOT
from tests.waiting import until

pytestmark = pytest.mark.root

#: Whatever is sent to a neighbour that is not there is lost.
SILENT = """
ip link add here type veth peer name there
ip address add 192.0.2.1/24 dev here
ip link set here up
ip link set there up
ip neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev here
mount --bind "$0" /etc/resolv.conf
exec "$@"
"""
#: More than a minute until the resolver gives up.
RESOLVER = "nameserver 192.0.2.2\noptions timeout:30 attempts:5\n"


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


async def test_an_agent_that_is_gone_leaves_no_process_that_waits(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text(RESOLVER)
    ours, theirs = socket.socketpair()
    settings = write_settings(FetchSettings(str(tmp_path)))
    with ours, theirs:
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "--net", "sh", "-ec", SILENT, str(tmp_path / "resolv.conf")),
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
