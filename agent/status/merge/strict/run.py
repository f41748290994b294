"""Reads and writes the page where nothing may stand twice, without keeping others waiting."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from itertools import chain
from typing import Final

from agent.status.exposition import Format
from agent.status.merge.client import Page, Sources, body_of
from agent.status.merge.log import Account
from agent.status.merge.strict.reader import Reader, Splitter
from agent.status.merge.strict.union import Book, Streamed, Union

#: Lines of a held page that are read in one go: a third of a millisecond.
LINES: Final = 64
#: What is written in one go: so much, or as much as can be made in so long. A probe takes some ten
#: turns of the loop.
PIECE_BYTES: Final = 32 * 1024
TURN_SECONDS: Final = 0.0005


async def union(sources: Sources, account: Account) -> AsyncGenerator[bytes, None]:
    """Yield one page of all that has answered, without terminator."""
    async with aclosing(_parts(sources, account)) as parts:
        async for part in parts:
            for piece in _in_turns(part):
                yield piece
                await asyncio.sleep(0)


async def rewritten(page: Page, kind: Format, account: Account) -> AsyncGenerator[bytes, None]:
    """Yield a held page in another format than its own, without terminator."""
    book = await _book(page, kind, account)
    for piece in _in_turns(Union([book], openmetrics=kind.is_openmetrics).rest()):
        yield piece
        await asyncio.sleep(0)


async def _parts(sources: Sources, account: Account) -> AsyncGenerator[Iterator[bytes], None]:
    kind = sources.format
    pages = [page for page in sources.application if isinstance(page, Page)]
    whole = Union(
        [await _book(page, kind, account) for page in pages], openmetrics=kind.is_openmetrics
    )
    own = _streamed(whole, kind, account, "agent")
    yield chain(own.feed(account.own().split(b"\n")), own.end())
    if sources.envoy:
        envoy = _streamed(whole, kind, account, "envoy")
        splitter = Splitter(account.dropped("envoy"))
        with account.reading("envoy"):
            async with aclosing(body_of(sources.envoy)) as pieces:
                async for piece in pieces:
                    yield envoy.feed(splitter.feed(piece))
            yield envoy.feed(splitter.end())
        yield envoy.end()
    yield whole.rest()


def _streamed(whole: Union, kind: Format, account: Account, source: str) -> Streamed:
    dropped = account.dropped(source)
    return Streamed(
        whole, Reader(dropped, openmetrics=False, as_openmetrics=kind.is_openmetrics), dropped
    )


async def _book(page: Page, kind: Format, account: Account) -> Book:
    dropped = account.dropped("application")
    reader = Reader(dropped, openmetrics=page.is_openmetrics, as_openmetrics=kind.is_openmetrics)
    book, splitter = Book(reader, dropped), Splitter(dropped)
    for piece in page.slices():
        lines = splitter.feed(piece)
        for start in range(0, len(lines), LINES):
            book.feed(lines[start : start + LINES])
            await asyncio.sleep(0)
    book.feed(splitter.end())
    return book


def _in_turns(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same joined, and nothing at times where it takes long to make something."""
    some: list[bytes] = []
    size, began = 0, time.monotonic()
    for piece in pieces:
        some.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES or time.monotonic() - began > TURN_SECONDS:
            yield b"".join(some)
            some.clear()
            size, began = 0, time.monotonic()
    yield b"".join(some)
