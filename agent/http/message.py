"""HTTP/1.1 messages as values: requests, replies, their heads, paths and content codings.

Header names and values are text in ISO 8859-1, which carries any byte unchanged.

Source: RFC 9110 and 9112; status-lifecycle.md sections 3.2 and 3.3.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final, NamedTuple

from agent.errors import AgentError

Headers = tuple[tuple[str, str], ...]

#: Phrases of the statuses the agent gives itself; a relayed one may have none (RFC 9112, 4).
REASONS: Final = {
    100: "Continue",
    200: "OK",
    204: "No Content",
    301: "Moved Permanently",
    307: "Temporary Redirect",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
#: Answers that never have a body (RFC 9112, 6.3).
BODILESS: Final = frozenset((204, 304))
#: Patterns are compiled by their first use: not all are used on the way to ready.
FORBIDDEN_IN_HEADER: Final = r"[\r\n\x00]"
FORBIDDEN_IN_TARGET: Final = r"[\x00-\x20\x7f]"
ESCAPE: Final = rb"%([0-9A-Fa-f]{2})"


class HttpError(AgentError):
    """A request that got no usable answer; `reason` is its text without the URL."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.reason = reason


class Request(NamedTuple):
    """A request as the server hands it to its handler; the body is complete."""

    method: str
    target: str  #: as received, for example /metrics?a=b
    headers: Headers = ()
    body: bytes = b""
    peer: str = ""  #: address of the TCP peer, without port; empty if unknown
    version: str = "1.1"
    keep_alive: bool = True

    def header(self, name: str) -> str:
        """Return the first value of a header, the empty text if there is none."""
        return first_value(self.headers, name)

    @property
    def path(self) -> str:
        """Return the path as received, still encoded; an absolute URL loses its authority."""
        path = self.target.partition("?")[0]
        if "://" in path and not path.startswith("/"):
            path = "/" + path.partition("://")[2].partition("/")[2]
        return path

    @property
    def query(self) -> str:
        """Return what follows the first question mark, as received."""
        return self.target.partition("?")[2]


class Response(NamedTuple):
    """An answer to a request of ours, its body complete."""

    status: int
    headers: Headers
    body: bytes

    def header(self, name: str) -> str:
        """Return the first value of a header, the empty text if there is none."""
        return first_value(self.headers, name)


class Reply(NamedTuple):
    """What a handler answers."""

    status: int
    #: A generator is sent piece by piece, no faster than the client reads. It is always started
    #: and always closed, so that its clean-up happens even where nothing of it is sent.
    body: bytes | AsyncGenerator[bytes, None] = b""
    headers: Headers = ()
    #: Called once the reply was handed to the kernel, or its client is gone.
    then: Callable[[], None] | None = None


def first_value(headers: Iterable[tuple[str, str]], name: str) -> str:
    """Return the first value of a header whatever its case, the empty text if there is none."""
    wanted = name.lower()
    return next((value for key, value in headers if key.lower() == wanted), "")


def leaves_open(headers: Iterable[tuple[str, str]]) -> bool:
    """Return whether a message with these headers leaves its connection to another one."""
    values = (value for name, value in headers if name.lower() == "connection")
    return "close" not in (each.strip().lower() for value in values for each in value.split(","))


def may_ask_again(method: str, *, has_begun: bool) -> bool:
    """Return whether a request that failed on a connection of before is sent over a new one.

    The server may have closed that one as the request was on its way (RFC 9112, 9.3.1).

    Args:
        method: of the request; only what changes nothing is sent twice.
        has_begun: whether something of an answer came.
    """
    return method == "GET" and not has_begun


