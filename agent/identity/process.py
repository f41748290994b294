"""The child process that makes a key and its CSR.

The library it takes is 12 MB that no pod should carry for a moment's work twice a day. The key
comes through a pipe: it is on no command line, in no environment and on no disk.

The first child is a fork, begun before the agent imports anything else or knows what is wanted: a
second processor is idle then, and Envoy is about to ask for the certificate. It makes the key that
the environment asks for; for whom, it is told later. This is a guess, and may be a wrong one: the
child makes another key then, or is ended. Renewals are no matter of milliseconds, and a process
with gRPC in it cannot be forked: they have a Python of their own.

Source: performance.md, recommended start sequence.
"""

# Imported before nearly everything else: what the first child does not need, functions import.
# ruff: noqa: PLC0415

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from agent.errors import SecretError
from agent.identity.keys import KeySettings, write_words

if TYPE_CHECKING:
    from agent.identity.authority import Csr
    from agent.identity.secret import PrivateKey

CHILD_SECONDS: Final = 60.0
#: Less than the agent's and Envoy's, which start meanwhile. With none less an agent on two cores
#: would be ready 16 ms later without a mesh's listeners; with the least possible, a busy machine
#: would have those wait for the certificate.
NICE: Final = 5
CHUNK_BYTES: Final = 65536
PR_SET_DUMPABLE: Final = 4  #: prctl(2)
CHILD: Final = "from agent.identity.__main__ import run; run()"
#: Who sets one of these has its certificate from elsewhere, and no need of a child.
ELSEWHERE: Final = ("FILE_MOUNTED_CERTS", "AGENT_LOCAL_XDS")
UNSET: Final = ("", "0", "f", "F", "false", "False", "FALSE")


class CsrChild:
    """A child at work; whoever has it either takes its result or closes it."""

    def __init__(self, pid: int, answers: int, words: int | None = None) -> None:
        """Take over a child and its pipes; raise OSError if no descriptor is left to watch it by.

        Args:
            pid: its process id.
            answers: the end of a pipe where it writes.
            words: the end of a pipe from which it reads what is wanted; none if it knows.
        """
        self.pid = pid
        self._answers = answers
        self._words = words
        self._pidfd = os.pidfd_open(pid)

    def tell(self, settings: KeySettings) -> None:
        """Tell a child that was begun what is wanted; one that has died shows in its result."""
        assert self._words is not None  # noqa: S101 - of `begin`
        with suppress(BrokenPipeError):
            os.write(self._words, os.fsencode("\0".join(write_words(settings))))
        os.close(self._words)
        self._words = None

    async def result(self) -> "Csr":
        """Return the key and the request once the child has ended.

        Raises:
            SecretError: it has failed, or takes too long.
        """
        import asyncio

        from agent.identity.authority import read_csr

        try:
            async with asyncio.timeout(CHILD_SECONDS):
                output = await self._read()
        except TimeoutError:
            raise SecretError(f"no key and CSR within {CHILD_SECONDS:g} seconds") from None
        finally:
            status = self.close()
        if not output and os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            raise SecretError(
                f"cannot make key and CSR: the child was killed by signal {number}; it takes "
                "20 MB, perhaps more than the container has left"
            )
        return read_csr(output)

    def close(self) -> int:
        """End the child, and leave nothing of it; return its status, as far as it is known.

        Who has closed its pipe has its status already: the signal that it gets here is too late.
        """
        if self._answers < 0:
            return 0
        status = 0
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        with suppress(ChildProcessError):  # somebody who reaps orphans came first
            _, status = os.waitpid(self.pid, 0)
        os.close(self._pidfd)
        os.close(self._answers)
        self._answers = -1
        if self._words is not None:
            os.close(self._words)
        return status

    async def _read(self) -> "PrivateKey":
        """Return all that the child writes until its end."""
        import asyncio

        from agent.identity.secret import PrivateKey

        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._answers, readable.set)
        output = PrivateKey()
        try:
            while True:
                await readable.wait()
                readable.clear()
                chunk = PrivateKey(os.read(self._answers, CHUNK_BYTES))
                if not chunk:
                    return output
                output = PrivateKey(output + chunk)
        finally:
            loop.remove_reader(self._answers)


def begin(environ: Mapping[str, str]) -> CsrChild | None:
    """Start a child that makes a key before it is known what is wanted; none if there can be none.

    Only for a process that has no other thread.
    """
    if any(environ.get(name, "") not in UNSET for name in ELSEWHERE):
        return None
    opened: list[int] = []
    pid = 0
    try:
        opened += os.pipe2(os.O_CLOEXEC)
        opened += os.pipe2(os.O_CLOEXEC)
        reads, words, answers, writes = opened
        pid = os.fork()
        if not pid:
            _work_ahead(environ, reads, writes, (words, answers))
        child = CsrChild(pid, answers, words)
    except OSError:
        _give_up(pid, opened)
        return None
    os.close(reads)
    os.close(writes)
    return child


def _work_ahead(
    environ: Mapping[str, str], reads: int, writes: int, others: tuple[int, ...]
) -> None:
    """Be the child that was begun; nothing of what the agent was about to do may follow."""
    try:
        os.nice(NICE)
        for descriptor in others:
            os.close(descriptor)
        for stream in (1, 2):
            os.dup2(writes, stream)
        from agent.identity.__main__ import run_ahead

        run_ahead(environ, reads)
    except BaseException as error:  # noqa: BLE001 - as above
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(0)


def spawn(settings: KeySettings) -> CsrChild:
    """Start a child that makes a key and its CSR, beside what is more urgent.

    Raises:
        SecretError: the system does not let us.
    """
    opened: list[int] = []
    pid = 0
    try:
        opened += os.pipe2(os.O_CLOEXEC)
        answers, writes = opened
        pid = os.posix_spawn(
            sys.executable,
            # -P: what lies in the working directory is no module of ours. -m would be 2 ms more.
            [sys.executable, "-P", "-c", CHILD, *write_words(settings)],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writes, 1),
                (os.POSIX_SPAWN_DUP2, writes, 2),
            ],
            setsigmask=[],
        )
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
        child = CsrChild(pid, answers)
    except OSError as error:
        _give_up(pid, opened)
        raise SecretError(f"cannot start {sys.executable}: {error.strerror}") from error
    os.close(writes)
    return child


def keep_to_itself() -> None:
    """Have this process leave no core dump, and no other of its user look into it: it has the key.

    Not so what it executes: Envoy has a switch of its own for that.
    """
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def _give_up(pid: int, descriptors: list[int]) -> None:
    """Leave nothing of a child that was, perhaps, started."""
    for descriptor in descriptors:
        os.close(descriptor)
    if pid:
        os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
