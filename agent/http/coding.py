"""Content codings: gzip for what we send and what we are sent, piece by piece.

Source: status-lifecycle.md sections 3.3 and 4.8.
"""

import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from agent.http.message import BODILESS, Reply, Request, choose_encoding, first_value

#: Shorter bodies are sent as they are.
MINIMUM_BYTES: Final = 1024
#: The fastest: a scrape is 19 MB at times, and every pod pays for it.
LEVEL: Final = 1
#: Of what is made out of one compressed piece at once.
INFLATED_BYTES: Final = 64 * 1024
GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS
UNCHANGED_TYPES: Final = (
    "application/x-ndjson",  # lines are to be read as they come: none may be held back
    "audio/",  # compressed in themselves, as are those that follow
    "video/",
    "image/",
    "application/gzip",
    "application/zip",
    "application/zstd",
)


async def compressed(request: Request, reply: Reply) -> Reply:
    """Return the reply in a coding that the client accepts, itself where none is worth it."""
    if (
        request.method == "HEAD"
        or reply.status in BODILESS
        or first_value(reply.headers, "content-type").startswith(UNCHANGED_TYPES)
        or choose_encoding(request.header("accept-encoding")) is None
    ):
        return reply
    if isinstance(reply.body, bytes):
        start, rest = reply.body, None
    else:
        start, rest = await _start(reply.body), reply.body
    if len(start) < MINIMUM_BYTES:
        return reply._replace(body=start)
    headers = (*reply.headers, ("Content-Encoding", "gzip"))
    if rest is not None:
        return reply._replace(body=_deflated(start, rest), headers=headers)
    squeeze = zlib.compressobj(LEVEL, wbits=GZIP_FORMAT)
    return reply._replace(body=squeeze.compress(start) + squeeze.flush(), headers=headers)


async def _start(pieces: AsyncGenerator[bytes, None]) -> bytes:
    """Return enough to decide; less than that only if it is everything."""
    start = b""
    while len(start) < MINIMUM_BYTES:
        try:
            start += await anext(pieces)
        except StopAsyncIteration:
            break
        except BaseException:
            await pieces.aclose()
            raise
    return start


async def _deflated(start: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    squeeze = zlib.compressobj(LEVEL, wbits=GZIP_FORMAT)
    try:
        yield squeeze.compress(start)
        async for piece in rest:
            yield squeeze.compress(piece)
        yield squeeze.flush()
    finally:
        await rest.aclose()


async def inflated(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield what a gzip body holds, in pieces of at most INFLATED_BYTES.

    Raises:
        ValueError: it is not gzip, or ends too early.
    """
    inflate = zlib.decompressobj(GZIP_FORMAT)
    async for piece in pieces:
        data = piece
        while data:
            if inflate.eof:  # gzip bodies may be joined
                inflate = zlib.decompressobj(GZIP_FORMAT)
            try:
                plain = inflate.decompress(data, INFLATED_BYTES)
            except zlib.error as error:
                raise ValueError(f"not gzip: {error}") from None
            yield plain
            data = inflate.unconsumed_tail or inflate.unused_data
    if not inflate.eof:
        raise ValueError("gzip body ends too early")


async def decoded(pieces: AsyncIterator[bytes], coding: str) -> AsyncGenerator[bytes, None]:
    """Yield a body without its content coding, where that is gzip.

    Raises:
        ValueError: it is not gzip, or ends too early.
    """
    if coding.strip().lower() in ("gzip", "x-gzip"):
        async with aclosing(inflated(pieces)) as plain:
            async for piece in plain:
                yield piece
    else:
        async for piece in pieces:
            yield piece
