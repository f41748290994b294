"""This process's allocator.

Source: performance.md, "gRPC and the allocator" and rule 8.
"""

import asyncio
from typing import Any, Final

M_MMAP_THRESHOLD: Final = -3
MMAP_THRESHOLD_BYTES: Final = 65536
LARGE_BYTES: Final = 1_000_000
TRIM_AFTER_SECONDS: Final = 0.2


class Allocator:
    """Keeps large messages from staying in memory once they are gone.

    A fixed threshold makes every large block a mapping of its own, which is given back when it is
    freed; a trim gives back the free pages in between. Where the C library has neither, nothing
    happens.
    """

    def __init__(self) -> None:
        self._trim: Any = None
        self._later: asyncio.TimerHandle | None = None

    def prepare(self) -> None:
        """Fix the threshold; called before the first message, when Envoy has its configuration."""
        if self._trim is not None:
            return
        import ctypes  # noqa: PLC0415 - 1 ms that Envoy need not wait for

        libc = ctypes.CDLL(None)
        self._trim = getattr(libc, "malloc_trim", None)
        mallopt = getattr(libc, "mallopt", None)
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)

    def received(self, size: int) -> None:
        """Say that a message has arrived and is about to be written."""
        if size > LARGE_BYTES:
            self._trim_now()

    def written(self, size: int) -> None:
        """Say that a message was written; memory is given back when no other follows at once."""
        if size <= LARGE_BYTES:
            return
        if self._later is not None:
            self._later.cancel()
        loop = asyncio.get_running_loop()
        self._later = loop.call_later(TRIM_AFTER_SECONDS, self._trim_now)

    def _trim_now(self) -> None:
        if self._trim is not None:
            self._trim(0)
