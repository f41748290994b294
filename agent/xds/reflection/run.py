"""Serves reflection; what there is to tell comes from a child process, once.

Source: xds-identity-dns.md section 2.1.
"""

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import grpc

from agent.protobuf.wire import WireError
from agent.xds.client import SERVICE
from agent.xds.reflection.answer import Answers

if TYPE_CHECKING:
    from agent.server import Context

CHILD_SECONDS: Final = 20.0


class Reflection:
    """Reflection of one server."""

    def __init__(self) -> None:
        self._loading = asyncio.Lock()
        self._answers: Answers | None = None

    async def serve(self, context: "Context[bytes, bytes]") -> None:
        """Answer one stream until its client has no more to ask."""
        try:
            answers = await self._load()
            while isinstance(request := await context.read(), bytes):
                await context.write(answers.answer(request))
        except (OSError, TimeoutError) as error:  # such as no more processes
            context.set_code(grpc.StatusCode.UNAVAILABLE)
            context.set_details(f"no descriptors: {str(error) or 'no answer in time'}")
        except WireError as error:
            context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
            context.set_details(f"request cannot be read: {error}")

    async def _load(self) -> Answers:
        async with self._loading:
            if self._answers is None:
                self._answers = Answers([SERVICE], await _descriptors())
            return self._answers


async def _descriptors() -> bytes:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "agent.xds.reflection"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(CHILD_SECONDS):
            output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise OSError(f"the process that has them exited with {child.returncode}")
    return output
