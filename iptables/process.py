"""Runs programs at once and collects what they say.

By posix_spawn: importing subprocess would take longer than the programs run.

Source: performance.md, "Small tools".
"""

import errno
import os
import select
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

#: Where programs are looked for if PATH is unset.
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOT_FOUND: Final = 127  # as a shell has it, and so is the next
CANNOT_RUN: Final = 126
EXHAUSTED: Final = 125  # it cannot be run now, for want of processes, memory or files
NOT_NOW: Final = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
#: The tools wait 30 seconds for their lock, and two of them may wait for the same.
TIMEOUT_SECONDS: Final = 90.0
CAP_NET_ADMIN: Final = 12
KILL: Final = 9  # SIGKILL; the signal module builds enumerations at import


class Command(NamedTuple):
    """A program to run."""

    argv: tuple[str, ...]
    text: str = ""  #: its standard input


class Result(NamedTuple):
    """How a program ended."""

    status: int  #: exit status, negative if a signal ended it
    out: str
    err: str


def lacks_net_admin() -> bool:
    """Return whether this process may not change packet filter rules; False if that is unknown."""
    capabilities = effective_capabilities()
    return capabilities is not None and not capabilities >> CAP_NET_ADMIN & 1


def effective_capabilities() -> int | None:
    """Return the capabilities of this process as bits, None if that is unknown."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123 - pathlib is slow
            (capabilities,) = (line.split()[1] for line in status if line.startswith("CapEff:"))
    except OSError:
        return None
    return int(capabilities, 16)


def run_all(
    commands: Sequence[Command], *, timeout_seconds: float = TIMEOUT_SECONDS
) -> list[Result]:
    """Run programs at once; return how each ended, in their order.

    A program that is not there ends with status 127, one that cannot be run with 126, or with 125
    if it could at another time. One that takes too long is killed.
    """
    children = [_Child(command) for command in commands]
    pipes = {fd: child for child in children for fd in child.pipes}
    poll = select.poll()
    for fd, child in pipes.items():
        poll.register(fd, select.POLLOUT if fd == child.stdin else select.POLLIN)
    deadline = time.monotonic() + timeout_seconds
    while pipes:
        ready = poll.poll(max(deadline - time.monotonic(), 0) * 1000)
        for fd, _ in ready:
            if pipes[fd].is_done_with(fd):
                poll.unregister(fd)
                os.close(fd)
                del pipes[fd]
        if not ready:
            for child in pipes.values():
                child.kill()
            break
    for fd in pipes:
        os.close(fd)
    return [child.result() for child in children]


class _Child:
    """A running program and its three pipes."""

    def __init__(self, command: Command) -> None:
        self.pid = 0
        self.problem = ""
        self.status = CANNOT_RUN
        self.killed = False
        self.input = command.text.encode()
        self.stdin = -1
        self.output: dict[int, bytearray] = {}
        path = _find(command.argv[0])
        if path:
            self._start(path, command.argv)
        else:
            self.problem, self.status = "not found in PATH", NOT_FOUND

    @property
    def pipes(self) -> list[int]:
        return [self.stdin, *self.output] if self.pid else []

    def _start(self, path: str, argv: tuple[str, ...]) -> None:
        pairs: list[tuple[int, int]] = []  # (the child's end, ours)
        try:
            pairs += [os.pipe()]
            pairs += [os.pipe()[::-1]]
            pairs += [os.pipe()[::-1]]
            actions = [(os.POSIX_SPAWN_DUP2, pair[0], fd) for fd, pair in enumerate(pairs)]
            self.pid = os.posix_spawn(path, argv, os.environ, file_actions=actions)
        except OSError as error:
            self.problem = f"cannot be run: {error.strerror}"
            self.status = EXHAUSTED if error.errno in NOT_NOW else CANNOT_RUN
        for theirs, ours in pairs:
            os.close(theirs)
            if self.pid:
                os.set_blocking(ours, False)
            else:
                os.close(ours)
        if self.pid:
            self.stdin = pairs[0][1]
            self.output = {pairs[1][1]: bytearray(), pairs[2][1]: bytearray()}

    def is_done_with(self, fd: int) -> bool:
        """Move what a pipe takes or has; return whether that was all."""
        if fd != self.stdin:
            data = os.read(fd, 65536)
            self.output[fd] += data
            return not data
        try:
            self.input = self.input[os.write(fd, self.input) :]
        except BrokenPipeError:  # it ended without reading: its exit status says why
            return True
        return not self.input

    def kill(self) -> None:
        os.kill(self.pid, KILL)
        self.killed = True

    def result(self) -> Result:
        if not self.pid:
            return Result(self.status, "", self.problem)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        out, err = (bytes(data).decode(errors="replace") for data in self.output.values())
        if self.killed:
            err = "it did not end in time and was killed"
        return Result(status, out, err)


def _find(name: str) -> str:
    for directory in os.environ.get("PATH", DEFAULT_PATH).split(":"):
        path = f"{directory}/{name}"
        if directory and os.access(path, os.X_OK):
            return path
    return ""
