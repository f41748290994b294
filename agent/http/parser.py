"""Bytes to requests and responses: httptools' parsers with limits, without any socket.

httptools has no limits of its own, keeps what it has of a header to itself, and cannot pause.
So bytes are counted as they go in, in slices small enough that one slice completes few requests.

Source: RFC 9112; performance.md, decision 7.
"""

from collections import deque
from typing import Final, NamedTuple

from httptools import (
    HttpParserError,
    HttpParserUpgrade,
    HttpRequestParser,
    HttpResponseParser,
)

from agent.http.message import BODILESS, Headers, Request, first_value

SLICE_BYTES: Final = 4096
VERSIONS: Final = ("1.0", "1.1")
INTERIM: Final = range(100, 200)
#: Of a response's head, and of what comes between two pieces of its body; Envoy allows 60 KiB.
RESPONSE_HEAD_BYTES: Final = 128 * 1024


class Limits(NamedTuple):
    """What one request may measure, to the nearest slice."""

    head_bytes: int = 32 * 1024
    header_count: int = 200
    #: Of the body as sent, framing and trailers included.
    body_bytes: int = 16 * 1024


class Refusal(NamedTuple):
    """A request that no handler sees; the connection ends with it."""

    status: int


class RequestParser:
    """Requests out of bytes, one at a time, in order.

    What was fed is parsed when the next request is asked for. After a refusal, or a request to
    leave HTTP, whatever is fed is dropped.
    """

    def __init__(self, limits: Limits, peer: str) -> None:
        self.held = b""  #: fed, and not parsed yet
        self.is_over = False  #: no request comes after those already found
        self.wants_continue = False  #: the client holds back its body; reset by the caller
        self._limits = limits
        self._peer = peer
        self._parser = HttpRequestParser(self)
        self._found: deque[Request | Refusal] = deque()
        self._message_bytes = 0
        self._in_body = False
        self._target = b""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []

    @property
    def is_inside(self) -> bool:
        """Whether a request was begun and is not complete."""
        return self._message_bytes > 0

    def feed(self, data: bytes) -> None:
        """Add what was received."""
        if not self.is_over:
            self.held += data

    def next(self) -> Request | Refusal | None:
        """Return the next request, None if it is not complete."""
        held, position = self.held, 0
        while not self._found and position < len(held):
            self._parse(held[position : position + SLICE_BYTES])
            position += SLICE_BYTES
        self.held = b"" if self.is_over else held[position:]
        return self._found.popleft() if self._found else None

    def refuse(self, status: int) -> None:
        """Have a refusal follow what was found, unless one does already."""
        if not self.is_over:
            self.is_over = True
            self.wants_continue = False
            self._found.append(Refusal(status))

    def _parse(self, piece: bytes) -> None:
        self._message_bytes += len(piece)
        try:
            self._parser.feed_data(piece)
        except HttpParserUpgrade:
            self.is_over = True  # its request is answered as usual; what follows is not HTTP
        except HttpParserError:
            self.refuse(400)
        if self._message_bytes > self._limits.head_bytes and not self._in_body:
            self.refuse(431)
        elif self._message_bytes > self._limits.head_bytes + self._limits.body_bytes:
            self.refuse(413)

    # Called by httptools.

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._target = b""
        self._headers, self._body = [], []

    def on_url(self, data: bytes) -> None:
        """Take a piece of the request target."""
        self._target += data

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are dropped."""
        if self._in_body:
            return
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))
        if len(self._headers) > self._limits.header_count:
            self.refuse(431)

    def on_headers_complete(self) -> None:
        """Judge the head before the body comes."""
        self._in_body = True
        names = [name.lower() for name, _ in self._headers]
        version = self._parser.get_http_version()
        if version not in VERSIONS:
            self.refuse(505)
        elif names.count("host") > 1 or (version == "1.1" and "host" not in names):
            self.refuse(400)
        elif "expect" in names:
            self._expect(first_value(self._headers, "expect"))

    def _expect(self, value: str) -> None:
        if value.lower() != "100-continue":
            self.refuse(417)
        else:
            self.wants_continue = not self._found

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        self.wants_continue = False
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Hand over the request."""
        self._message_bytes = 0
        self._in_body = False
        self.wants_continue = False
        if self.is_over:
            return
        request = Request(
            method=self._parser.get_method().decode(),
            target=self._target.decode("latin-1"),
            headers=tuple(self._headers),
            body=b"".join(self._body),
            peer=self._peer,
            version=self._parser.get_http_version(),
            keep_alive=self._parser.should_keep_alive() and not self._parser.should_upgrade(),
        )
        self._found.append(request)


class ResponseParser:
    """One response out of bytes; `pieces` holds what there is of its body until it is taken."""

    def __init__(self, *, is_head: bool) -> None:
        self.status = 0  #: 0 until the head is complete
        self.headers: Headers = ()
        self.trailers: Headers = ()
        self.pieces: deque[bytes] = deque()
        self.is_complete = False
        self.has_begun = False  #: something came of it
        self.goes_on = False  #: it is complete, and the connection may be used again
        self._is_head = is_head
        self._is_over = False  #: what is parsed follows the answer
        self._parser = HttpResponseParser(self)
        self._head: list[tuple[str, str]] = []
        #: Since the last piece of the body: httptools keeps what it has of a header, or a trailer.
        self._head_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take what was received, nothing for the end of the connection.

        Raises:
            ValueError: this is no HTTP, or it ends too early; the text is the reason.
        """
        if not data:
            self._end()
            return
        self.has_begun = True
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.goes_on = False
            if not self.is_complete:
                raise ValueError("no HTTP answer: another protocol follows") from None
        except HttpParserError as error:
            # What follows a complete answer is nobody's: the connection is not used again.
            self.goes_on = False
            if not self.is_complete:
                raise ValueError(f"no HTTP answer: {error}") from None
        if self._head_bytes > RESPONSE_HEAD_BYTES:
            raise ValueError(f"headers are longer than {RESPONSE_HEAD_BYTES} bytes")

    def _end(self) -> None:
        if not self.status:
            raise ValueError("connection closed before an answer")
        coding = first_value(self.headers, "transfer-encoding").lower()
        if first_value(self.headers, "content-length") or coding.endswith("chunked"):
            raise ValueError("connection closed in the middle of the answer")
        self.is_complete = True

    # Called by httptools.

    def on_message_begin(self) -> None:
        """Note what follows a complete answer: nobody has asked for it."""
        self._is_over = self.is_complete
        self.goes_on = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are dropped."""
        if not self.status:
            self._head.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """Publish the head, unless it is an interim one."""
        status = self._parser.get_status_code()
        if self._is_over:
            return
        if status in INTERIM:
            self._head.clear()
            return
        self.status = status
        self.headers = tuple(self._head)
        self.is_complete = self._is_head or status in BODILESS

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body until it is taken."""
        self._head_bytes = 0
        if not self.is_complete:
            self.pieces.append(data)

    def on_message_complete(self) -> None:
        """Note the end of the answer."""
        self.is_complete = self.status > 0
        self.goes_on = self.is_complete and not self._is_over and self._parser.should_keep_alive()
