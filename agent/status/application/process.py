"""Runs a command that checks the application.

Source: xds-identity-dns.md section 9.2.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

#: Python ignores these; a command does not expect to inherit that.
IGNORED: Final = (signal.SIGPIPE, signal.SIGXFSZ)
#: What was killed and is not gone by then waits for a disk; lifecycle/process.py reaps it.
KILL_SECONDS: Final = 1.0


async def run(command: Sequence[str], *, timeout_seconds: float) -> str | None:
    """Return how a command failed, None if it ended with status 0.

    It inherits environment and working directory, reads and writes nothing. At the time-out, or
    where nobody waits for it any more, it is killed with what it has started.

    Raises:
        OSError: the system lets us start nothing at all.
        ValueError: this is no command.
    """
    try:
        pid = _spawn(command)
    except FileNotFoundError:
        return f"{command[0]}: no such file in PATH"
    except PermissionError:
        return f"{command[0]}: not executable by uid {os.geteuid()}"
    try:
        async with asyncio.timeout(timeout_seconds):
            await _exited(pid)
    except TimeoutError:
        return f"command timeout exceeded: {await _kill(pid)}"
    except BaseException:  # cancelled, or there is no descriptor left to wait with
        await _kill(pid)
        raise
    return _reap(pid)


def _spawn(command: Sequence[str]) -> int:
    return os.posix_spawnp(
        command[0],
        tuple(command),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setpgroup=0,  # its own, to be killed as a whole
        setsigmask=[],
        setsigdef=IGNORED,
    )


async def _exited(pid: int) -> None:
    """Return once the process is over; it is left to be reaped."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    pidfd = os.pidfd_open(pid)
    loop.add_reader(pidfd, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


async def _kill(pid: int) -> str | None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(OSError):  # not in time, or as above
        async with asyncio.timeout(KILL_SECONDS):
            await _exited(pid)
    return _reap(pid)


def _reap(pid: int) -> str | None:
    """Return how a process failed that should be over."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        return "still running"
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"signal: {signal.strsignal(-code) or -code}".lower()
    return f"exit status {code}" if code else None
