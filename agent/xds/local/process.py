"""The child process that turns resource files into messages."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from agent.protobuf.wire import WireError
from agent.xds.discovery import Kind, Resource, read_resources, write_response
from agent.xds.snapshot import Snapshot, make_snapshot

CHILD_SECONDS: Final = 60.0
#: What the child exits with when a file is at fault (EX_DATAERR); it says so in one line.
BAD_DATA: Final = 65


class Conversion(NamedTuple):
    """What became of a set of files: a snapshot, or what is wrong with one of them."""

    snapshot: Snapshot | None
    problem: str = ""
    is_final: bool = True  #: the same files would come to the same


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
    try:
        code, output, errors = await _run(packed)
    except TimeoutError:
        return Conversion(None, f"{place}: conversion took longer than {CHILD_SECONDS:g} seconds")
    except (OSError, RuntimeError) as error:  # no more processes, or threads
        reason = str(getattr(error, "strerror", None) or error).lower()
        return Conversion(None, f"{place}: cannot be converted now: {reason}", is_final=False)
    if code:
        return _failure(place, code, errors)
    try:
        version, resources = read_resources(output)
    except WireError as error:
        return Conversion(None, f"{place}: the conversion's result cannot be read: {error}")
    return Conversion(make_snapshot(version, resources))


def _failure(place: str, code: int, errors: bytes) -> Conversion:
    lines = errors.decode(errors="replace").strip().splitlines() or ["no output"]
    if code == BAD_DATA:
        return Conversion(None, f"{place}/{lines[-1]}")
    if code == -signal.SIGKILL:  # by the kernel, as nobody else knows it
        problem = "conversion was killed, as by a lack of memory"
        return Conversion(None, f"{place}: {problem}", is_final=False)
    how = f"exit status {code}" if code > 0 else signal.Signals(-code).name
    return Conversion(None, f"{place}: conversion failed: {how}: {lines[-1]}")


async def _run(packed: bytes) -> tuple[int, bytes, bytes]:
    """Return exit code, or minus the signal, and what the child wrote to output and errors."""
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
            return await child.wait(), output, errors
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
