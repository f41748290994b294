"""Envoy's admin port, as the end of a pod needs it.

Source: bootstrap.md section 6.4.
"""

from typing import NamedTuple

from agent.errors import EnvoyError
from agent.http.client import HttpError, fetch
from agent.lifecycle.drain import CONNECTIONS_TARGET

OK = 200


class Admin(NamedTuple):
    """Where Envoy's admin port is."""

    host: str
    port: int

    async def drain(self, target: str) -> None:
        """Ask for a drain; EnvoyError if that cannot be done in two seconds."""
        await self._request("POST", target, timeout_seconds=2.0)

    async def is_live(self) -> bool:
        """Return whether Envoy has its configuration and serves; True if it does not say."""
        try:
            response = await fetch("GET", self.host, self.port, "/ready", timeout_seconds=0.5)
        except HttpError:
            return True  # busy, or its admin port is gone: not a reason to cut connections
        return response.status == OK

    async def connections(self) -> str:
        """Return the stats that count open connections; EnvoyError if there is no answer."""
        return await self._request("GET", CONNECTIONS_TARGET, timeout_seconds=2.0)

    async def _request(self, method: str, target: str, *, timeout_seconds: float) -> str:
        try:
            response = await fetch(
                method, self.host, self.port, target, timeout_seconds=timeout_seconds
            )
        except HttpError as error:
            raise EnvoyError(f"{method} {target} on Envoy's admin port: {error}") from error
        if response.status != OK:
            raise EnvoyError(
                f"{method} {target} on Envoy's admin port: status {response.status}, expected 200"
            )
        return response.body.decode("utf-8", "replace")
