"""One exchange over HTTP/2, with h2's server as the other end. Source: RFC 9113."""

from typing import Final

import pytest
from h2.connection import H2Connection
from h2.errors import ErrorCodes

from agent.http.http2 import Exchange
from agent.http.message import Headers
from agent.http.parser import RESPONSE_HEAD_BYTES
from tests.fakes.http2 import Answer, Asked, Peer, status

ORIGIN = "https://10.0.0.1:8443"


class Talk:
    """An exchange and the server it talks to."""

    def __init__(self, answer: Answer) -> None:
        self.peer = Peer(answer)
        self.sent: list[bytes] = []
        self.exchange = Exchange(self.sent.append)

    def ask(self, method: str = "GET", headers: Headers = (), body: bytes = b"") -> Exchange:
        """Have the whole exchange."""
        self.exchange.request(method, ORIGIN, "/ready?full", headers=headers, body=body)
        while self.sent and not self.exchange.is_complete:
            data = b"".join(self.sent)
            self.sent.clear()
            if answer := self.peer.receive(data):
                self.exchange.feed(answer)
        return self.exchange


def ask(answer: Answer, *, headers: Headers = (), body: bytes = b"") -> Exchange:
    return Talk(answer).ask(headers=headers, body=body)


def test_an_answer_has_status_headers_and_body() -> None:
    exchange = ask(status(203, b"fine", server="app"))

    assert exchange.is_complete
    assert (exchange.status, exchange.headers) == (203, (("server", "app"),))
    assert (b"".join(exchange.pieces), exchange.trailers) == (b"fine", ())


def test_an_answer_may_have_no_body() -> None:
    exchange = ask(status(204))

    assert (exchange.status, exchange.is_complete, list(exchange.pieces)) == (204, True, [])


def test_the_host_is_the_authority_and_the_connections_own_headers_stay_here() -> None:
    talk = Talk(status())
    talk.ask(
        headers=(
            ("Host", "shop"),
            ("Connection", "close"),
            ("Keep-Alive", "5"),
            ("Upgrade", "h2c"),
            ("TE", "gzip"),
            ("TE", "trailers"),
            ("X-Name", "caf\xe9"),
            ("X-Name", "2"),
        )
    )

    assert talk.peer.asked[0].fields == (
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "shop"),
        (":path", "/ready?full"),
        ("te", "trailers"),
        ("x-name", "caf\xe9"),
        ("x-name", "2"),
    )


def test_without_a_host_the_address_is_the_authority() -> None:
    talk = Talk(status())
    talk.ask("POST", body=b"question")

    asked = talk.peer.asked[0].headers
    assert (asked[":authority"], asked[":method"]) == ("10.0.0.1:8443", "POST")


def test_interim_answers_are_passed_over_and_trailers_are_kept() -> None:
    def answer(connection: H2Connection, asked: Asked) -> None:
        connection.send_headers(asked.stream, [(":status", "103"), ("link", "x")])
        connection.send_headers(asked.stream, [(":status", "200")])
        connection.send_data(asked.stream, b"body")
        connection.send_headers(asked.stream, [("grpc-status", "0")], end_stream=True)

    exchange = ask(answer)

    assert (exchange.status, exchange.headers) == (200, ())
    assert exchange.trailers == (("grpc-status", "0"),)
    assert exchange.is_complete


def test_a_long_body_is_given_room_to_arrive() -> None:
    body = bytes(range(256)) * 2000

    def answer(connection: H2Connection, asked: Asked) -> None:
        connection.send_headers(asked.stream, [(":status", "200")])
        talk.peer.stream_body(body)

    talk = Talk(answer)
    exchange = talk.ask()

    assert exchange.is_complete
    assert b"".join(exchange.pieces) == body


def frame(kind: int, payload: bytes, *, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, 0)) + stream.to_bytes(4) + payload


def goaway(last_stream: int, code: int) -> bytes:
    return frame(7, last_stream.to_bytes(4) + code.to_bytes(4))


def test_a_server_that_says_goodbye_answers_what_it_has_accepted() -> None:
    """As Envoy and Go's servers do while they drain."""
    talk = Talk(status(200, b"last words"))
    talk.exchange.request("GET", ORIGIN, "/", headers=(), body=b"")
    answer = talk.peer.receive(b"".join(talk.sent))

    talk.exchange.feed(goaway(2**31 - 1, 0))
    talk.exchange.feed(goaway(1, 0) + answer)

    assert talk.exchange.is_complete
    assert not talk.exchange.goes_on
    assert (talk.exchange.status, b"".join(talk.exchange.pieces)) == (200, b"last words")


