"""Answers a scrape: the agent's metrics, then Envoy's, then the application's.

Envoy and the application are asked at the same time, and each has its own time limit; whatever
fails is counted and left out. Envoy's page and a single page of the application are streamed at
the pace of the caller. Several pages are collected first: the format of the whole depends on all.

Source: status-lifecycle.md sections 4.2 to 4.9; cases.md M1, M2, M7, M8, M13.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Final, NamedTuple

from agent.http.client import HttpError, Incoming, stream
from agent.http.coding import decoded
from agent.http.message import Headers, Reply, Request, first_value
from agent.metrics import Metrics
from agent.status.exposition import (
    APPLICATION_TYPES,
    ENVOY_TYPES,
    TERMINATOR,
    Format,
    Lines,
    common_format,
    negotiate,
    response_format,
    strip_terminator,
    whole_lines,
)
from agent.status.merge.admission import Admission
from agent.status.pace import Pace
from agent.status.relay import MAX_REQUESTS, Url, next_hop
from agent.status.scrape import Target
from agent.status.settings import ScrapeSettings

log = logging.getLogger(__name__)

OK: Final = 200
#: Of a page that is collected.
PAGE_BYTES: Final = 10 * 1024 * 1024
#: Kept of the caller's time limit for the answer itself, at most (cases.md M13).
MARGIN_SECONDS: Final = 0.5
TOO_MANY: Final = Reply(
    503,
    b"too many scrapes at once\n",
    (("Content-Type", "text/plain; charset=utf-8"), ("Retry-After", "1")),
)
TIMEOUT_HEADER: Final = "X-Prometheus-Scrape-Timeout-Seconds"


class Page(NamedTuple):
    """A collected page of the application."""

    format: Format
    body: bytes


class Scraper:
    """Scrapes on behalf of its callers, few at a time."""

    def __init__(self, settings: ScrapeSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._admission = Admission()
        self._pace = Pace()

    async def scrape(self, request: Request) -> Reply:
        """Return the merged page; 200 whatever fails, 503 while too many others are under way."""
        if not self._admission.enter(request.peer):
            return TOO_MANY
        async with AsyncExitStack() as stack:
            stack.callback(self._admission.leave, request.peer)
            self._metrics.count("scrapes_total")
            async with asyncio.TaskGroup() as tasks:
                envoy = tasks.create_task(self._open_envoy(stack, request))
                if len(self._settings.targets) > 1:
                    pages = [
                        tasks.create_task(self._collect(target, request))
                        for target in self._settings.targets
                    ]
                    single = None
                else:
                    pages = []
                    single = tasks.create_task(self._open_single(stack, request))
            found = [page for task in pages if (page := task.result())]
            application = single.result() if single else None
            if application:
                kind = response_format(first_value(application.headers, "content-type"))
            else:
                kind = common_format(page.format for page in found)
            body = self._merged(stack.pop_all(), envoy.result(), application or found, kind)
            return Reply(OK, body, (("Content-Type", kind.content_type),))

    async def _merged(
        self,
        stack: AsyncExitStack,
        envoy: Incoming | None,
        application: Incoming | Sequence[Page],
        kind: Format,
    ) -> AsyncGenerator[bytes, None]:
        async with stack:
            yield self._own()
            if envoy:
                async with aclosing(self._copied(envoy, "envoy")) as pieces:
                    async for piece in pieces:
                        yield piece
            if isinstance(application, Incoming):
                async with aclosing(self._copied(application, "application")) as pieces:
                    async for piece in pieces:
                        yield piece
            else:
                for page in application:
                    yield whole_lines(strip_terminator(page.body))
            if kind.is_openmetrics:
                yield TERMINATOR

    def _own(self) -> bytes:
        try:
            return self._metrics.render().encode()
        except Exception:  # what is computed at scrape is other subjects' code
            if self._is_due("agent"):
                log.exception("own metrics could not be rendered")
            self._failed("agent")
            return b""

    async def _copied(self, incoming: Incoming, kind: str) -> AsyncGenerator[bytes, None]:
        """Yield whole lines of a page as it comes; one that breaks off counts as failed."""
        lines = Lines()
        is_whole = False
        coding = first_value(incoming.headers, "content-encoding")
        try:
            async with aclosing(decoded(incoming, coding)) as pieces:
                async for piece in pieces:
                    if text := lines.feed(piece):
                        yield text
            yield lines.end()
            is_whole = True
        except (HttpError, ValueError) as error:
            if self._is_due(f"{kind} breaks off"):
                log.warning("metrics of %s break off: %s", kind, error)
            yield lines.cut()
        finally:
            if not is_whole:
                self._failed(kind)

    async def _open_envoy(self, stack: AsyncExitStack, request: Request) -> Incoming | None:
        port = self._settings.envoy_port
        if port is None:
            return None
        query = f"?{request.query}" if request.query else ""
        target = Target(port, f"/stats/prometheus{query}")
        try:
            return await _open(
                stack, target, _headers(request, ENVOY_TYPES), self._time_limit(request)
            )
        except (HttpError, ValueError) as error:
            if self._is_due("envoy is missing"):
                log.warning("envoy's metrics are missing: %s", error)
            self._failed("envoy")
            return None

    async def _open_single(self, stack: AsyncExitStack, request: Request) -> Incoming | None:
        if not self._settings.targets:
            return None
        target = self._settings.targets[0]
        headers = _headers(request, APPLICATION_TYPES)
        try:
            return await _open(stack, target, headers, self._time_limit(request))
        except (HttpError, ValueError) as error:
            self._missing(target, str(error))
            return None

    async def _collect(self, target: Target, request: Request) -> Page | None:
        headers = _headers(request, APPLICATION_TYPES)
        pieces: list[bytes] = []
        size = 0
        try:
            async with AsyncExitStack() as stack:
                incoming = await _open(stack, target, headers, self._time_limit(request))
                coding = first_value(incoming.headers, "content-encoding")
                async with aclosing(decoded(incoming, coding)) as body:
                    async for piece in body:
                        size += len(piece)
                        if size > PAGE_BYTES:
                            raise incoming.error(f"page is longer than {PAGE_BYTES} bytes")
                        pieces.append(piece)
        except (HttpError, ValueError) as error:
            self._missing(target, str(error))
            return None
        kind = response_format(first_value(incoming.headers, "content-type"))
        return Page(kind, b"".join(pieces))

    def _time_limit(self, request: Request) -> float | None:
        """Return how long each source has, None for no limit; zero fails at once."""
        text = request.header(TIMEOUT_HEADER)
        if not text:
            return None
        try:
            seconds = float(text)
        except ValueError:
            if self._is_due(TIMEOUT_HEADER):
                log.warning("%s=%r: expected seconds; no time limit", TIMEOUT_HEADER, text)
            return None
        if math.isinf(seconds) and seconds > 0:
            return None
        return max(seconds - min(MARGIN_SECONDS, seconds / 10), 0.0) if seconds > 0 else 0.0

    def _missing(self, target: Target, reason: str) -> None:
        if self._is_due(str(target)):
            # Quoted, so that a path with line breaks cannot forge log lines.
            log.warning(
                "application's metrics are missing port=%d path=%r reason=%s",
                target.port,
                target.path,
                reason,
            )
        self._failed("application")

    def _is_due(self, about: str) -> bool:
        return self._pace.is_due(about, time.monotonic())

    def _failed(self, kind: str) -> None:
        self._metrics.count("scrape_failures_total", type=kind)


async def _open(
    stack: AsyncExitStack, target: Target, headers: Headers, limit_seconds: float | None
) -> Incoming:
    """Return an answer with status 200, after redirects on the same host.

    Raises:
        HttpError: there is none.
        ValueError: a redirect cannot be followed.
    """
    url = Url("http", "localhost", target.port, target.path)
    loop = asyncio.get_running_loop()
    end = None if limit_seconds is None else loop.time() + limit_seconds
    for _ in range(MAX_REQUESTS):
        async with AsyncExitStack() as attempt:
            incoming = await attempt.enter_async_context(
                stream(
                    "GET",
                    url.host,
                    url.port,
                    url.target,
                    headers=headers,
                    timeout_seconds=None if end is None else max(end - loop.time(), 0.0),
                )
            )
            if incoming.status == OK:
                stack.push_async_exit(attempt.pop_all())
                return incoming
            location = first_value(incoming.headers, "location")
            hop = next_hop(url, incoming.status, location)
            if hop is None or hop.url.scheme != "http":
                raise incoming.error(f"status {incoming.status}, expected 200")
        url = hop.url
    raise HttpError(str(url), f"stopped after {MAX_REQUESTS} requests")


def _headers(request: Request, allowed: frozenset[str]) -> Headers:
    accept = negotiate(request.header("accept"), allowed)
    copied = [
        (name, value) for name in ("User-Agent", TIMEOUT_HEADER) if (value := request.header(name))
    ]
    return (*copied, ("Accept", accept), ("Accept-Encoding", "gzip"))
