"""HTTP/2 answers, however they are cut and whatever they are."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from h2.connection import H2Connection
from hypothesis import given
from hypothesis import strategies as st

from agent.http.http2 import Exchange
from tests.fakes.http2 import Asked, Peer


def answer(connection: H2Connection, asked: Asked) -> None:
    connection.send_headers(asked.stream, [(":status", "103")])
    connection.send_headers(asked.stream, [(":status", "200"), ("server", "app")])
    connection.send_data(asked.stream, b"body " * 100)
    connection.send_headers(asked.stream, [("grpc-status", "0")], end_stream=True)


def begun() -> tuple[Exchange, bytes]:
    """Return an exchange that has asked, and what it is answered."""
    sent: list[bytes] = []
    exchange = Exchange(sent.append)
    exchange.request("GET", "https://a", "/", headers=(), body=b"")
    return exchange, Peer(answer).receive(b"".join(sent))


@given(st.lists(st.integers(min_value=0, max_value=800), max_size=20))
def test_an_answer_may_be_cut_anywhere(cuts: Sequence[int]) -> None:
    exchange, data = begun()

    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, end in pairwise(places):
        exchange.feed(data[start:end])

    assert exchange.is_complete
    assert (exchange.status, exchange.headers) == (200, (("server", "app"),))
    assert b"".join(exchange.pieces) == b"body " * 100
    assert exchange.trailers == (("grpc-status", "0"),)


@given(st.binary(min_size=1, max_size=200), st.integers(min_value=0, max_value=800))
def test_hostile_bytes_are_refused_with_a_reason(hostile: bytes, at: int) -> None:
    exchange, data = begun()
    at %= len(data)

    with suppress(ValueError):
        exchange.feed(data[:at] + hostile + data[at + len(hostile) :])


FRAMES = st.builds(
    lambda kind, flags, stream, payload: (
        len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload
    ),
    st.integers(min_value=0, max_value=12),
    st.integers(min_value=0, max_value=255),
    st.sampled_from((0, 1, 1, 2, 3)),
    st.binary(max_size=20),
)


@given(st.lists(FRAMES, min_size=1, max_size=10))
def test_frames_out_of_place_are_refused_with_a_reason(frames: Sequence[bytes]) -> None:
    exchange, data = begun()

    with suppress(ValueError):
        exchange.feed(data[:30])
        exchange.feed(b"".join(frames))
        exchange.feed(data[30:])
