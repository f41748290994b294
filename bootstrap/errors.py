"""What this package raises on purpose.

BootstrapError             the proxy cannot be started with what was configured; fatal, not retried
"""

from collections.abc import Sequence


class BootstrapError(Exception):
    """Unusable configuration, files or addresses; `problems` holds one line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
