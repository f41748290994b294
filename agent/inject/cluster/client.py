"""A client of the API server: lists, and watches that go on from there."""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp

from agent.errors import AgentError
from agent.inject.cluster.objects import Event

ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
PAGE_ITEMS: Final = 500
ANSWER_SECONDS: Final = 30.0
#: The API server ends a watch by itself after so long; the next one goes on.
WATCH_SECONDS: Final = 300
LARGEST_LINE_BYTES: Final = 16 << 20
OK: Final = 200
TROUBLE: Final = (aiohttp.ClientError, TimeoutError, OSError, ValueError)


class ClusterError(AgentError):
    """The API server did not answer as it must; asked again later."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  #: 0 without an answer


class ApiServer:
    """The cluster's API server, as a service account sees it."""

    def __init__(self, address: str, account: str = ACCOUNT) -> None:
        """Remember where it is.

        Args:
            address: scheme, host and port.
            account: directory with the token, and ca.crt for an address with TLS.
        """
        self._address = address
        self._account = account

    async def list(self, path: str) -> tuple[list[dict[str, Any]], str]:
        """Return all objects, and the version from which a watch may go on.

        Raises:
            ClusterError: they cannot be had.
        """
        items: list[dict[str, Any]] = []
        query = {"limit": str(PAGE_ITEMS)}
        while True:
            page = await self._page(path, query)
            items += [item for item in page.get("items") or () if isinstance(item, dict)]
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion", ""))
            query["continue"] = metadata["continue"]

    async def watch(self, path: str, version: str) -> AsyncIterator[Event]:
        """Yield changes from a version on, until the API server ends the watch.

        Raises:
            ClusterError: it cannot be had any longer.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_read=WATCH_SECONDS + ANSWER_SECONDS)
        try:
            async with self._session(timeout) as session, session.get(path, params=query) as reply:
                _check(reply, path)
                rest = b""
                async for chunk in reply.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if len(rest) > LARGEST_LINE_BYTES:
                        raise ClusterError(f"{path}: expected events of at most 16 MiB")
                    for line in filter(None, lines):
                        yield _event(json.loads(line))
        except TROUBLE as error:
            raise ClusterError(f"{path}: {_reason(error)}") from error

    async def _page(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        try:
            async with self._session(timeout) as session, session.get(path, params=query) as reply:
                _check(reply, path)
                page = await reply.json()
        except TROUBLE as error:
            raise ClusterError(f"{path}: {_reason(error)}") from error
        if not isinstance(page, dict):
            raise ClusterError(f"{path}: expected a list of objects")
        return page

    def _session(self, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
        """Return a session with the token of this moment: it is replaced from time to time."""
        token = Path(self._account, "token").read_text().strip()
        tls: ssl.SSLContext | bool = True
        if self._address.startswith("https:"):
            tls = ssl.create_default_context(cafile=str(Path(self._account, "ca.crt")))
        return aiohttp.ClientSession(
            self._address,
            connector=aiohttp.TCPConnector(ssl=tls),
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=timeout,
        )


def api_server_address(environ: Mapping[str, str]) -> str:
    """Return where a pod finds the API server, '' outside a cluster."""
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://{f'[{host}]' if ':' in host else host}:{port}" if host else ""


def _check(reply: aiohttp.ClientResponse, path: str) -> None:
    if reply.status != OK:
        raise ClusterError(f"{path}: answer {reply.status}", status=reply.status)


def _event(line: object) -> Event:
    if not isinstance(line, dict) or not isinstance(line.get("object"), dict):
        raise ValueError("expected an event")  # noqa: TRY004 - what came is no event
    return Event(str(line.get("type")), line["object"])


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).lower()
