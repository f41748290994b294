"""Answers a scrape: the agent's metrics, then Envoy's, then the application's.

All sources are asked at the same time, and each has its own time limit; whatever fails is counted
and left out. Envoy's page and a single page of the application are streamed at the pace of the
caller. Several pages are collected first, as the format of the whole depends on all of them; and so
is a single one where nothing may stand twice (strict/union.py).

Source: status-lifecycle.md sections 4.2 to 4.9; cases.md M1, M2, M7, M8, M13.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Final

from agent.http.client import HttpError, Incoming
from agent.http.kept.client import Kept
from agent.http.message import Reply, Request
from agent.metrics import Metrics
from agent.status.exposition import APPLICATION_TYPES, ENVOY_TYPES, TERMINATOR
from agent.status.merge.admission import Admission, Budget
from agent.status.merge.client import (
    OK,
    TIMEOUT_HEADER,
    Page,
    Sources,
    TimeLimits,
    collect,
    open_page,
    source_headers,
    time_limits,
)
from agent.status.merge.log import Account
from agent.status.merge.page.run import sequence
from agent.status.scrape import Target
from agent.status.settings import ScrapeSettings

TOO_MANY: Final = Reply(
    503,
    b"too many scrapes at once\n",
    (("Content-Type", "text/plain; charset=utf-8"), ("Retry-After", "1")),
)


class Scraper:
    """Scrapes on behalf of its callers, few at a time."""

    def __init__(self, settings: ScrapeSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._collects = settings.strict or len(settings.targets) > 1
        self._account = Account(metrics)
        self._admission = Admission()
        self._budget = Budget()
        self._kept = Kept()

    def close(self) -> None:
        """Keep no connection any more."""
        self._kept.close()

    async def scrape(self, request: Request) -> Reply:
        """Return the merged page; 200 whatever fails, 503 while too many others are under way."""
        if not self._admission.enter(request.peer):
            return TOO_MANY
        async with AsyncExitStack() as stack:
            stack.callback(self._admission.leave, request.peer)
            self._account.began()
            sources = await self._ask(stack, request)
            body = self._page(stack.pop_all(), sources)
            return Reply(OK, body, (("Content-Type", sources.format.content_type),))

    async def _ask(self, stack: AsyncExitStack, request: Request) -> Sources:
        limits = self._time_limits(request)
        async with asyncio.TaskGroup() as tasks:
            envoy = tasks.create_task(self._envoy(stack, request, limits))
            application = [
                tasks.create_task(self._application(stack, target, request, limits))
                for target in self._settings.targets
            ]
        found = tuple(page for task in application if (page := task.result()))
        return Sources(envoy.result(), found)

    async def _envoy(
        self, stack: AsyncExitStack, request: Request, limits: TimeLimits
    ) -> Incoming | None:
        port = self._settings.envoy_port
        if port is None:
            return None
        query = f"?{request.query}" if request.query else ""
        target = Target(port, f"/stats/prometheus{query}")
        try:
            headers = source_headers(request, ENVOY_TYPES)
            return await open_page(stack, target, headers, limits, self._kept)
        except (HttpError, ValueError) as error:
            self._account.missing(target, error, source="envoy")
            return None

    async def _application(
        self, stack: AsyncExitStack, target: Target, request: Request, limits: TimeLimits
    ) -> Incoming | Page | None:
        headers = source_headers(request, APPLICATION_TYPES)
        try:
            if self._collects:
                return await collect(stack, target, headers, limits, self._budget, kept=self._kept)
            return await open_page(stack, target, headers, limits, self._kept)
        except (HttpError, ValueError) as error:
            self._account.missing(target, error, source="application")
            return None

    def _time_limits(self, request: Request) -> TimeLimits:
        text = request.header(TIMEOUT_HEADER)
        try:
            return time_limits(text)
        except ValueError:
            self._account.odd(TIMEOUT_HEADER, text)
            return TimeLimits()

    async def _page(self, stack: AsyncExitStack, sources: Sources) -> AsyncGenerator[bytes, None]:
        async with stack, aclosing(self._parts(stack, sources)) as pieces:
            async for piece in pieces:
                yield piece
            if sources.format.is_openmetrics:
                yield TERMINATOR

    def _parts(self, stack: AsyncExitStack, sources: Sources) -> AsyncGenerator[bytes, None]:
        if not self._settings.strict:
            return sequence(stack, sources, self._account, self._budget)
        from agent.status.merge.strict.run import union  # noqa: PLC0415 - for who asked for it

        return union(sources, self._account)
