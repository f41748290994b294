"""Whatever the bytes and however they are cut, the HTTP plumbing stays in order."""

import asyncio
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.http.client import fetch
from agent.http.message import Reply, Request, clean_path, render_request
from agent.http.parser import Limits, Refusal, RequestParser, ResponseParser
from agent.http.server import listening

TOKEN = st.text("abcXYZ019-_", min_size=1, max_size=8)
VALUE = st.text("ab :;,=/\xe9", max_size=10).map(str.strip)
TARGET = st.text("ab/.%2e?&", max_size=12).map(lambda text: "/" + text)
METHOD = st.sampled_from(["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS"])
FRAMING_NAMES = {"host", "connection", "upgrade", "content-length", "transfer-encoding", "expect"}
HEADERS = st.lists(
    st.tuples(TOKEN.filter(lambda name: name.lower() not in FRAMING_NAMES), VALUE), max_size=4
)


class Wire(NamedTuple):
    """A request and one way to write it."""

    request: Request
    data: bytes


@st.composite
def wires(draw: st.DrawFn) -> Wire:
    body = draw(st.binary(max_size=40))
    headers = [("Host", "x"), *draw(HEADERS)]
    if not draw(st.booleans()):
        headers.append(("Content-Length", str(len(body))))
        framed = body
    else:
        headers.append(("Transfer-Encoding", "chunked"))
        size = draw(st.integers(1, 41))
        chunks = [body[start : start + size] for start in range(0, len(body), size)]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
        framed += b"0\r\n\r\n"
    request = Request(draw(METHOD), draw(TARGET), tuple(headers), body, "peer")
    return Wire(request, render_request(request.method, request.target, headers) + framed)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


CUTS = st.lists(st.integers(0, 60), max_size=20)


@given(st.lists(wires(), max_size=6), CUTS)
def test_requests_come_out_as_they_went_in_however_they_are_cut(
    sent: list[Wire], sizes: list[int]
) -> None:
    parser = RequestParser(Limits(), "peer")
    found = []

    for piece in cut(b"".join(wire.data for wire in sent), sizes):
        parser.feed(piece)
        while item := parser.next():
            found.append(item)

    assert found == [wire.request for wire in sent]
    assert not parser.is_inside


FRAGMENT = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            b"GET / HTTP/1.1\r\n", b"Host: x\r\n", b"\r\n", b"\n", b"\r", b":", b" ", b"\t", b"\0",
            b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n",
            b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n", b"ffffffffffffffffff\r\n",
            b"Expect: 100-continue\r\n", b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
            b"CONNECT a:1 HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n", b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 204 X\r\n\r\n", b"5\r\nhello\r\n",
            b"x" * 5000,
        ]
    ),
)  # fmt: skip
GARBAGE = st.lists(FRAGMENT, max_size=25)


@given(GARBAGE)
def test_garbage_ends_in_at_most_one_refusal_and_never_in_an_error(pieces: list[bytes]) -> None:
    limits = Limits(head_bytes=8192, header_count=10, body_bytes=8192)
    parser = RequestParser(limits, "")
    refused = 0

    for piece in pieces:
        parser.feed(piece)
        while item := parser.next():
            assert not refused
            refused += isinstance(item, Refusal)
        assert not parser.held

    assert not refused or parser.is_over


@given(GARBAGE, st.booleans())
def test_a_response_is_read_or_refused_with_a_reason(
    pieces: list[bytes],
    is_head: bool,  # noqa: FBT001 - hypothesis gives it by place
) -> None:
    parser = ResponseParser(is_head=is_head)
    reason = ""
    for piece in [*filter(None, pieces), b""]:
        if parser.is_complete or reason:
            break
        try:
            parser.feed(piece)
        except ValueError as error:
            reason = str(error)

    assert reason or (parser.is_complete and parser.status >= 200)
    assert "\n" not in reason


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Return an answer that says where it ends."""
    body = draw(st.binary(max_size=40))
    if draw(st.booleans()):
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n"


@given(answers(), st.binary(max_size=10).map(lambda data: data.lstrip(b"\r\n")), CUTS)
def test_a_connection_goes_on_only_behind_the_last_byte_of_an_answer(
    answer: bytes, surplus: bytes, sizes: list[int]
) -> None:
    parser, fed = ResponseParser(is_head=False), 0

    for piece in filter(None, cut(answer + surplus, sizes)):
        parser.feed(piece)
        fed += len(piece)
        assert parser.goes_on is (fed == len(answer))


@given(st.text("a/.%2", max_size=20).map(lambda text: "/" + text))
def test_a_cleaned_path_is_clean_and_stays_on_its_host(path: str) -> None:
    clean = clean_path(path)

    assert clean_path(clean) == clean
    assert "//" not in clean
    assert not {"..", "."} & set(clean.split("/"))


@settings(max_examples=30)
@given(st.lists(st.lists(FRAGMENT, max_size=8), min_size=1, max_size=8))
def test_a_server_that_was_fed_garbage_still_serves(conversations: list[list[bytes]]) -> None:
    async def handle(request: Request) -> Reply:
        return Reply(200, request.target.encode())

    async def talk(port: int, pieces: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            writer.write_eof()
            await reader.read()
        except ConnectionError:
            return
        finally:
            writer.transport.abort()

    async def scenario() -> bytes:
        async with listening(handle, port=0, name="s") as port:
            async with asyncio.TaskGroup() as tasks:
                for pieces in conversations:
                    tasks.create_task(talk(port, pieces))
            return (await fetch("GET", "127.0.0.1", port, "/alive", timeout_seconds=5)).body

    assert asyncio.run(scenario()) == b"/alive"
