"""Asks for a URL and follows redirects as the kubelet does, for probes, health checks and scrapes.

Source: status-lifecycle.md sections 4.8 and 5.4.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from agent.http.client import HttpError, Incoming, stream
from agent.http.message import Headers, first_value
from agent.status.relay import MAX_REQUESTS, Url, is_same_origin, next_hop, referer

if TYPE_CHECKING:
    import ssl

    from agent.http.kept.client import Kept

#: Versions of HTTP that TLS may agree on, the preferred one first.
EITHER: Final = ("h2", "http/1.1")


@asynccontextmanager
async def get(
    url: Url,
    *,
    host: str = "",
    headers: Headers,
    timeout_seconds: float | None,
    source: str | None = None,
    protocols: tuple[str, ...],
    kept: "Kept | None" = None,
) -> AsyncIterator[Incoming]:
    """Yield the final answer.

    Args:
        url: what is asked for first.
        host: sent in place of the URL's own; empty for the latter.
        headers: all others.
        timeout_seconds: for all of it; None for no limit.
        source: address to connect from; None for any.
        protocols: that TLS may agree on; none: it is not asked.
        kept: connections to where the URL leads; what redirects lead to elsewhere is not kept.

    Raises:
        HttpError: there is none.
        ValueError: a redirect cannot be followed.
    """
    loop = asyncio.get_running_loop()
    end = None if timeout_seconds is None else loop.time() + timeout_seconds
    sent_host, came_from, first = host or url.authority, "", url
    for _ in range(MAX_REQUESTS):
        sent = (("Host", sent_host), *headers)
        if came_from and not first_value(headers, "referer"):
            sent += (("Referer", came_from),)
        async with stream(
            "GET",
            url.host,
            url.port,
            url.target,
            headers=sent,
            timeout_seconds=None if end is None else max(end - loop.time(), 0.0),
            source=source,
            tls=_tls(protocols) if url.scheme == "https" else None,
            kept=kept if is_same_origin(first, url) else None,
        ) as incoming:
            location = first_value(incoming.headers, "location")
            hop = next_hop(url, incoming.status, location)
            if hop is None:
                yield incoming
                return
        came_from = referer(url, hop.url)
        url = hop.url
        sent_host = host if host and hop.is_relative else url.authority
    raise HttpError(str(url), f"stopped after {MAX_REQUESTS} requests")


def _tls(protocols: tuple[str, ...]) -> "ssl.SSLContext":
    """Return the context of what is the pod's own: any certificate will do."""
    from agent.http.tls.client import trusting_context  # noqa: PLC0415 - few pods need it

    return trusting_context(*protocols)
