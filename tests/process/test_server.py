"""A gRPC server on a Unix socket, and what is said where there can be none."""

import asyncio
import stat
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from agent.errors import SystemRefusedError
from agent.server import MAX_PATH_BYTES, listen

LISTEN = """
import asyncio, sys, grpc
from agent.server import listen
asyncio.run(listen(grpc.aio.server(), sys.argv[1]))
"""


async def refusal(path: Path) -> str:
    server = grpc.aio.server()
    with pytest.raises(SystemRefusedError) as caught:
        await listen(server, str(path))
    await server.stop(None)
    return str(caught.value)


async def test_anybody_may_connect_and_a_stale_socket_makes_way(tmp_path: Path) -> None:
    path = tmp_path / "made" / "XDS"
    path.parent.mkdir()
    path.write_text("stale")
    server = grpc.aio.server()

    await listen(server, str(path))

    assert path.is_socket()
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    await server.stop(None)
    assert not path.exists()


async def test_a_start_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    """As where Envoy dies at once: grpc's own task would fail, and be told of by a traceback."""
    server = grpc.aio.server()
    listening = asyncio.create_task(listen(server, str(tmp_path / "XDS")))
    await asyncio.sleep(0)

    listening.cancel()

    with pytest.raises(asyncio.CancelledError):
        await listening
    await server.stop(None)
    assert not (tmp_path / "XDS").exists()


async def test_a_directory_in_its_place_is_to_be_removed(tmp_path: Path) -> None:
    (tmp_path / "XDS").mkdir()

    assert await refusal(tmp_path / "XDS") == (
        f"{tmp_path}/XDS: cannot listen there: is a directory; remove it, or what mounts it"
    )


async def test_a_file_in_place_of_its_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "proxy").write_text("")

    assert ": not a directory; its directory must be one that user " in await refusal(
        tmp_path / "proxy" / "XDS"
    )


async def test_a_path_is_too_long_only_if_it_is(tmp_path: Path) -> None:
    room = MAX_PATH_BYTES - len(str(tmp_path)) - 1
    server = grpc.aio.server()

    message = await refusal(tmp_path / ("x" * (room + 1)))
    await listen(server, str(tmp_path / ("x" * room)))

    assert message.endswith("expected a path of at most 107 bytes; shorten configPath")
    await server.stop(None)


@pytest.mark.root
def test_a_full_disk_is_told_by_its_name_and_nothing_else_is(tmp_path: Path) -> None:
    """gRPC would blame nothing, in a log line of its own."""
    full = ["mount", "-t", "tmpfs", "-o", "nr_inodes=1", "full", str(tmp_path)]
    commands = [*full, "&&", "exec", sys.executable, "-c", '"$0"', f"{tmp_path}/XDS"]

    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", " ".join(commands), LISTEN],
        capture_output=True,
        text=True,
        check=False,
    )

    assert tried.stderr.splitlines()[-1].endswith(
        "cannot listen there: no space left on device; free space, or inodes, in its directory"
    )
    assert tried.stderr.startswith("Traceback")


async def test_a_socket_that_is_taken_away_at_once_leaves_no_server(tmp_path: Path) -> None:
    """As by another agent that makes way for its own in that moment."""
    path = tmp_path / "XDS"
    server = grpc.aio.server()
    listening = asyncio.create_task(listen(server, str(path)))
    await asyncio.sleep(0)  # it is there, and being started
    path.unlink()

    with pytest.raises(SystemRefusedError, match="no such file or directory"):
        await listening

    with pytest.raises(grpc.aio.UsageError):  # it has been stopped
        await server.start()
