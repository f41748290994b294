"""Every error this package raises on purpose.

flags.UsageError           exit code 255; the command line cannot be understood
CaptureError               exit code 1, printed one line each, never retried
├── ConfigError            unusable flags, environment or host; lists every problem
└── SystemRefusedError     a tool is missing or failed, or the kernel said no
"""

from collections.abc import Sequence


class CaptureError(Exception):
    """Traffic capture could not be set up; its text says what to change."""

    exit_code = 1  # traffic-capture.md section 2.3


class ConfigError(CaptureError):
    """Unusable settings; `problems` holds one line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class SystemRefusedError(CaptureError):
    """A tool is missing or failed, or the kernel refused a request."""
