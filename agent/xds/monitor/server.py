"""Tells whoever watches of each push, and of what it changes.

The relay waits for nobody here: what is told is kept for a watcher, and one that does not come for
it in time is told no more.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Final

from agent.protobuf.wire import WireError
from agent.xds.discovery import Kind, Request, Response, read_subscription
from agent.xds.inventory import Change, Inventory
from agent.xds.monitor.report import Document, pushed
from agent.xds.sync import Answer, Push

#: Each is told everything anew.
MAX_WATCHERS: Final = 8
#: Kept for one that is slow.
KEPT_LINES: Final = 256


class Audience:
    """Those who watch, and what is known for their sake alone."""

    def __init__(self, document: Callable[[], Document]) -> None:
        """Have nobody yet; `document` returns what a watcher is told first."""
        self._document = document
        self._watchers: set[_Watcher] = set()
        self._inventories: dict[tuple[Kind, str], Inventory] = {}

    def __bool__(self) -> bool:
        return bool(self._watchers)

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """Yield lines of JSON: what there is to know now, then each push with its answer."""
        if len(self._watchers) >= MAX_WATCHERS:
            yield _line({"end": f"{MAX_WATCHERS} others watch already"})
            return
        watcher = _Watcher()
        self._watchers.add(watcher)
        try:
            yield _line(self._document())
            while (line := await watcher.next()) is not None:
                yield line
            yield _line({"end": watcher.end})
        finally:
            self._watchers.discard(watcher)
            if not self._watchers:
                self._inventories.clear()

    def close(self) -> None:
        """Tell all that nothing more will come."""
        for watcher in self._watchers:
            watcher.finish("the agent ends")

    def began(self, kind: Kind, request: Request, raw: bytes) -> None:
        """Take what a client says that it has, with its first request for a type."""
        inventory = self._inventory(kind, request.type_url)
        if kind is Kind.SOTW:
            if not request.version:
                inventory.begin({})
            return
        with suppress(WireError):  # it is for the control plane to refuse
            inventory.begin(read_subscription(kind, raw).initial_versions)

    def change(self, kind: Kind, response: Response, raw: bytes) -> Change | None:
        """Return what a push changes; none if that cannot be read."""
        try:
            return self._inventory(kind, response.type_url).apply(raw)
        except WireError:
            return None

    def tell(self, push: Push, answer: Answer | None) -> None:
        """Tell all what became of a push; without an answer, none will come any more."""
        epoch = time.time() - time.monotonic()
        line = _line(pushed(push, answer, epoch))
        for watcher in self._watchers:
            watcher.offer(line)

    def _inventory(self, kind: Kind, type_url: str) -> Inventory:
        key = kind, type_url
        if key not in self._inventories:
            self._inventories[key] = Inventory(kind, type_url)
        return self._inventories[key]


class _Watcher:
    """Lines for one who watches."""

    def __init__(self) -> None:
        self.end = ""  #: why nothing more comes
        self._lines: deque[bytes] = deque()
        self._changed = asyncio.Event()

    def offer(self, line: bytes) -> None:
        """Keep a line, if it is come for."""
        if self.end:
            return
        if len(self._lines) < KEPT_LINES:
            self._lines.append(line)
            self._changed.set()
        else:
            self.finish(f"too slow: {KEPT_LINES} lines were waiting")

    def finish(self, end: str) -> None:
        """Keep no more lines."""
        self.end = self.end or end
        self._changed.set()

    async def next(self) -> bytes | None:
        """Return the next line; none if there is no other, and never will be."""
        while not self._lines:
            if self.end:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._lines.popleft()


def _line(found: Document) -> bytes:
    return json.dumps(found).encode() + b"\n"
