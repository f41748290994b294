"""The child process that turns resource files into messages."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from agent.xds.discovery import Kind, Resource, read_resources, write_response
from agent.xds.snapshot import Snapshot, make_snapshot

CHILD_SECONDS: Final = 60.0
#: What the child exits with when a file is at fault (EX_DATAERR); it says so in one line.
BAD_DATA: Final = 65


class Conversion(NamedTuple):
    """What became of a set of files: a snapshot, or what is wrong with one of them."""

    snapshot: Snapshot | None
    problem: str = ""


async def convert(place: str, files: Mapping[str, bytes]) -> Conversion:
    """Return the resources in these files, by name, converted in a child process.

    The child carries protobuf and every Envoy type (some 60 MB); this process never does. Files
    go in and resources come out as a delta response. `place` is where they lie, for messages.
    """
    packed = write_response(
        Kind.DELTA,
        "",
        version="",
        nonce="",
        resources=[Resource("", name, "", content) for name, content in sorted(files.items())],
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # what lies in the working directory is no module of ours
        "-m",
        "agent.xds.local",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(CHILD_SECONDS):
            output, errors = await child.communicate(packed)
    except TimeoutError:
        return Conversion(None, f"{place}: conversion took longer than {CHILD_SECONDS:g} seconds")
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    lines = errors.decode(errors="replace").strip().splitlines() or ["no output"]
    if child.returncode == BAD_DATA:
        return Conversion(None, f"{place}/{lines[-1]}")
    if child.returncode:
        problem = f"{place}: conversion failed: exit status {child.returncode}: {lines[-1]}"
        return Conversion(None, problem)
    version, resources = read_resources(output)
    return Conversion(make_snapshot(version, resources))
