"""Writes log lines, to where the global flags say.

Source: bootstrap.md section 1.3.
"""

import errno
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, TextIO

from iptables.flags import Parsed, UsageError
from iptables.logline import DEFAULT_SCOPE, is_written, level_of, parse_levels, render

#: What writing to standard output may end with: no reader, no room, no device.
UNWRITABLE: Final = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Log:
    """A log with one scope, the default one."""

    def __init__(
        self,
        threshold: str = "info",
        targets: Sequence[TextIO] = (),
        *,
        as_json: bool = False,
        with_caller: bool = False,
    ) -> None:
        self.threshold = threshold
        self.targets = targets or (sys.stdout,)
        self.as_json = as_json
        self.with_caller = with_caller

    def write(self, level: str, text: str) -> None:
        """Write a line, if its level is written; the text may hold line breaks.

        That nobody reads it, or that a disk is full, must not stop a change half-way.
        """
        if not is_written(level, self.threshold):
            return
        caller = _caller() if self.with_caller else ""
        text = text.rstrip("\n").encode(errors="backslashreplace").decode()
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        utc, microseconds = time.gmtime(seconds), nanoseconds // 1000
        line = render(utc, microseconds, level, text, caller=caller, as_json=self.as_json)
        for target in self.targets:
            with suppress(OSError):
                target.write(f"{line}\n")

    def flush(self) -> None:
        """Show what was written, before something that may take long, and at the end."""
        for target in self.targets:
            try:
                target.flush()
            except OSError:
                _give_up(target.fileno())


def open_log(flags: Parsed, *, usual_target: str) -> Log:
    """Return the log that the global flags describe.

    Args:
        flags: the command line.
        usual_target: where lines go unless the command line says so: stdout or stderr.

    Raises:
        UsageError: a level is unknown, or a target cannot be opened.
    """
    errors: list[str] = []
    levels = parse_levels(flags.text("log_output_level"), errors)
    if errors:
        raise UsageError("; ".join(errors))
    targets = flags.texts("log_target") if "log_target" in flags.given else (usual_target,)
    return Log(
        level_of(levels),
        [_open(target) for target in dict.fromkeys(targets)],
        as_json=flags.is_on("log_as_json"),
        with_caller=bool({DEFAULT_SCOPE, "all"} & set(flags.text("log_caller").split(","))),
    )


def without_output(error: OSError) -> int:
    """Return the exit status of a command whose standard output could not be written.

    One line says why; none where the reader has gone, who has seen enough.

    Raises:
        OSError: that was not it.
    """
    if error.filename is not None or error.errno not in UNWRITABLE:
        raise error
    with suppress(OSError):  # nobody to tell
        _give_up(sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            sys.stderr.write(f"Error: standard output: {(error.strerror or '').lower()}\n")
    return 1


def _give_up(descriptor: int) -> None:
    """Have what could not be written go nowhere: it is still held, and would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def open_target(target: str) -> TextIO:
    """Return where lines go: stdout, stderr or a file.

    Raises:
        OSError: it cannot be opened; a pipe that nobody reads is not waited for.
    """
    if target in ("stdout", "stderr"):
        return sys.stdout if target == "stdout" else sys.stderr
    file = open(  # noqa: SIM115 - open until the end
        target, "a", buffering=1, encoding="utf-8", opener=_open_at_once
    )
    os.set_blocking(file.fileno(), True)
    return file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


def _open(target: str) -> TextIO:
    try:
        return open_target(target)
    except OSError as error:
        raise UsageError(f"--log_target={target!r}: {error.strerror}") from error


def _caller() -> str:
    frame = sys._getframe(2)  # noqa: SLF001 - what logging does too, without importing it
    return f"{'/'.join(frame.f_code.co_filename.rsplit('/', 2)[-2:])}:{frame.f_lineno}"
