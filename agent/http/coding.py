"""Content codings, piece by piece: zstd and gzip for what we send, gzip for what we are sent.

Zstandard's library is imported for the first client that asks for it, and may be missing.

Source: status-lifecycle.md sections 3.3 and 4.8.
"""

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import lru_cache
from typing import Final, Protocol

from agent.http.message import BODILESS, Reply, Request, choose_encoding, first_value

#: Shorter bodies are sent as they are.
MINIMUM_BYTES: Final = 1024
#: The fastest, of either coding: a scrape is 19 MB at times, and every pod pays for it.
LEVEL: Final = 1
#: Zstandard looks back 128 KiB: half a megabyte in all, and metrics pack no worse than with more.
WINDOW_BITS: Final = 17
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


class Packer(Protocol):
    """What makes a content coding out of pieces."""

    def compress(self, data: bytes, /) -> bytes:
        """Return what there is to send by now."""

    def flush(self) -> bytes:
        """Return the rest."""


def _gzip() -> Packer:
    return zlib.compressobj(LEVEL, wbits=GZIP_FORMAT)


@lru_cache(maxsize=1)
def _zstd() -> Callable[[], Packer] | None:
    """Return what makes packers of zstd, None without its library."""
    try:
        import zstandard  # noqa: PLC0415 -- for the few who ask
    except ImportError:
        return None
    parameters = zstandard.ZstdCompressionParameters.from_level(LEVEL, window_log=WINDOW_BITS)
    return lambda: zstandard.ZstdCompressor(compression_params=parameters).compressobj()


def _choose(accepted: str) -> tuple[str, Callable[[], Packer]] | None:
    """Return the coding for a client and what makes its packer, None for no coding."""
    zstd = _zstd() if "zstd" in accepted.lower() else None
    coding = choose_encoding(accepted, ("zstd", "gzip") if zstd else ("gzip",))
    if coding is None:
        return None
    return coding, zstd if zstd and coding == "zstd" else _gzip


async def compressed(request: Request, reply: Reply) -> Reply:
    """Return the reply in a coding that the client accepts, itself where none is worth it."""
    if (
        request.method == "HEAD"
        or reply.status in BODILESS
        or first_value(reply.headers, "content-type").startswith(UNCHANGED_TYPES)
        or (chosen := _choose(request.header("accept-encoding"))) is None
    ):
        return reply
    if isinstance(reply.body, bytes):
        start, rest = reply.body, None
    else:
        start, rest = await _start(reply.body), reply.body
    if len(start) < MINIMUM_BYTES:
        return reply._replace(body=start)
    coding, new_packer = chosen
    packer = new_packer()
    headers = (*reply.headers, ("Content-Encoding", coding))
    if rest is not None:
        return reply._replace(body=_packed(packer, start, rest), headers=headers)
    return reply._replace(body=packer.compress(start) + packer.flush(), headers=headers)


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


async def _packed(
    packer: Packer, start: bytes, rest: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    try:
        yield packer.compress(start)
        async for piece in rest:
            yield packer.compress(piece)
        yield packer.flush()
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