@pytest.mark.parametrize(
    ("last_stream", "code", "reason"),
    [
        (1, ErrorCodes.ENHANCE_YOUR_CALM, "ENHANCE_YOUR_CALM"),
        (0, ErrorCodes.NO_ERROR, "NO_ERROR"),  # it has not seen ours, and will not answer
        (1, 0x99, "error code 153"),
    ],
)
def test_a_connection_that_is_closed_is_a_failure(last_stream: int, code: int, reason: str) -> None:
    talk = Talk(status())
    talk.exchange.request("GET", ORIGIN, "/", headers=(), body=b"")

    with pytest.raises(ValueError, match=f"connection was closed: {reason}"):
        talk.exchange.feed(goaway(last_stream, code))


def test_a_stream_that_is_reset_is_a_failure() -> None:
    def answer(connection: H2Connection, asked: Asked) -> None:
        connection.reset_stream(asked.stream, ErrorCodes.REFUSED_STREAM)

    with pytest.raises(ValueError, match="stream was reset: REFUSED_STREAM"):
        ask(answer)


def test_what_follows_an_answer_is_nobodys() -> None:
    """A server that wants no more of the request's body resets the stream."""
    talk = Talk(status())
    talk.exchange.request("GET", ORIGIN, "/", headers=(), body=b"")
    answer = talk.peer.receive(b"".join(talk.sent))

    talk.exchange.feed(answer + frame(3, bytes(4), stream=1))

    assert not talk.exchange.goes_on
    assert talk.exchange.is_complete


@pytest.mark.parametrize(
    ("head", "reason"), [(False, "before an answer"), (True, "in the middle of the answer")]
)
def test_an_early_end_is_a_failure(head: bool, reason: str) -> None:  # noqa: FBT001 -- a column
    def answer(connection: H2Connection, asked: Asked) -> None:
        if head:
            connection.send_headers(asked.stream, [(":status", "200")])

    exchange = ask(answer)

    with pytest.raises(ValueError, match=f"connection closed {reason}"):
        exchange.feed(b"")


def test_a_server_of_the_older_version_is_named() -> None:
    with pytest.raises(ValueError, match="no HTTP/2 answer: the server speaks HTTP/1"):
        Exchange(lambda _: None).feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\1\1\4\0\0\0\1\xff",  # headers that no table has
        b"\0\0\0\0\0\0\0\0\1",  # data before headers
        b"\xff\xff\xff\0\0\0\0\0\1",  # a frame of 16 MB
    ],
)
def test_what_is_no_http2_is_a_failure_at_once(data: bytes) -> None:
    with pytest.raises(ValueError, match="no HTTP/2 answer"):
        Exchange(lambda _: None).feed(data)


def test_what_is_no_http2_request_is_refused() -> None:
    exchange = Exchange(lambda _: None)

    with pytest.raises(ValueError, match="no HTTP/2 request"):
        exchange.request("GET", ORIGIN, "/", headers=((":path", "/other"),), body=b"")


PING: Final = b"\0\0\x08\6\0\0\0\0\0" + b"12345678"
TOO_MANY: Final = PING * (RESPONSE_HEAD_BYTES // len(PING) + 1)


def test_a_head_that_does_not_end_is_a_failure() -> None:
    """Of pings, which are answered, or of whatever else is no answer."""
    exchange = Exchange(lambda _: None)

    with pytest.raises(ValueError, match=f"headers are longer than {RESPONSE_HEAD_BYTES} bytes"):
        exchange.feed(TOO_MANY)


def test_so_is_what_comes_in_place_of_the_rest_of_a_body() -> None:
    def begin(connection: H2Connection, asked: Asked) -> None:
        connection.send_headers(asked.stream, [(":status", "200")])
        connection.send_data(asked.stream, b"begun")

    exchange = ask(begin)
    assert list(exchange.pieces) == [b"begun"]

    with pytest.raises(ValueError, match="headers are longer than"):
        exchange.feed(TOO_MANY)


def test_one_answer_follows_the_other() -> None:
    talk = Talk(status(203, b"fine"))
    for _ in range(3):
        exchange = talk.ask()
        assert (exchange.status, list(exchange.pieces)) == (203, [b"fine"])
        assert exchange.has_begun
        assert exchange.goes_on

    assert [each.stream for each in talk.peer.asked] == [1, 3, 5]


def test_the_end_of_an_answer_before_is_not_that_of_the_next() -> None:
    talk = Talk(status())
    talk.ask()
    talk.exchange.request("GET", ORIGIN, "/", headers=(), body=b"")

    talk.exchange.feed(frame(3, bytes(4), stream=1) + talk.peer.receive(b"".join(talk.sent)))

    assert talk.exchange.is_complete
