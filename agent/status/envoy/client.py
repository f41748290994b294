"""Asks Envoy whether it has its configuration and serves.

Source: status-lifecycle.md sections 6.2 and 6.3.
"""

from collections.abc import Callable
from typing import Final

from agent.http.client import HttpError, fetch
from agent.status.readiness import (
    CONFIG,
    CONFIG_TARGET,
    CONFIG_TIMEOUT_SECONDS,
    FAILED,
    ISTIOD,
    LIFE,
    LIVE_TARGET,
    LIVE_TIMEOUT_SECONDS,
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
            settings: where the admin port is.
            starts: how many Envoys were started: what was true of one is not of the next.
            note_live: called when one is found to be live.
        """
        self._settings = settings
        self._count_starts = starts
        self._note_live = note_live
        self._has_config = False
        self._is_live = False
        self._starts = 1  #: which Envoy all this was true of

    async def problem(self) -> Shortfall | None:
        """Return what speaks against it, None for ready."""
        if (starts := self._count_starts()) != self._starts:
            self._starts, self._has_config, self._is_live = starts, False, False
        if not self._has_config:
            target, limit = CONFIG_TARGET, CONFIG_TIMEOUT_SECONDS
            if found := await self._ask(CONFIG, target, limit, self._judge_config):
                return found
            self._has_config = True
        if not self._is_live:
            target, limit = LIVE_TARGET, LIVE_TIMEOUT_SECONDS
            if found := await self._ask(LIFE, target, limit, judge_live, FAILED):
                return found
            self._become_live()
        return None

    def _become_live(self) -> None:
        if self._is_live:
            return  # another request found out meanwhile
        self._is_live = True
        self._note_live()

    def _judge_config(self, stats: str) -> Shortfall | None:
        return judge_config(stats, LOCAL if self._settings.is_local else ISTIOD)

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
