"""Requests and their answers over HTTP/2, one after the other.

Stands in the place of an HTTP/1.1 head and its parser.

h2 keeps the protocol; this gives it a connection's bytes frame by frame, because a server that says
goodbye goes on to answer what it has accepted, and h2 would take that for an error.

Imported by the first connection that speaks HTTP/2. Source: RFC 9113; status-lifecycle.md 5.4, 5.6.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from agent.http.message import Headers, first_value
from agent.http.parser import RESPONSE_HEAD_BYTES

FRAME_HEAD_BYTES: Final = 9
GOAWAY: Final = 7
#: Of HTTP/1.1's connection, and the one that HTTP/2 has a field of its own for (RFC 9113, 8.2.2).
NOT_SENT: Final = frozenset(
    ("host", "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade")
)
SETTINGS: Final = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.MAX_HEADER_LIST_SIZE: 65536}


class Exchange:
    """One answer at a time; `pieces` holds what there is of its body until it is taken."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        """Begin a connection; `send` is given what the peer is to get, now and later."""
        self._begin(1)
        self._send = send
        self._connection = H2Connection(H2Configuration(header_encoding="latin-1"))
        self._connection.local_settings = Settings(client=True, initial_values=SETTINGS)
        self._connection.initiate_connection()
        self._unparsed = b""
        self._is_last = False  #: the server has said goodbye

    def _begin(self, stream: int) -> None:
        self.status = 0  #: 0 until the head is complete
        self.headers: Headers = ()
        self.trailers: Headers = ()
        self.pieces: deque[bytes] = deque()
        self.is_complete = False
        self._stream = stream
        self._head_bytes = 0  #: since the last piece of the body

    @property
    def has_begun(self) -> bool:
        """Whether something came of the answer."""
        return self.status > 0

    @property
    def goes_on(self) -> bool:
        """Whether the answer is complete, and another request may follow."""
        return self.is_complete and not self._unparsed and not self._is_last

    def request(
        self, method: str, origin: str, target: str, *, headers: Headers, body: bytes
    ) -> None:
        """Send a request; what there was of the answer before it is gone.

        Args:
            method: sent as it is.
            origin: scheme and authority, such as https://10.0.0.1:8443.
            target: path and query, sent as they are.
            headers: a Host among them takes the place of the authority.
            body: of the request.

        Raises:
            ValueError: HTTP/2 has no such request.
        """
        scheme, _, authority = origin.partition("://")
        fields = [
            (":method", method),
            (":scheme", scheme),
            (":authority", first_value(headers, "host") or authority),
            (":path", target),
            *(entry for entry in headers if _is_sent(*entry)),
        ]
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
        try:
            self._begin(self._connection.get_next_available_stream_id())
            self._connection.send_headers(self._stream, encoded, end_stream=not body)
            if body:
                self._connection.send_data(self._stream, body, end_stream=True)
        except ProtocolError as error:
            raise ValueError(f"no HTTP/2 request: {error}") from None
        self._flush()

    def feed(self, data: bytes) -> None:
        """Take what was received, nothing for the end of the connection.

        Raises:
            ValueError: this is no HTTP/2, or it ends too early; the text is the reason.
        """
        if not data:
            where = "in the middle of the answer" if self.status else "before an answer"
            raise ValueError(f"connection closed {where}")
        self._unparsed += data
        self._head_bytes += len(data)
        try:
            while not self.is_complete and (frame := self._next_frame()):
                if self._is_goodbye(frame):
                    self._is_last = True
                else:
                    self._take(self._connection.receive_data(frame))
        except ProtocolError as error:
            raise ValueError(f"no HTTP/2 answer: {error}") from None
        if self._head_bytes > RESPONSE_HEAD_BYTES:
            raise ValueError(f"headers are longer than {RESPONSE_HEAD_BYTES} bytes")
        self._flush()

    def _next_frame(self) -> bytes:
        """Return the next frame, nothing while it is not complete."""
        held = self._unparsed
        if len(held) < FRAME_HEAD_BYTES:
            return b""
        if held.startswith(b"HTTP/1"):
            raise ValueError("no HTTP/2 answer: the server speaks HTTP/1")
        length = int.from_bytes(held[:3])
        if length > self._connection.max_inbound_frame_size:
            raise ValueError(f"no HTTP/2 answer: a frame of {length} bytes")
        end = FRAME_HEAD_BYTES + length
        if len(held) < end:
            return b""
        self._unparsed = held[end:]
        return held[:end]

    def _is_goodbye(self, frame: bytes) -> bool:
        """Return whether a frame announces the connection's end without fault, and not ours."""
        last, code = frame[FRAME_HEAD_BYTES:][:4], frame[FRAME_HEAD_BYTES + 4 :][:4]
        return frame[3] == GOAWAY and int.from_bytes(last) >= self._stream and not any(code)

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case ResponseReceived(headers=found):
                    fields = _text(found)
                    self.headers = tuple(each for each in fields if not each[0].startswith(":"))
                    self.status = int(first_value(fields, ":status"))
                case TrailersReceived(headers=found):
                    self.trailers = _text(found)
                case DataReceived(data=data, flow_controlled_length=length):
                    self._head_bytes = 0 if data else self._head_bytes
                    self.pieces.append(data)
                    self._connection.acknowledge_received_data(length, self._stream)
                case StreamEnded():
                    self.is_complete = True
                case StreamReset(stream_id=stream, error_code=code) if stream == self._stream:
                    raise ValueError(f"stream was reset: {_name(code)}")
                case ConnectionTerminated(error_code=code):
                    raise ValueError(f"connection was closed: {_name(code)}")

    def _flush(self) -> None:
        if unsent := self._connection.data_to_send():
            self._send(unsent)


def _is_sent(name: str, value: str) -> bool:
    name = name.lower()
    return name not in NOT_SENT and (name != "te" or value.lower() == "trailers")


def _text(found: Iterable[tuple[object, object]]) -> Headers:
    """Return headers as what header_encoding has made of them."""
    return tuple((str(name), str(value)) for name, value in found)


def _name(code: int | None) -> str:
    return ErrorCodes(code).name if code in set(ErrorCodes) else f"error code {code}"
