import pytest

from agent.http.message import Request
from agent.http.parser import Limits, Refusal, RequestParser, ResponseParser

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


def parsed(*pieces: bytes, limits: Limits | None = None) -> list[Request | Refusal]:
    parser = RequestParser(limits or Limits(), "10.0.0.1")
    found = []
    for piece in pieces:
        parser.feed(piece)
        while item := parser.next():
            found.append(item)
    return found


def statuses(*pieces: bytes, limits: Limits | None = None) -> list[int]:
    """Return 0 for a request, the status of a refusal."""
    items = parsed(*pieces, limits=limits)
    return [item.status if isinstance(item, Refusal) else 0 for item in items]


def test_a_request_is_complete_with_its_peer() -> None:
    assert parsed(GET) == [Request("GET", "/a", (("Host", "x"),), b"", "10.0.0.1")]


def test_an_empty_value_and_repeated_headers_are_kept() -> None:
    (request,) = parsed(b"GET / HTTP/1.1\r\nHost:\r\nA:\r\nB: 1\r\nB: 2\r\n\r\n")

    assert isinstance(request, Request)
    assert request.headers == (("Host", ""), ("A", ""), ("B", "1"), ("B", "2"))


def test_nothing_is_parsed_before_it_is_asked_for() -> None:
    parser = RequestParser(Limits(), "")
    parser.feed(GET * 2)

    assert parser.held == GET * 2
    assert parser.next()


def test_few_requests_come_out_of_much_that_was_fed() -> None:
    parser = RequestParser(Limits(), "")
    parser.feed(GET * 10_000)

    assert parser.next()
    assert len(parser.held) > 10_000 * len(GET) - 5000


def test_keep_alive_follows_version_and_header() -> None:
    found = [
        item.keep_alive
        for wire in (
            GET,
            b"GET / HTTP/1.0\r\n\r\n",
            b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        )
        for item in parsed(wire)
        if isinstance(item, Request)
    ]

    assert found == [True, False, True, False]


