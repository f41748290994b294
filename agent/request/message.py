"""One HTTP/1.1 request and its response, without I/O.

Text goes in and out; client.py owns the connection, which serves one exchange and is closed. A
response is fed as it arrives:

    head ─┬─ no body (HEAD, 204, 304) ──────────────────────────────► complete
          ├─ Content-Length: n ── n bytes ──────────────────────────► complete
          ├─ chunked ── size line ─ bytes ─ end line ─ … ─ trailer ─► complete
          └─ neither ── bytes until the server closes ── end() ─────► complete

An interim response (1xx) is skipped. Nothing here imports `typing` or `re`: each would add half as
much again to the start of a command that a lifecycle hook waits for.

Source: status-lifecycle.md section 7; RFC 9112.
"""

TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
WITH_BODY = frozenset(("POST", "PUT", "PATCH"))  #: methods that announce even an empty body
BODYLESS_STATUS = frozenset((204, 304))
REDIRECTS = frozenset((301, 302, 303, 307, 308))
KEEPS_METHOD = frozenset((307, 308))
MAX_LINE = 65536  #: bytes of a head or chunk line; Envoy's own limit for all headers is 60 KiB
MAX_HEADERS = 1000
MAX_HEAD = 262144  #: bytes of all heads, repeated headers and interim answers included
MAX_BODY = 67108864  #: bytes; a whole configuration dump of Envoy's admin port is a few million
MAX_DIGITS = 18  #: of a length: more are no size of anything
MAX_REASON = 500  #: characters of an answer that go into one line of the log
DURATION = "; not ready for "  #: begins the last line of the agent's reasons, as joined here
MAX_PORT = 65535
HTTP_PORT = 80
CODE_LENGTH = 3
OK = 200
LAST_SUCCESS = 399  #: what is above it is an error for `request`
NOT_FOUND = 404
INTERIM = range(100, 200)
DIGITS = frozenset("0123456789")
HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


class MessageError(ValueError):
    """A URL that cannot be asked, or bytes that are no HTTP/1.1 response; one line."""


def parse_url(url: str) -> tuple[str, int, str]:
    """Return host, port and request target of an `http` URL.

    The host has no brackets. The target begins with a slash and is what the request line says:
    the path and query of the URL as they are, with only blanks and non-ASCII percent-encoded.

    Raises:
        MessageError: not such a URL, or one with a control character, which could end the line.
    """
    scheme, has_authority, rest = url.partition("://")
    if scheme.lower() != "http" or not has_authority:
        raise MessageError(f"url {url!r}: expected http://host[:port]/path")
    rest = rest.partition("#")[0]
    path_at = min(at for at in (rest.find("/"), rest.find("?"), len(rest)) if at >= 0)
    host, port = _parse_authority(rest[:path_at], url)
    target = rest[path_at:]
    return host, port, _encode(target if target.startswith("/") else f"/{target}", url)


def _parse_authority(authority: str, url: str) -> tuple[str, int]:
    if authority.startswith("["):
        host, closed, tail = authority[1:].partition("]")
        if not closed or (tail and not tail.startswith(":")):
            raise MessageError(f"url {url!r}: expected an address in brackets, then ':' and a port")
        port_text = tail[1:]
    else:
        host, _, port_text = authority.partition(":")
    if not host or not all(character in TOKEN or character == ":" for character in host):
        raise MessageError(f"url {url!r}: expected a host name or address")
    if not port_text:
        return host, HTTP_PORT
    is_number = port_text.isascii() and port_text.isdigit() and len(port_text) <= MAX_DIGITS
    if not (is_number and 0 < int(port_text) <= MAX_PORT):
        raise MessageError(f"url {url!r}: expected a port in 1..{MAX_PORT}")
    return host, int(port_text)


def _encode(target: str, url: str) -> str:
    if any(character < " " or character == "\x7f" for character in target):
        raise MessageError(f"url {url!r}: expected no control characters")
    return "".join(
        character
        if "!" <= character <= "~"
        else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))
        for character in target
    )


def render_request(method: str, url: str, body: bytes = b"") -> bytes:
    """Return the bytes of a request that asks the server to close the connection afterwards.

    Raises:
        MessageError: the method is no HTTP token, or the URL is unusable.
    """
    if not method or not TOKEN.issuperset(method):
        raise MessageError(f"method {method!r}: expected a word such as GET or POST")
    host, port, target = parse_url(url)
    name = f"[{host}]" if ":" in host else host
    lines = [
        f"{method} {target} HTTP/1.1",
        f"Host: {name}" if port == HTTP_PORT else f"Host: {name}:{port}",
        "Connection: close",
    ]
    if body or method in WITH_BODY:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii") + body


