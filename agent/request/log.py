"""Writes log lines and the one error line; `logging` alone would cost more than `wait` does."""

import os
import time

from agent.request.settings import CommandError, LogSettings
from iptables.logline import is_written, render

STREAMS = {"stdout": 1, "stderr": 2}
#: A pipe that nobody reads is not waited for.
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK


class Log:
    """Where a command's lines go."""

    def __init__(self, settings: LogSettings) -> None:
        """Try the targets.

        Raises:
            CommandError: one of them cannot be written to.
        """
        self._settings = settings
        for target in settings.targets:
            _append(target, "")

    def write(self, level: str, message: str) -> None:
        """Write a line at once, if its level is written at all."""
        if not is_written(level, self._settings.threshold):
            return
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        utc, microseconds = time.gmtime(seconds), nanoseconds // 1000
        line = render(utc, microseconds, level, message, as_json=self._settings.as_json)
        for target in self._settings.targets:
            _append(target, f"{line}\n")

    def fail(self, error: CommandError) -> None:
        """Tell the user on stderr, and whoever reads the log."""
        _append("stderr", f"Error: {error}\n")
        self.write("error", str(error))


def _append(target: str, text: str) -> None:
    if target in STREAMS:
        try:  # noqa: SIM105 - contextlib takes a millisecond
            os.write(STREAMS[target], text.encode(errors="replace"))
        except OSError:  # full, or nobody reads it: an Envoy that is ready is so all the same
            pass
        return
    try:
        file = os.open(target, FLAGS, 0o666)
        try:
            os.write(file, text.encode(errors="replace"))
        finally:
            os.close(file)
    except OSError as error:
        raise CommandError(f"--log_target={target!r}: {(error.strerror or '').lower()}") from error