def test_an_upgrade_is_the_last_request() -> None:
    parser = RequestParser(Limits(), "")
    parser.feed(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n" + GET)

    request = parser.next()
    parser.feed(GET)

    assert isinstance(request, Request)
    assert not request.keep_alive
    assert parser.is_over
    assert parser.next() is None


def test_a_body_that_is_waited_for_asks_to_continue_until_it_comes() -> None:
    parser = RequestParser(Limits(), "")
    parser.feed(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n")

    assert parser.next() is None
    assert parser.wants_continue
    assert parser.is_inside

    parser.feed(b"a")

    assert parser.next() is None
    assert not parser.wants_continue


def test_trailers_are_dropped() -> None:
    (request,) = parsed(
        b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\na\r\n0\r\nHost: evil\r\nX: y\r\n\r\n",
    )

    assert isinstance(request, Request)
    assert request.body == b"a"
    assert request.headers == (("Host", "x"), ("Transfer-Encoding", "chunked"))


def test_requests_before_a_bad_one_are_served() -> None:
    assert statuses(GET + b"bad\r\n\r\n" + GET) == [0, 400]


SMALL = Limits(head_bytes=4096, header_count=5, body_bytes=4096)
CHUNKED = b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\n\r\n", 417),
        (b"GET /" + b"a" * 9000, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 9, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA" + b"a" * 9000, 431),
        (CHUNKED + b"FFFFF\r\n" + b"x" * 10_000, 413),
        (CHUNKED + b"1\r\na\r\n" * 2000, 413),
        (CHUNKED + b"0\r\n" + b"X: y\r\n" * 2000, 413),
        (b"\r\n" * 9000, 431),
    ],
)
def test_what_cannot_be_served_is_refused_once(wire: bytes, status: int) -> None:
    assert statuses(wire, GET, limits=SMALL) == [status]


def test_a_caller_can_refuse_once() -> None:
    parser = RequestParser(Limits(), "")
    parser.feed(b"GET / HT")
    assert parser.next() is None

    parser.refuse(408)
    parser.refuse(400)

    assert parser.next() == Refusal(408)
    assert parser.next() is None


def response(*pieces: bytes, is_head: bool = False) -> tuple[int, bytes, bool]:
    parser = ResponseParser(is_head=is_head)
    for piece in pieces:
        parser.feed(piece)
    return parser.status, b"".join(parser.pieces), parser.is_complete


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED_OK = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((OK + b"Content-Length: 2\r\n\r\na",), (200, b"a", False)),
        ((OK + b"Content-Length: 2\r\n\r\na", b"bc"), (200, b"ab", True)),
        ((OK + b"\r\nab",), (200, b"ab", False)),
        ((OK + b"\r\nab", b""), (200, b"ab", True)),
        (
            (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", b"0\r\nT: x\r\n\r\n"),
            (200, b"a", True),
        ),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), (204, b"", True)),
        ((b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",), (304, b"", True)),
        ((b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n",), (0, b"", False)),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"Content-Length: 0\r\n\r\n"), (200, b"", True)),
        ((OK + b"Connection: close\r\nContent-Length: 1\r\n\r\nab",), (200, b"a", True)),
    ],
)
def test_a_response_ends_where_it_says(
    pieces: tuple[bytes, ...], expected: tuple[int, bytes, bool]
) -> None:
    assert response(*pieces) == expected


def test_a_body_may_be_of_any_length() -> None:
    chunks = [b"2800\r\n" + b"x" * 0x2800 + b"\r\n"] * 40
    _, body, is_complete = response(CHUNKED_OK, *chunks, b"0\r\n\r\n")

    assert (len(body), is_complete) == (40 * 0x2800, True)
    assert response(OK + b"\r\n", *[b"y" * 9000] * 40) == (200, b"y" * 9000 * 40, False)


def test_a_response_to_head_has_no_body() -> None:
    assert response(OK + b"Content-Length: 5\r\n\r\nab", is_head=True) == (200, b"", True)


def test_headers_are_those_of_the_final_answer_without_trailers() -> None:
    parser = ResponseParser(is_head=False)
    parser.feed(b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + OK)
    parser.feed(b"C: d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nE: f\r\n\r\n")

    assert parser.headers == (("C", "d"), ("Transfer-Encoding", "chunked"))
    assert parser.is_complete


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ((b"",), "connection closed before an answer"),
        ((b"HTTP/1.1 2", b""), "connection closed before an answer"),
        ((OK + b"Content-Length: 2\r\n\r\na", b""), "closed in the middle"),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", b""), "closed in the middle"),
        ((b"SSH-2.0\r\n",), "no HTTP answer: "),
        ((b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",), "no HTTP answer: "),
        (
            (b"HTTP/1.1 101 A\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",),
            "no HTTP answer: another protocol follows",
        ),
        ((OK + b"A: " + b"x" * 200_000,), "headers are longer than"),
        ((CHUNKED_OK, b"1\r\na\r\n0\r\nT: ", *[b"x" * 9000] * 20), "headers are longer than"),
        ((CHUNKED_OK, *[b"1;" + b"x" * 60_000, b"x" * 90_000]), "headers are longer than"),
    ],
)
def test_an_unusable_answer_has_a_reason(pieces: tuple[bytes, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        response(*pieces)


@pytest.mark.parametrize(
    ("pieces", "goes_on"),
    [
        ((OK + b"Content-Length: 1\r\n\r\na",), True),
        ((OK + b"Content-Length: 1\r\n\r\n",), False),
        ((CHUNKED_OK + b"1\r\na\r\n0\r\n\r\n",), True),
        ((CHUNKED_OK + b"1\r\na\r\n0\r\n",), False),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), True),
        ((b"HTTP/1.1 100 Continue\r\n\r\n",), False),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"Content-Length: 0\r\n\r\n"), True),
        ((OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n",), False),
        ((OK + b"Connection: x, Close\r\nContent-Length: 0\r\n\r\n",), False),
        ((b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",), False),
        ((b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",), True),
        ((OK + b"\r\nab", b""), False),
        ((OK + b"Content-Length: 1\r\n\r\nab",), False),
        ((OK + b"Content-Length: 1\r\n\r\na", b"HTTP"), False),
        ((OK + b"Content-Length: 1\r\n\r\na" + OK + b"Content-Length: 0\r\n\r\n",), False),
    ],
)
def test_a_connection_goes_on_after_a_whole_framed_answer_and_nothing_else(
    pieces: tuple[bytes, ...], *, goes_on: bool
) -> None:
    parser = ResponseParser(is_head=False)
    for piece in pieces:
        parser.feed(piece)

    assert parser.has_begun
    assert parser.goes_on is goes_on


def test_what_follows_an_answer_does_not_take_its_place() -> None:
    answer = OK + b"Content-Length: 1\r\n\r\na"
    assert response(answer + b"HTTP/1.1 500 Not Asked For\r\nContent-Length: 1\r\n\r\nb") == (
        200,
        b"a",
        True,
    )