class Response:
    """A response as far as it has arrived.

    `headers` has lower-case names; values of a repeated header are joined by ', '.
    """

    def __init__(self, method: str = "GET") -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.complete = False
        self._method = method
        self._pending = bytearray()
        self._head_size = 0
        self._wanted = 0  #: bytes of the body or chunk that are still to come
        self._step = self._read_status

    def feed(self, data: bytes) -> None:
        """Take bytes from the server; what follows a complete response is ignored.

        Raises:
            MessageError: this is not HTTP/1.1.
        """
        self._pending += data
        while not self.complete and self._step():
            pass

    def end(self) -> None:
        """Take note that the server closed the connection.

        Raises:
            MessageError: the response was not complete.
        """
        if self._step == self._read_rest:
            self.complete = True
        if not self.complete:
            part = "any answer" if not self.status else "its answer was complete"
            raise MessageError(f"the server closed the connection before {part}")

    # Each step takes what it can from `_pending` and returns whether another may go on.

    def _read_status(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        version, _, rest = line.partition(" ")
        code = rest.partition(" ")[0]
        if (
            not version.startswith("HTTP/1.")
            or len(code) != CODE_LENGTH
            or not _is_number(code, DIGITS)
        ):
            raise MessageError(f"expected an HTTP/1.1 response, found {line[:80]!r}")
        self.status = int(code)
        self.headers = {}
        self._step = self._read_header
        return True

    def _read_header(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        if not line:
            self._begin_body()
            return True
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or not TOKEN.issuperset(name):
            raise MessageError(f"expected a header line, found {line[:80]!r}")
        value = value.strip(" \t")
        earlier = self.headers.get(name)
        if earlier is None:
            self.headers[name] = value
        elif name != "content-length" or earlier != value:
            self.headers[name] = f"{earlier}, {value}"
        if len(self.headers) > MAX_HEADERS:
            raise MessageError(f"expected at most {MAX_HEADERS} headers")
        return True

    def _begin_body(self) -> None:
        coding = self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if self.status in INTERIM:
            self._step = self._read_status
        elif self._method == "HEAD" or self.status in BODYLESS_STATUS:
            self.complete = True
        elif coding == "chunked":
            self._step = self._read_size
        elif coding:
            raise MessageError(f"transfer-encoding {coding!r}: expected chunked")
        elif length is None:
            self._step = self._read_rest
        elif _is_number(length, DIGITS):
            self._wanted = int(length)
            self._step = self._read_counted
        else:
            raise MessageError(f"content-length {length!r}: expected one whole number")

    def _read_counted(self) -> bool:
        self._take_wanted()
        self.complete = not self._wanted
        return self.complete

    def _read_rest(self) -> bool:
        self._check_body(len(self._pending))
        self.body += self._pending
        self._pending.clear()
        return False

    def _read_size(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        size = line.partition(";")[0].strip(" \t")
        if not _is_number(size, HEX_DIGITS):
            raise MessageError(f"expected the size of a chunk, found {line[:80]!r}")
        self._wanted = int(size, 16)
        self._step = self._read_chunk if self._wanted else self._read_trailer
        return True

    def _read_chunk(self) -> bool:
        self._take_wanted()
        if self._wanted:
            return False
        self._step = self._read_chunk_end
        return True

    def _read_chunk_end(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        if line:
            raise MessageError(f"expected the end of a chunk, found {line[:80]!r}")
        self._step = self._read_size
        return True

    def _read_trailer(self) -> bool:
        line = self._take_line()
        self.complete = line == ""
        return line is not None

    def _take_wanted(self) -> None:
        self._check_body(self._wanted)
        part = self._pending[: self._wanted]
        del self._pending[: self._wanted]
        self._wanted -= len(part)
        self.body += part

    def _check_body(self, more: int) -> None:
        if len(self.body) + more > MAX_BODY:
            raise MessageError(f"expected a body of at most {MAX_BODY} bytes")

    def _take_line(self) -> str | None:
        """Return the next line without its end, or None while it is not complete."""
        at = self._pending.find(b"\n")
        if max(at, len(self._pending) if at < 0 else at) > MAX_LINE:
            raise MessageError(f"expected lines of at most {MAX_LINE} bytes")
        if at < 0:
            return None
        line = self._pending[:at].decode("latin-1")
        del self._pending[: at + 1]
        self._head_size += at + 1
        if self._head_size > MAX_HEAD and not self.body:
            raise MessageError(f"expected headers of at most {MAX_HEAD} bytes")
        return line.removesuffix("\r")


def _is_number(text: str, digits: frozenset[str]) -> bool:
    return 0 < len(text) <= MAX_DIGITS and digits.issuperset(text)


def next_request(
    method: str, url: str, body: bytes, response: Response
) -> tuple[str, str, bytes] | None:
    """Return method, URL and body of the request a redirect asks for; None if it is the answer.

    As browsers do, a method other than HEAD becomes GET, without a body, unless the status says to
    keep it. A redirect without Location is an answer.

    Raises:
        MessageError: the location is no URL.
    """
    location = response.headers.get("location")
    if response.status not in REDIRECTS or not location:
        return None
    from urllib.parse import urljoin  # noqa: PLC0415 - 2 ms that nearly no call needs

    try:
        target = urljoin(url, location)
    except ValueError as error:
        raise MessageError(f"location {location[:80]!r}: expected a URL") from error
    if response.status in KEEPS_METHOD:
        return method, target, body
    return ("HEAD" if method == "HEAD" else "GET"), target, b""


def not_ready_reason(response: Response) -> str:
    """Return why this answer to a readiness probe is none; empty for a 200.

    The agent puts its reason into the body, on as many lines as there are troubles.

    Source: status-lifecycle.md sections 3.6 and 7.1.
    """
    if response.status == OK:
        return ""
    text = "; ".join(response.body.decode(errors="replace").split("\n")).strip("; ")[:MAX_REASON]
    line = "".join(each if each.isprintable() else " " for each in text)  # it goes to terminals
    return f"HTTP status code {response.status}" + (f": {line}" if line else "")


def lasting(reason: str) -> str:
    """Return a reason without the duration at its end, which is another one each time."""
    return reason.rpartition(DURATION)[0] or reason


def failure(response: Response) -> str:
    """Return why a response is an error for `request`; empty if its body is to be printed.

    Not found is no error. Source: status-lifecycle.md section 7.2.
    """
    if response.status <= LAST_SUCCESS or response.status == NOT_FOUND:
        return ""
    body = response.body.decode(errors="replace")
    return f"received unsuccessful status code {response.status}: {body}"
