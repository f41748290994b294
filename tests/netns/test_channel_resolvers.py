"""Channels where no name server answers."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.netns.namespaces import ROOT
from tests.netns.resolvers import without_answers

pytestmark = pytest.mark.root

#: Leaves without waiting for threads, as the agent does.
TRY_OFTEN: Final = """
import asyncio, os, threading
from agent.http.connection.client import RESOLVERS, connect_soonest

async def main():
    for _ in range(RESOLVERS + 1):
        try:
            await asyncio.wait_for(connect_soonest("istiod.example.com", 15012), 0.05)
        except TimeoutError:
            pass
    print(threading.active_count() - 1, flush=True)
    os._exit(0)

asyncio.run(main())
"""


def test_whoever_tries_again_leaves_room_for_other_names(tmp_path: Path) -> None:
    done = subprocess.run(
        [*without_answers(tmp_path), sys.executable, "-P", "-c", TRY_OFTEN],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )

    assert done.stdout == "1\n"
