import gzip
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
import zstandard

from agent.http.coding import INFLATED_BYTES, compressed, decoded, inflated
from agent.http.message import Reply, Request

GZIP = Request("GET", "/", (("Accept-Encoding", "gzip"),))
LONG = b"x" * 1024  # status-lifecycle.md 3.3


class Pieces:
    """A generator that says whether it was closed."""

    def __init__(self, *pieces: bytes, error: Exception | None = None) -> None:
        self.is_closed = False
        self.generator = self._generate(pieces, error)

    async def _generate(
        self, pieces: tuple[bytes, ...], error: Exception | None
    ) -> AsyncGenerator[bytes, None]:
        try:
            for piece in pieces:
                yield piece
            if error:
                raise error
        finally:
            self.is_closed = True


async def whole(reply: Reply) -> bytes:
    if isinstance(reply.body, bytes):
        return reply.body
    return b"".join([piece async for piece in reply.body])


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (GZIP._replace(method="HEAD"), Reply(200, LONG)),
        (GZIP._replace(headers=()), Reply(200, LONG)),
        (GZIP, Reply(204, b"")),
        (GZIP, Reply(200, LONG[1:])),
        (GZIP, Reply(200, LONG, (("Content-Type", "image/png"),))),
        (GZIP, Reply(200, LONG, (("Content-Type", "application/x-ndjson"),))),
    ],
)
async def test_a_reply_is_left_as_it_is(request_: Request, reply: Reply) -> None:
    assert await compressed(request_, reply) == reply


async def test_a_long_body_is_compressed() -> None:
    reply = await compressed(GZIP, Reply(200, LONG, (("A", "b"),)))

    assert reply.headers == (("A", "b"), ("Content-Encoding", "gzip"))
    assert gzip.decompress(await whole(reply)) == LONG


def unpack(coding: str, data: bytes) -> bytes:
    if coding == "gzip":
        return gzip.decompress(data)
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("zstd", "zstd"),
        ("gzip, zstd", "zstd"),
        ("gzip;q=1, ZSTD;q=0.5", "gzip"),
        ("zstd;q=0, gzip", "gzip"),
        ("br, deflate, *, gzip", "gzip"),
    ],
)
async def test_the_client_chooses_and_zstd_wins_ties(accepted: str, coding: str) -> None:
    request = Request("GET", "/", (("Accept-Encoding", accepted),))

    plain = await compressed(request, Reply(200, LONG))
    streamed = await compressed(request, Reply(200, Pieces(LONG, b"", b"end").generator))

    assert plain.headers == streamed.headers == (("Content-Encoding", coding),)
    assert unpack(coding, await whole(plain)) == LONG
    assert unpack(coding, await whole(streamed)) == LONG + b"end"


@pytest.mark.parametrize(("accepted", "coding"), [("gzip, zstd", "gzip"), ("zstd", "none")])
def test_zstd_is_not_offered_where_its_library_is_missing(accepted: str, coding: str) -> None:
    code = f"""
import sys, asyncio
sys.modules["zstandard"] = None
from agent.http.coding import compressed
from agent.http.message import Reply, Request
request = Request("GET", "/", (("Accept-Encoding", {accepted!r}),))
reply = asyncio.run(compressed(request, Reply(200, bytes(2000))))
print(dict(reply.headers).get("Content-Encoding", "none"))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == coding


def test_zstd_is_not_imported_for_who_does_not_ask() -> None:
    code = """
import sys, asyncio
from agent.http.coding import compressed
from agent.http.message import Reply, Request
request = Request("GET", "/", (("Accept-Encoding", "gzip"),))
asyncio.run(compressed(request, Reply(200, bytes(2000))))
print("zstandard" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "False"


async def test_a_long_stream_is_compressed_and_its_source_closed() -> None:
    source = Pieces(b"a", LONG, b"b")

    reply = await compressed(GZIP, Reply(200, source.generator))

    assert reply.headers == (("Content-Encoding", "gzip"),)
    assert gzip.decompress(await whole(reply)) == b"a" + LONG + b"b"
    assert source.is_closed


async def test_a_compressed_stream_that_is_left_closes_its_source() -> None:
    source = Pieces(LONG, LONG)

    reply = await compressed(GZIP, Reply(200, source.generator))
    assert not isinstance(reply.body, bytes)
    await anext(reply.body)
    await reply.body.aclose()

    assert source.is_closed


async def test_a_short_stream_becomes_a_plain_body() -> None:
    source = Pieces(b"a", b"b")

    reply = await compressed(GZIP, Reply(200, source.generator))

    assert reply == Reply(200, b"ab")
    assert source.is_closed


async def test_a_stream_that_fails_at_once_is_closed() -> None:
    source = Pieces(b"a", error=RuntimeError("broken"))

    with pytest.raises(RuntimeError, match="broken"):
        await compressed(GZIP, Reply(200, source.generator))

    assert source.is_closed


async def feed(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def test_gzip_is_undone_in_bounded_pieces() -> None:
    data = gzip.compress(b"\0" * 1_000_000) + gzip.compress(b"end")

    pieces = [piece async for piece in inflated(feed(data[:10], data[10:900], data[900:]))]

    assert b"".join(pieces) == b"\0" * 1_000_000 + b"end"
    assert max(map(len, pieces)) <= INFLATED_BYTES


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"not gzip at all", "not gzip"), (gzip.compress(b"abc")[:-1], "ends too early")],
    ids=["not gzip", "cut off"],
)
async def test_what_is_no_whole_gzip_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        _ = [piece async for piece in inflated(feed(data))]


async def test_only_gzip_is_undone() -> None:
    packed = gzip.compress(b"abc")

    assert [piece async for piece in decoded(feed(packed), "br")] == [packed]
    assert b"".join([piece async for piece in decoded(feed(packed), " GZIP")]) == b"abc"
