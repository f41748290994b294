"""Asks a source for its page of metrics: Envoy, or the application.

Source: status-lifecycle.md sections 4.3 to 4.8.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, aclosing
from typing import Final, NamedTuple

from agent.http.client import HttpError, Incoming
from agent.http.coding import decoded
from agent.http.kept.client import Kept
from agent.http.message import Headers, Request, first_value
from agent.status.exposition import (
    Format,
    common_format,
    is_openmetrics,
    negotiate,
    response_format,
)
from agent.status.merge.admission import Budget, Held
from agent.status.redirects.client import get
from agent.status.relay import Url
from agent.status.scrape import Target

OK: Final = 200
#: Of a page that is collected.
PAGE_BYTES: Final = 10 * 1024 * 1024
SLICE_BYTES: Final = 64 * 1024
TIMEOUT_HEADER: Final = "X-Prometheus-Scrape-Timeout-Seconds"


class TimeLimits(NamedTuple):
    """How long a source has, in seconds from now; None is for ever."""

    #: To begin its answer; where pages are collected, to end it.
    answer: float | None = None
    #: To end it. What it takes to write what others have answered is left.
    end: float | None = None


class Page(NamedTuple):
    """A collected page."""

    format: Format  #: how it is labelled, where it stands alone
    is_openmetrics: bool  #: how it is written
    body: bytearray

    def slices(self) -> Iterator[bytes]:
        """Yield it a little at a time, and let go of what was yielded."""
        while self.body:
            piece = bytes(self.body[:SLICE_BYTES])
            del self.body[:SLICE_BYTES]
            yield piece


class Sources(NamedTuple):
    """What has answered."""

    envoy: Incoming | None
    #: In its order; one that is streamed is the only one.
    application: tuple[Incoming | Page, ...]

    @property
    def format(self) -> Format:
        """Return the format of the whole."""
        return common_format(
            page.format if isinstance(page, Page) else response_format(content_type(page))
            for page in self.application
        )


def time_limits(text: str) -> TimeLimits:
    """Return the limits of each source, given the caller's own, in seconds.

    An application that hangs is given up while there is time to send Envoy's page, which then has
    nearly all of the caller's (cases.md M13). Zero or less fails at once; none is no limit.

    Raises:
        ValueError: it is no number.
    """
    if not text:
        return TimeLimits()
    seconds = float(text)
    if math.isinf(seconds) and seconds > 0:
        return TimeLimits()
    if not seconds > 0:
        return TimeLimits(0.0, 0.0)
    return TimeLimits(seconds - min(seconds / 2, 1.0), seconds - min(seconds / 40, 0.1))


def source_headers(request: Request, allowed: frozenset[str]) -> Headers:
    """Return what a source is sent, given what we were sent and the media types it may answer."""
    accept = negotiate(request.header("accept"), allowed)
    copied = [
        (name, value) for name in ("User-Agent", TIMEOUT_HEADER) if (value := request.header(name))
    ]
    return (*copied, ("Accept", accept), ("Accept-Encoding", "gzip"))


async def open_page(
    stack: AsyncExitStack, target: Target, headers: Headers, limits: TimeLimits, kept: Kept
) -> Incoming:
    """Return an answer with status 200, after redirects on the same host.

    Raises:
        HttpError: there is none.
        ValueError: a redirect cannot be followed.
    """
    url = Url("https" if target.is_tls else "http", "localhost", target.port, target.path)
    page = get(url, headers=headers, timeout_seconds=limits.end, protocols=("http/1.1",), kept=kept)
    try:
        async with asyncio.timeout(limits.answer), AsyncExitStack() as attempt:
            incoming = await attempt.enter_async_context(page)
            if incoming.status != OK:
                raise incoming.error(f"status {incoming.status}, expected 200")
            stack.push_async_exit(attempt.pop_all())
            return incoming
    except TimeoutError:
        raise HttpError(str(url), f"no answer after {limits.answer:g} s") from None


async def collect(
    stack: AsyncExitStack,
    target: Target,
    headers: Headers,
    limits: TimeLimits,
    budget: Budget,
    *,
    kept: Kept,
) -> Page:
    """Return a whole page, which is held until the stack is left.

    Raises:
        HttpError: there is none, not in time, or it is too long.
        ValueError: a redirect cannot be followed, or it is not the gzip that it says.
    """
    try:
        async with asyncio.timeout(limits.answer), AsyncExitStack() as connection:
            incoming = await open_page(connection, target, headers, limits, kept)
            return await take_in(stack, incoming, budget)
    except TimeoutError:
        raise HttpError(f"port {target.port}", f"no page after {limits.answer:g} s") from None


async def take_in(stack: AsyncExitStack, incoming: Incoming, budget: Budget) -> Page:
    """Return the page whose beginning has come; see `collect`."""
    held = stack.enter_context(Held(budget))
    async with aclosing(body_of(incoming)) as pieces:
        async for piece in pieces:
            if len(held.body) + len(piece) > PAGE_BYTES:
                raise incoming.error(f"page is longer than {PAGE_BYTES} bytes")
            if not held.add(piece):
                raise incoming.error("too much is held for other scrapes")
    label = content_type(incoming)
    return Page(response_format(label), is_openmetrics(label), held.body)


def content_type(incoming: Incoming) -> str:
    """Return how a page is labelled."""
    return first_value(incoming.headers, "content-type")


def body_of(incoming: Incoming) -> AsyncGenerator[bytes, None]:
    """Return what yields a page without its content coding."""
    return decoded(incoming, first_value(incoming.headers, "content-encoding"))
