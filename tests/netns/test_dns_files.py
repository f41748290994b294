"""resolv.conf where the kernel grants no watch."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.netns.namespaces import ROOT

pytestmark = pytest.mark.root

FOLLOW = """
import asyncio, logging, sys
from pathlib import Path
from agent.dns.files import follow
logging.basicConfig(stream=sys.stdout, format="%(message)s")
async def main():
    texts = asyncio.Queue()
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(10):
        following = tasks.create_task(follow(Path(sys.argv[1]), "", texts.put_nowait))
        print("read:", await texts.get())
        await asyncio.sleep(0)
        print("still there:", not following.done())
        following.cancel()
asyncio.run(main())
"""


def test_a_node_without_watches_left_is_no_obstacle(tmp_path: Path) -> None:
    """All agents of a node run as one user, who has 128 inotify instances by default."""
    path = tmp_path / "resolv.conf"
    path.write_text("nameserver 10.0.0.1")
    script = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"'

    without_watches = ("unshare", "--user", "--map-root-user", "sh", "-c", script, "sh")

    done = subprocess.run(
        [*without_watches, sys.executable, "-c", FOLLOW, str(path)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=30,
    )

    assert done.stdout.splitlines() == [
        f"cannot watch path={path} reason='too many open files'",
        "read: nameserver 10.0.0.1",
        "still there: True",
    ]
