"""Takes note of what passes on Envoy's streams: a table, figures, and lines for whoever watches.

What only those who ask need is imported when the first of them does.

Source: xds-identity-dns.md section 2.14.
"""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from agent.protobuf.wire import WireError
from agent.xds.discovery import (
    Kind,
    Request,
    Response,
    read_node_id,
    read_request,
    read_response,
)
from agent.xds.resources import abbreviation
from agent.xds.sync import Answer, Expired, Push, SyncTable

if TYPE_CHECKING:
    from agent.xds.monitor.report import Stream
    from agent.xds.monitor.server import Audience

ACK_SECONDS: Final = "xds_proxy_push_ack_seconds"
REJECTS: Final = "pilot_total_xds_rejects"
EXPIRED: Final = "pilot_xds_expired_nonce"

Record = Callable[..., None]


class Monitor:
    """All streams: the latest one's table, figures of all, and who watches."""

    def __init__(
        self, connection: Callable[[], dict[str, Any]], *, count: Record, observe: Record
    ) -> None:
        """Know nothing yet; `connection` returns who answers Envoy, and whether it does."""
        self._connection = connection
        self._count = count
        self._observe = observe
        self._sessions = 0
        self._current: Observer | None = None
        self.audience: Audience | None = None
        #: Of all streams.
        self.requests = self.responses = self.refused = 0

    def open(self, number: int, kind: Kind) -> "Observer":
        """Return what is to be told of everything that passes on a new stream."""
        self._sessions = number
        self._current = Observer(self, number, kind)
        return self._current

    def document(self) -> dict[str, Any]:
        """Return what there is to know now, as JSON has it."""
        from agent.xds.monitor.report import document  # noqa: PLC0415 - for whoever asks

        stream = self._current.stream() if self._current else None
        epoch = time.time() - time.monotonic()  # of now: the clock may be set
        return document(self._connection(), self._sessions, stream, epoch)

    def passed(self) -> dict[str, int]:
        """Return how much passed on all streams: figures that never fall."""
        return {"requests": self.requests, "responses": self.responses, "refused": self.refused}

    def watch(self) -> AsyncGenerator[bytes, None]:
        """Return lines of JSON: the document, then each push with its answer."""
        if self.audience is None:
            from agent.xds.monitor.server import Audience  # noqa: PLC0415 - as above

            self.audience = Audience(self.document)
        return self.audience.watch()

    def close(self) -> None:
        """Tell watchers that nothing more will come."""
        if self.audience:
            self.audience.close()

    def answered(self, said: Answer | Expired) -> None:
        """Take what was said of a push."""
        if isinstance(said, Expired):
            self._count(EXPIRED, type=abbreviation(said.type_url))
            return
        kind = abbreviation(said.push.type_url)
        if said.error is None:
            self._observe(ACK_SECONDS, said.seconds, type=kind)
        else:
            self.refused += 1
            self._count(REJECTS, type=kind)
        self.unanswered(said.passed_over)
        if self.audience:
            self.audience.tell(said.push, said)

    def unanswered(self, pushes: tuple[Push, ...]) -> None:
        """Take pushes that nobody will answer any more."""
        if self.audience:
            for push in pushes:
                self.audience.tell(push, None)

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
        if not self._table.requests:
            with suppress(WireError):  # it is for the control plane to refuse
                self._node = read_node_id(self._kind, raw)
        audience = self._monitor.audience
        if audience and request.type_url not in self._table.types:
            audience.began(self._kind, request, raw)
        self._monitor.requests += 1
        said = self._table.requested(request, len(raw), time.monotonic())
        if said is not None:
            self._monitor.answered(said)

    def responded(self, raw: bytes, response: Response | None = None) -> None:
        """Take a response, before it is passed on; WireError if it has no head that is given."""
        response = response or read_response(raw)
        now = time.monotonic()
        audience = self._monitor.audience
        change = audience.change(self._kind, response, raw) if audience else None
        self._monitor.responses += 1
        self._table.responded(response, len(raw), now, change)

    def stream(self) -> "Stream":
        """Return what is known of it."""
        from agent.xds.monitor.report import Stream  # noqa: PLC0415 - for whoever asks

        return Stream(self._number, self._kind, self._node, self._since, self._table)

    def close(self) -> None:
        """Say that the stream has ended."""
        self._monitor.unanswered(self._table.unanswered())
        self._monitor.closed(self)
