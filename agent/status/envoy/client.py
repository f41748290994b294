"""Asks Envoy whether it has its configuration and serves.

Source: status-lifecycle.md sections 6.2 and 6.3.
"""

from collections.abc import Callable
from typing import Final

from agent.http.client import HttpError, fetch
from agent.status.readiness import (
    CONFIG_TARGET,
    CONFIG_TIMEOUT_SECONDS,
    FAILED,
    ISTIOD,
    LIVE_TARGET,
    LIVE_TIMEOUT_SECONDS,
    LOCAL,
    judge_config,
    judge_live,
)
from agent.status.settings import StatusSettings

OK: Final = 200


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

    async def problem(self) -> str | None:
        """Return the reason against it, None for ready."""
        if (starts := self._count_starts()) != self._starts:
            self._starts, self._has_config, self._is_live = starts, False, False
        if not self._has_config:
            reason = await self._ask(CONFIG_TARGET, CONFIG_TIMEOUT_SECONDS, self._judge_config)
            if reason:
                return reason
            self._has_config = True
        if not self._is_live:
            reason = await self._ask(LIVE_TARGET, LIVE_TIMEOUT_SECONDS, judge_live, FAILED)
            if reason:
                return reason
            self._become_live()
        return None

    def _become_live(self) -> None:
        if self._is_live:
            return  # another request found out meanwhile
        self._is_live = True
        self._note_live()

    def _judge_config(self, stats: str) -> str | None:
        return judge_config(stats, LOCAL if self._settings.is_local else ISTIOD)

    async def _ask(
        self, target: str, seconds: float, judge: Callable[[str], str | None], prefix: str = ""
    ) -> str | None:
        host, port = self._settings.admin_host, self._settings.admin_port
        try:
            response = await fetch("GET", host, port, target, timeout_seconds=seconds)
        except HttpError as error:
            return f"{prefix}{error}"
        if response.status != OK:
            return f"{prefix}unexpected status {response.status}"
        return judge(response.body.decode("utf-8", "replace"))
