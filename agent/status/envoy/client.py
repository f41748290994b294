"""Asks Envoy whether it has its configuration and serves.

Whoever asks about a pod that is not ready makes Envoy answer, on the one thread that also takes its
configuration. So there is one query at a time: who comes while it is under way shares its answer.

Source: status-lifecycle.md sections 6.2 and 6.3.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from agent.http.client import HttpError, fetch
from agent.status.readiness import (
    CONFIG,
    CONFIG_TARGET,
    FAILED,
    GATE_TARGET,
    ISTIOD,
    LIFE,
    LIVE_TARGET,
    LOCAL,
    Shortfall,
    judge_config,
    judge_live,
)
from agent.status.settings import StatusSettings

OK: Final = 200
Judge = Callable[[str], Shortfall | None]


class EnvoyReadiness:
    """Whether Envoy may get traffic. What was true of it once is not asked again."""

    def __init__(
        self,
        settings: StatusSettings,
        starts: Callable[[], int],
        note_live: Callable[[], None] = lambda: None,
    ) -> None:
        """Know nothing yet.

        Args:
            settings: where the admin port is, and what is expected.
            starts: how many Envoys were started: what was true of one is not of the next.
            note_live: called when one is found to be live.
        """
        self._settings = settings
        self._count_starts = starts
        self._note_live = note_live
        self._turn = asyncio.Lock()
        self._answers = 0
        self._found: Shortfall | None = None  #: by the latest of them
        self._forget(1)

    def _forget(self, starts: int) -> None:
        self._starts = starts  #: which Envoy the following is true of
        self._has_config = False
        self._is_live = False

    async def problem(self) -> Shortfall | None:
        """Return what speaks against it, None for ready."""
        if self._is_known_live():
            return None
        answers = self._answers
        async with self._turn:
            while self._answers == answers and not self._is_known_live():
                await self._query()
            return self._found

    def _is_known_live(self) -> bool:
        if (starts := self._count_starts()) != self._starts:
            self._forget(starts)
        return self._is_live

    async def _query(self) -> None:
        starts = self._starts
        found = await self._look(starts)
        if starts != self._count_starts():
            return  # that Envoy is gone
        self._found = found
        self._answers += 1
        if found is None:
            self._is_live = True
            self._note_live()

    async def _look(self, starts: int) -> Shortfall | None:
        limits = self._settings.readiness
        if not self._has_config:
            target, limit = CONFIG_TARGET, limits.config_seconds
            if found := await self._ask(CONFIG, target, limit, self._judge_config):
                return found
            self._has_config = starts == self._starts
        target, limit = GATE_TARGET if limits.min_listeners else LIVE_TARGET, limits.live_seconds
        return await self._ask(LIFE, target, limit, self._judge_live, FAILED)

    def _judge_config(self, stats: str) -> Shortfall | None:
        return judge_config(stats, LOCAL if self._settings.is_local else ISTIOD)

    def _judge_live(self, stats: str) -> Shortfall | None:
        return judge_live(stats, self._settings.readiness.min_listeners)

    async def _ask(
        self, check: str, target: str, seconds: float, judge: Judge, prefix: str = ""
    ) -> Shortfall | None:
        host, port = self._settings.admin_host, self._settings.admin_port
        try:
            response = await fetch("GET", host, port, target, timeout_seconds=seconds)
        except HttpError as error:
            return Shortfall(check, f"{prefix}{error}")
        if response.status != OK:
            return Shortfall(check, f"{prefix}unexpected status {response.status}")
        return judge(response.body.decode("utf-8", "replace"))