def render_head(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return status line and headers of a response, the empty line included.

    Raises:
        ValueError: a header would end the line early.
    """
    return _head(f"HTTP/1.1 {status} {REASONS.get(status, '')}", headers)


def render_request(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return request line and headers, the empty line included.

    Raises:
        ValueError: target or a header would end the line early.
    """
    if not target.startswith("/") or re.search(FORBIDDEN_IN_TARGET, target):
        raise ValueError(f"target {target!r}: expected a path from '/' on, without blanks")
    return _head(f"{method} {target} HTTP/1.1", headers)


def _head(first: str, headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers)]
    if any(re.search(FORBIDDEN_IN_HEADER, line) for line in lines):
        raise ValueError("a header value holds a line break")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def refusal(status: int) -> tuple[Headers, bytes]:
    """Return headers and body of an answer of our own that ends the connection."""
    body = f"{status} {REASONS[status]}\n".encode()
    headers = (
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    )
    return headers, body


class Framing(NamedTuple):
    """How a reply is put on the wire."""

    headers: Headers
    has_body: bool
    is_chunked: bool
    goes_on: bool  #: another request may follow on the connection


def frame(request: Request, reply: Reply, *, is_closing: bool) -> Framing:
    """Return how to send a reply; a stream to an HTTP/1.0 client ends by closing."""
    is_old = request.version == "1.0"
    is_stream = not isinstance(reply.body, bytes)
    goes_on = request.keep_alive and not is_closing and not (is_stream and is_old)
    headers: list[tuple[str, str]] = []
    if not goes_on:
        headers.append(("Connection", "close"))
    elif is_old:
        headers.append(("Connection", "keep-alive"))
    is_bodiless = reply.status in BODILESS
    if isinstance(reply.body, bytes) and not is_bodiless:
        headers.append(("Content-Length", str(len(reply.body))))
    is_chunked = is_stream and not is_old and not is_bodiless
    if is_chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    has_body = request.method != "HEAD" and not is_bodiless
    return Framing(tuple(headers), has_body, is_chunked, goes_on)


def choose_encoding(accepted: str, offered: Iterable[str]) -> str | None:
    """Return the content coding to use, None for none.

    The highest q wins, at a tie the one offered first; no q is 1, an unusable one 0. Wildcards
    and codings not offered are ignored.

    Args:
        accepted: value of Accept-Encoding.
        offered: what we can do, the preferred one first.

    Source: status-lifecycle.md section 3.3.
    """
    weights: dict[str, float] = {}
    for item in accepted.split(","):
        coding, _, parameters = item.partition(";")
        weights[coding.strip().lower()] = _weight(parameters)
    best = max(offered, key=lambda coding: weights.get(coding, 0.0))
    return best if weights.get(best, 0.0) > 0 else None


def _weight(parameters: str) -> float:
    for parameter in parameters.split(";"):
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "q":
            found = re.fullmatch(r"[01](\.\d*)?", value.strip())
            return float(found[0]) if found else 0.0
    return 1.0


def accepts_json(accepted: str) -> bool:
    """Return whether an Accept header asks for JSON by name, not just for anything."""
    kinds = (item.partition(";")[0] for item in accepted.split(","))
    return any(kind.strip().lower() == "application/json" for kind in kinds)


def clean_path(path: str) -> str:
    """Return the path without empty, '.' and '..' segments; a final slash is kept.

    Only literal dots count: an encoded one is left, and matches no route. The result equals the
    argument where nothing had to be cleaned, so a router can refuse what is not clean.

    Source: status-lifecycle.md section 3.2.
    """
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    ends_open = segments[-1] in ("", ".", "..") and bool(kept)
    return "/" + "/".join(kept) + ("/" if ends_open else "")


def decode_segments(path: str) -> tuple[str, ...]:
    """Return the segments of a path, each decoded by itself: an encoded slash parts nothing."""
    return tuple(_decode(segment) for segment in path.split("/")[1:])


def _decode(segment: str) -> str:
    if segment.isascii() and "%" not in segment:
        return segment
    raw = re.sub(ESCAPE, lambda found: bytes([int(found[1], 16)]), segment.encode("latin-1"))
    return raw.decode("utf-8", "surrogateescape")


def join_host_port(host: str, port: int) -> str:
    """Return host:port, an IPv6 literal in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str) -> tuple[str, str] | None:
    """Return host, without brackets, and port text; None where there is no port."""
    found = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:]*)", text)
    return (found[1] or found[2] or "", found[3]) if found else None
