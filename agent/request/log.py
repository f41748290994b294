"""Writes log lines and the one error line; `logging` alone would cost more than `wait` does."""

import sys
import time

from agent.request.log_line import is_written, render
from agent.request.settings import CommandError, LogSettings


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
        utc = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        as_json = self._settings.as_json
        line = render(utc, nanoseconds // 1000, level, message, as_json=as_json)
        for target in self._settings.targets:
            _append(target, line)

    def fail(self, error: CommandError) -> None:
        """Tell the user on stderr, and whoever reads the log."""
        sys.stderr.write(f"Error: {error}\n")
        self.write("error", str(error))


def _append(target: str, text: str) -> None:
    if target in ("stdout", "stderr"):
        stream = sys.stdout if target == "stdout" else sys.stderr
        stream.write(text)
        stream.flush()
        return
    try:
        with open(target, "a", encoding="utf-8") as file:  # noqa: PTH123 - pathlib is slow to import
            file.write(text)
    except OSError as error:
        raise CommandError(f"--log_target={target!r}: {(error.strerror or '').lower()}") from error
