"""Takes note of what passes on Envoy's streams, and tells whoever watches.

The relay waits for nobody here: what is told is kept for a watcher, and one that does not come for
it in time is told no more.

Source: xds-identity-dns.md section 2.14.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Final

from agent.wire import WireError
from agent.xds.discovery import (
    Kind,
    Request,
    Response,
    read_node_id,
    read_request,
    read_response,
    read_subscription,
)
from agent.xds.inventory import Change, Inventory
from agent.xds.monitor.report import Document, Stream, document, pushed
from agent.xds.resources import abbreviation
from agent.xds.sync import Answer, Expired, Push, SyncTable

ACK_SECONDS: Final = "xds_proxy_push_ack_seconds"
REJECTS: Final = "pilot_total_xds_rejects"
EXPIRED: Final = "pilot_xds_expired_nonce"
#: Each is told everything anew.
MAX_WATCHERS: Final = 8
#: Kept for one that is slow.
KEPT_LINES: Final = 256

Record = Callable[..., None]


class Monitor:
    """All streams: the latest one's table, figures of all, and who watches."""

    def __init__(
        self,
        address: str,
        problem: Callable[[], str | None],
        *,
        count: Record,
        observe: Record,
    ) -> None:
        """Know nothing yet but who answers Envoy, and whom to ask what is wrong now."""
        self._address = address
        self._problem = problem
        self._count = count
        self._observe = observe
        self._sessions = 0
        self._current: Observer | None = None
        self._watchers: set[_Watcher] = set()
        self._inventories: dict[tuple[Kind, str], Inventory] = {}

    def open(self, number: int, kind: Kind) -> "Observer":
        """Return what is to be told of everything that passes on a new stream."""
        self._sessions = number
        self._current = Observer(self, number, kind)
        return self._current

    def document(self) -> Document:
        """Return what there is to know now."""
        stream = self._current.stream() if self._current else None
        return document(self._address, self._problem(), self._sessions, stream, _epoch())

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """Yield lines of JSON: what there is to know now, then each push with its answer."""
        if len(self._watchers) >= MAX_WATCHERS:
            yield _line({"end": f"{MAX_WATCHERS} others watch already"})
            return
        watcher = _Watcher()
        self._watchers.add(watcher)
        try:
            yield _line(self.document())
            while (line := await watcher.next()) is not None:
                yield line
            yield _line({"end": watcher.end})
        finally:
            self._watchers.discard(watcher)
            if not self._watchers:
                self._inventories.clear()

    def close(self) -> None:
        """Tell watchers that nothing more will come."""
        for watcher in self._watchers:
            watcher.finish("the agent ends")

    @property
    def is_watched(self) -> bool:
        """Whether anybody watches."""
        return bool(self._watchers)

    def began(self, kind: Kind, request: Request, raw: bytes) -> None:
        """Take what a client says that it has, with its first request for a type."""
        if kind is Kind.DELTA:
            versions = read_subscription(kind, raw).initial_versions
            self._inventory(kind, request.type_url).begin(versions)
        elif not request.version:
            self._inventory(kind, request.type_url).begin({})

    def change(self, kind: Kind, response: Response, raw: bytes) -> Change | None:
        """Return what a push changes; none if that cannot be read."""
        try:
            return self._inventory(kind, response.type_url).apply(raw)
        except WireError:
            return None

    def _inventory(self, kind: Kind, type_url: str) -> Inventory:
        key = kind, type_url
        if key not in self._inventories:
            self._inventories[key] = Inventory(kind, type_url)
        return self._inventories[key]

    def answered(self, said: Answer | Expired) -> None:
        """Take what was said of a push."""
        if isinstance(said, Expired):
            self._count(EXPIRED, type=abbreviation(said.type_url))
            return
        kind = abbreviation(said.push.type_url)
        if said.error is None:
            self._observe(ACK_SECONDS, said.seconds, type=kind)
        else:
            self._count(REJECTS, type=kind)
        for push in said.passed_over:
            self.tell(push, None)
        self.tell(said.push, said)

    def tell(self, push: Push, answer: Answer | None) -> None:
        """Tell watchers what became of a push."""
        if not self._watchers:
            return
        line = _line(pushed(push, answer, _epoch()))
        for watcher in self._watchers:
            watcher.offer(line)

    def closed(self, observer: "Observer") -> None:
        """Forget a stream that has ended."""
        if self._current is observer:
            self._current = None


class Observer:
    """One stream; it is told of its requests, and of its responses to somebody."""

    def __init__(self, monitor: Monitor, number: int, kind: Kind) -> None:
        self._monitor = monitor
        self._number = number
        self._kind = kind
        self._since = time.time()
        self._node = ""
        self._table = SyncTable()

    def requested(self, raw: bytes, request: Request | None = None) -> None:
        """Take a request, Envoy's or the agent's own; WireError if it has no head that is given."""
        request = request or read_request(self._kind, raw)
        with suppress(WireError):  # of what else it holds: it is for the control plane to refuse
            if not self._table.requests:
                self._node = read_node_id(self._kind, raw)
            if self._monitor.is_watched and request.type_url not in self._table.types:
                self._monitor.began(self._kind, request, raw)
        said = self._table.requested(request, len(raw), time.monotonic())
        if said is not None:
            self._monitor.answered(said)

    def responded(self, raw: bytes, response: Response | None = None) -> None:
        """Take a response, before it is passed on; WireError if it has no head that is given."""
        response = response or read_response(raw)
        now = time.monotonic()
        change = None
        if self._monitor.is_watched:
            change = self._monitor.change(self._kind, response, raw)
        self._table.responded(response, len(raw), now, change)

    def stream(self) -> Stream:
        """Return what is known of it."""
        return Stream(self._number, self._kind, self._node, self._since, self._table)

    def close(self) -> None:
        """Say that the stream has ended."""
        for push in self._table.unanswered():
            self._monitor.tell(push, None)
        self._monitor.closed(self)


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


def _epoch() -> float:
    """Return the Unix time at which monotonic time began; it changes when the clock is set."""
    return time.time() - time.monotonic()
