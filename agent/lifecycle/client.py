"""Envoy's admin port, as the end of a pod needs it.

Source: bootstrap.md section 6.4.
"""

import asyncio
import logging
import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from agent.errors import EnvoyError
from agent.http.client import HttpError, fetch
from agent.lifecycle.drain import (
    CONNECTIONS_TARGET,
    MAX_FAILURES,
    REQUESTS_TARGET,
    Activity,
    Watch,
    count_connections,
    count_requests,
    pause_seconds,
    see,
)
from agent.lifecycle.plan import Condition

if TYPE_CHECKING:
    from agent.lifecycle.files import ApplicationListeners

log = logging.getLogger(__name__)

OK: Final = 200
SECONDS: Final = 2.0
#: Whether Envoy is live must not hold up a second signal.
LIVE_SECONDS: Final = 0.25
#: Between two log lines about what still goes on.
REMARK_SECONDS: Final = 5.0


class Admin(NamedTuple):
    """Where Envoy's admin port is."""

    host: str
    port: int

    async def drain(self, target: str) -> None:
        """Ask for a drain; EnvoyError if that cannot be done in two seconds."""
        await self._request("POST", target)

    async def is_live(self) -> bool | None:
        """Return whether Envoy has its configuration and serves; None if nobody listens.

        True if it does not say: a busy Envoy is no reason to cut connections.
        """
        try:
            response = await fetch(
                "GET", self.host, self.port, "/ready", timeout_seconds=LIVE_SECONDS
            )
        except HttpError as error:
            return None if isinstance(error.__cause__, ConnectionRefusedError) else True
        return response.status == OK

    async def stats(self, target: str) -> str:
        """Return statistics, lines `name: value`; EnvoyError if there is no answer."""
        return await self._request("GET", target)

    async def _request(self, method: str, target: str) -> str:
        try:
            response = await fetch(method, self.host, self.port, target, timeout_seconds=SECONDS)
        except HttpError as error:
            raise EnvoyError(f"{method} {target} on Envoy's admin port: {error.reason}") from error
        if response.status != OK:
            raise EnvoyError(
                f"{method} {target} on Envoy's admin port: status {response.status}, expected 200"
            )
        return response.body.decode("utf-8", "replace")


class Observer:
    """Looks at what a condition asks about, again and again."""

    def __init__(
        self,
        admin: Admin,
        condition: Condition,
        *,
        own_listeners: tuple[int, ...],
        own_ports: Collection[int],
        failure_pause_seconds: float,
    ) -> None:
        """Remember where to look.

        Args:
            admin: of this pod's Envoy.
            condition: of the plan; not `duration`, which asks nothing.
            own_listeners: ports of Envoy's health and metrics listeners.
            own_ports: all ports of the mesh in this pod.
            failure_pause_seconds: from a look that failed to the next.
        """
        self.active: int | None = None  #: what the last look showed
        self._admin = admin
        self._condition = condition
        self._own_listeners = own_listeners
        self._failure_pause_seconds = failure_pause_seconds
        self._own_ports = own_ports
        self._listeners: ApplicationListeners | None = None

    async def wait_until_over(self, envoy_pid: int, *, not_before: float) -> None:
        """Return when nothing goes on, or when nobody can tell.

        Args:
            envoy_pid: a process that belongs to the mesh.
            not_before: in the loop's time; until then, nothing going on means nothing.
        """
        now = asyncio.get_running_loop().time
        watch, failures, remark_at = Watch(), 0, not_before
        while failures < MAX_FAILURES:
            looked_at = now()
            try:
                activity = await self._look(envoy_pid)
            except EnvoyError as error:
                failures += 1
                log.warning("activity unknown failures=%d: %s", failures, error)
                await asyncio.sleep(self._failure_pause_seconds)
                continue
            failures = 0
            if activity is None:
                log.warning("Envoy keeps no statistics of activity; this counts as none")
                return
            self.active = activity.active
            watch, is_over = see(watch, activity, now())
            if is_over and now() >= not_before:
                return
            if now() >= remark_at:
                remark_at = now() + REMARK_SECONDS
                log.info("waiting condition=%s active=%d", self._condition, activity.active)
            await asyncio.sleep(pause_seconds(now() - looked_at))

    async def _look(self, envoy_pid: int) -> Activity | None:
        if self._condition == "app":
            ports = await asyncio.to_thread(self._application_ports, envoy_pid)
            if ports:
                return Activity(len(ports))
            requests = await self._ask(REQUESTS_TARGET)
            # Nobody is left to whom anything new could come: what is open ends it.
            return Activity(requests.active if requests else 0)
        if self._condition == "requests":
            return await self._ask(REQUESTS_TARGET)
        return await self._ask(CONNECTIONS_TARGET)

    def _application_ports(self, envoy_pid: int) -> list[int]:
        if self._listeners is None:
            from agent.lifecycle.files import ApplicationListeners  # noqa: PLC0415 - not at start

            self._listeners = ApplicationListeners(self._own_ports)
        return self._listeners.ports((os.getpid(), envoy_pid))

    async def _ask(self, target: str) -> Activity | None:
        count = count_connections if target == CONNECTIONS_TARGET else count_requests
        stats = await self._admin.stats(target)
        return count(stats, self._own_listeners, _warn_line)


def _warn_line(line: str) -> None:
    log.warning("not a statistic, skipped line=%r", line)
