"""Checks the application for as long as the agent runs, and reports what changes.

Source: xds-identity-dns.md sections 9.2 to 9.4.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from agent.status.application.client import find_problem
from agent.status.application.settings import HealthSettings
from agent.status.application.state import State, next_due, observe
from agent.status.envoy.client import EnvoyReadiness
from agent.status.hooks import Hooks
from agent.status.settings import StatusSettings

log = logging.getLogger(__name__)

#: Takes why the application is not healthy, None where it is.
Report = Callable[[str | None], None]
#: Returns why Envoy does not serve, None where it does.
Ask = Callable[[], Awaitable[str | None]]


class Checker:
    """What is known of the application's health."""

    def __init__(self, settings: HealthSettings, ask_envoy: Ask, report: Report) -> None:
        """Know nothing yet.

        Args:
            settings: what is checked, and when.
            ask_envoy: asked first.
            report: told of each change.
        """
        self._settings = settings
        self._ask_envoy = ask_envoy
        self._report = report
        self._state = State()
        self._problem: str | None = None

    def problem(self) -> str | None:
        """Return what is wrong with the application, for people; None if nothing is known to be."""
        return self._problem and f"application is not healthy: {self._problem}"

    async def run(self) -> None:
        """Check until cancelled."""
        await asyncio.sleep(self._settings.initial_delay_seconds)
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            await self._check()
            due = next_due(due, self._settings.period_seconds, clock())
            await asyncio.sleep(due - clock())

    async def _check(self) -> None:
        problem = await self._ask_envoy() or await find_problem(self._settings)
        log.debug("= checked problem=%r", problem)
        self._state, is_news = observe(
            self._state, is_healthy=problem is None, thresholds=self._settings.thresholds
        )
        if not is_news:
            return
        self._problem = problem
        if problem is None:
            log.info("application is healthy")
        else:
            log.warning("application is not healthy reason=%r", problem)
        self._report(problem)


class _Envoy:
    """Whether whoever comes through Envoy would reach the application."""

    def __init__(self, settings: StatusSettings, hooks: Hooks) -> None:
        self._hooks = hooks
        self._admin = EnvoyReadiness(settings, hooks.starts) if settings.envoy_enabled else None

    async def problem(self) -> str | None:
        """Return why not, None if so."""
        if cause := self._hooks.terminating():
            return f"server is terminated: {cause}"
        check = self._hooks.checks.get("envoy")
        if check and (reason := check()):
            return reason
        shortfall = await self._admin.problem() if self._admin else None
        return shortfall and shortfall.reason


@asynccontextmanager
async def checking(
    settings: StatusSettings, health: HealthSettings, hooks: Hooks, report: Report
) -> AsyncIterator[Checker]:
    """Check and report while the context is open.

    Args:
        settings: where Envoy is asked.
        health: what is checked, and when.
        hooks: the rest of the agent.
        report: told of each change.
    """
    checker = Checker(health, _Envoy(settings, hooks).problem, report)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(checker.run())
        try:
            yield checker
        finally:
            task.cancel()
