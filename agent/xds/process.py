"""This process's memory: when it is given back.

Source: performance.md, "gRPC and the allocator" and rule 8.
"""

import asyncio
import gc
from typing import Any, ClassVar, Final

M_MMAP_THRESHOLD: Final = -3
MMAP_THRESHOLD_BYTES: Final = 65536
LARGE_BYTES: Final = 1_000_000
TRIM_AFTER_SECONDS: Final = 0.2
#: After a stream, by when its tasks are gone too.
COLLECT_AFTER_SECONDS: Final = 1.0


class Allocator:
    """Keeps large messages from staying in memory once they are gone.

    A fixed threshold makes every large block a mapping of its own, which is given back when it is
    freed; a trim gives back the free pages in between. Where the C library has neither, nothing
    happens.
    """

    #: By which loop and when, in its time, garbage is collected next: once for a whole process.
    _collecting: ClassVar[tuple[asyncio.AbstractEventLoop | None, float]] = None, 0.0

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
        """Say that a message was dealt with; memory is given back when no other follows at once."""
        if size <= LARGE_BYTES:
            return
        if self._later is not None:
            self._later.cancel()
        loop = asyncio.get_running_loop()
        self._later = loop.call_later(TRIM_AFTER_SECONDS, self._trim_now)

    def ended(self) -> None:
        """Say that a stream has ended; what it held is given back soon.

        Tasks that were cancelled keep their frames, and with them the call, in cycles: until these
        are collected, which may take hours, gRPC does not close the connection.
        """
        loop = asyncio.get_running_loop()
        now, (collector, due) = loop.time(), Allocator._collecting
        if collector is not loop or now >= due:
            Allocator._collecting = loop, now + COLLECT_AFTER_SECONDS
            loop.call_later(COLLECT_AFTER_SECONDS, self._collect)

    def _collect(self) -> None:
        gc.collect()
        self._trim_now()

    def _trim_now(self) -> None:
        if self._trim is not None:
            self._trim(0)
