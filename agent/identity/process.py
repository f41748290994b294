"""The child process that makes a key and its CSR.

The library it takes is 12 MB that no pod should carry for a moment's work twice a day. The key
comes through a pipe: it is on no command line, in no environment and on no disk.

Source: performance.md, recommended start sequence.
"""

# asyncio is imported in the functions: the first child is started before the agent has it.
# ruff: noqa: PLC0415

import os
import signal
import sys
from contextlib import suppress
from typing import Final

from agent.credentials.x509 import pem_bodies, request_public_key
from agent.errors import SecretError
from agent.identity.authority import Csr
from agent.identity.keys import KeySettings, write_words
from agent.identity.secret import PrivateKey

CHILD_SECONDS: Final = 60.0
#: Less than the agent's and Envoy's, which start meanwhile. With none less an agent on two cores
#: would be ready 16 ms later without a mesh's listeners; with the least possible, a busy machine
#: would have those wait for the certificate.
NICE: Final = 5
CHUNK_BYTES: Final = 65536
CHILD: Final = "from agent.identity.__main__ import run; run()"
REQUEST: Final = b"-----BEGIN CERTIFICATE REQUEST-----"
KEY_MARK: Final = b"PRIVATE KEY"


class CsrChild:
    """A child at work; whoever has it either takes its result or closes it."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self._pipe = pipe
        self.pidfd = os.pidfd_open(pid)

    async def result(self) -> Csr:
        """Return the key and the request once the child has ended.

        Raises:
            SecretError: it has failed, or takes too long.
        """
        import asyncio

        try:
            async with asyncio.timeout(CHILD_SECONDS):
                output = await self._read()
        except TimeoutError:
            raise SecretError(f"no key and CSR within {CHILD_SECONDS:g} seconds") from None
        finally:
            self.close()
        return read_output(output)

    def close(self) -> None:
        """End the child, and leave nothing of it."""
        if self._pipe < 0:
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        with suppress(ChildProcessError):  # somebody who reaps orphans came first
            os.waitpid(self.pid, 0)
        os.close(self.pidfd)
        os.close(self._pipe)
        self._pipe = -1

    async def _read(self) -> PrivateKey:
        """Return all that the child writes until its end."""
        import asyncio

        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._pipe, readable.set)
        output = PrivateKey()
        try:
            while True:
                await readable.wait()
                readable.clear()
                chunk = PrivateKey(os.read(self._pipe, CHUNK_BYTES))
                if not chunk:
                    return output
                output = PrivateKey(output + chunk)
        finally:
            loop.remove_reader(self._pipe)


def spawn(settings: KeySettings) -> CsrChild:
    """Start a child that makes a key and its CSR, beside what is more urgent.

    Raises:
        SecretError: the system does not let us.
    """
    try:
        return _spawn(settings)
    except OSError as error:
        raise SecretError(f"cannot start {sys.executable}: {error.strerror}") from error


def _spawn(settings: KeySettings) -> CsrChild:
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    pid = 0
    try:
        pid = os.posix_spawn(
            sys.executable,
            # -P: what lies in the working directory is no module of ours. -m would be 2 ms more.
            [sys.executable, "-P", "-c", CHILD, *write_words(settings)],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, theirs, 1),
                (os.POSIX_SPAWN_DUP2, theirs, 2),
            ],
            setsigmask=[],
        )
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
        return CsrChild(pid, ours)
    except OSError:
        os.close(ours)
        if pid:  # it is there, but no descriptor is left to watch it by
            os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        raise
    finally:
        os.close(theirs)


def spawn_early(settings: KeySettings) -> CsrChild | None:
    """Start a child before anybody waits for it.

    None if there can be no child: whoever waits for a certificate is told why.
    """
    try:
        return spawn(settings)
    except SecretError:
        return None


def read_output(output: PrivateKey) -> Csr:
    """Return what a child has made: a key, and the request after it.

    Raises:
        SecretError: it has failed; ends with what it said last, which is never a key.
    """
    at = output.find(REQUEST)
    request = output[at:] if at >= 0 else b""
    bodies = pem_bodies(request, b"CERTIFICATE REQUEST")
    if not bodies:
        # Not taken apart if there is a key in it: no exception's frame shall show any of that.
        has_key = output.find(KEY_MARK) >= 0
        lines = [] if has_key else output.decode(errors="replace").strip().splitlines()
        said = lines[-1] if lines else "no output"
        raise SecretError(f"cannot make key and CSR: {said}")
    try:
        public_key = request_public_key(bodies[0])
    except ValueError as error:
        raise SecretError(f"cannot read the CSR just made: {error}") from None
    return Csr(PrivateKey(output[:at]), request.decode(), public_key)
