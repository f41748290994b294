"""Docker's credential helpers: programs that know who may pull from a registry.

Source: xds-identity-dns.md sections 3.5 and 3.8; docker-credential-helpers, "Development".
"""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping

from agent.wasm.fetch.errors import FetchError
from agent.wasm.fetch.registry.auth import NOT_FOUND


async def ask_helper(name: str, server: str, environ: Mapping[str, str]) -> bytes:
    """Return what a helper says of a registry; it is ended with whoever waits for it.

    Args:
        name: as Docker's configuration has it.
        server: as Docker names the registry.
        environ: of the helper, with the PATH that it is found by.

    Raises:
        FetchError: there is none, or it fails. What it says is not quoted.
    """
    program = f"docker-credential-{name}"
    try:
        process = await asyncio.create_subprocess_exec(
            program, "get", stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environ
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such program"
        raise FetchError(f"{program!r}: {reason}".lower()) from None
    try:
        answer, _ = await process.communicate(server.encode())
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode and NOT_FOUND not in answer:
        raise FetchError(f"{program!r}: exit status {process.returncode}")
    return answer
