"""Probing the application on behalf of the kubelet.

Source: status-lifecycle.md sections 5.3 to 5.6.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, assert_never

from agent.http.client import HttpError, Incoming, dial, stream
from agent.http.coding import decoded
from agent.http.message import Headers, Request, first_value
from agent.status.outcomes import Outcome, failure_reason, outcome_after
from agent.status.pace import Pace
from agent.status.probes import GrpcProbe, HttpProbe, Probe, TcpProbe
from agent.status.relay import (
    BODY_BYTES,
    MAX_REQUESTS,
    Url,
    adds_gzip,
    next_hop,
    probe_headers,
    referer,
    relayed_status,
    request_target,
    rewrite_host,
)
from agent.status.settings import ProbeSettings

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)


class ProbeResult(NamedTuple):
    """What the caller is told, and what our log says of a failure."""

    status: int
    body: bytes = b""
    reason: str = ""


class Prober:
    """Runs probes; logs when the outcome of one changes."""

    def __init__(self, settings: ProbeSettings, status_port: int) -> None:
        self._settings = settings
        self._status_port = status_port
        self._reasons: dict[str, str] = {}
        self.outcomes: dict[str, Outcome] = {}  #: by path, of those that were run
        #: An outcome may follow from what a caller sends, so it could change with each request.
        self._pace = Pace(lines=10)

    async def run(self, path: str, probe: Probe, request: Request) -> ProbeResult:
        """Return the outcome of one probe.

        Args:
            path: of the request, for the log.
            probe: what to do.
            request: what the caller sent.
        """
        began = time.monotonic()
        try:
            result = await self._run(probe, request)
        except (HttpError, ValueError) as error:
            result = ProbeResult(500, reason=str(error))
        self._note(path, result, time.monotonic() - began)
        if result.reason != self._reasons.get(path, "") and self._is_due(path):
            self._reasons[path] = result.reason
            if result.reason:
                log.warning("probe failed path=%s reason=%s", path, result.reason)
            else:
                log.info("probe succeeded again path=%s", path)
        return result

    def _note(self, path: str, result: ProbeResult, seconds: float) -> None:
        reason = failure_reason(result.status, result.reason, result.body)
        self.outcomes[path] = outcome_after(
            self.outcomes.get(path), result.status, reason, at=time.time(), seconds=seconds
        )

    def _is_due(self, path: str) -> bool:
        return self._pace.is_due(path, time.monotonic())

    async def _run(self, probe: Probe, request: Request) -> ProbeResult:
        match probe:
            case HttpProbe():
                return await self._http(probe, request)
            case TcpProbe():
                return await self._tcp(probe)
            case GrpcProbe():
                return await self._grpc(probe, request)
            case _:
                assert_never(probe)

    async def _tcp(self, probe: TcpProbe) -> ProbeResult:
        sock = await dial(
            self._settings.host,
            probe.port,
            timeout_seconds=probe.timeout_seconds,
            source=self._settings.source,
        )
        sock.close()
        return ProbeResult(200)

    async def _grpc(self, probe: GrpcProbe, request: Request) -> ProbeResult:
        from agent.status.grpc.client import check  # noqa: PLC0415 -- h2, by the first such probe

        status = await check(
            self._settings.host,
            probe.port,
            probe.service,
            user_agent=request.header("user-agent"),
            timeout_seconds=probe.timeout_seconds,
            source=self._settings.source,
        )
        if status != "SERVING":
            return ProbeResult(500, reason=f"service {probe.service!r} is {status}")
        return ProbeResult(200)

    async def _http(self, probe: HttpProbe, request: Request) -> ProbeResult:
        scheme = "https" if probe.is_tls else "http"
        url = Url(scheme, self._settings.host, probe.port, request_target(probe.path))
        async with get(
            url,
            host=rewrite_host(request.header("host"), self._status_port, probe.port),
            headers=probe_headers(request.headers),
            timeout_seconds=probe.timeout_seconds,
            source=self._settings.source,
            offers_alpn=self._settings.offers_alpn,
        ) as incoming:
            return await _result(incoming, inflates=adds_gzip(request.headers))


@asynccontextmanager
async def get(
    url: Url,
    *,
    host: str,
    headers: Headers,
    timeout_seconds: float | None,
    source: str,
    offers_alpn: bool,
) -> AsyncIterator[Incoming]:
    """Yield the final answer; redirects are followed as the kubelet does.

    Args:
        url: what is asked for first.
        host: sent in place of the URL's own; empty for the latter.
        headers: all others.
        timeout_seconds: for all of it; None for no limit.
        source: address to connect from.
        offers_alpn: whether TLS negotiates the version of HTTP.

    Raises:
        HttpError: there is none.
        ValueError: a redirect cannot be followed.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_seconds if timeout_seconds else None
    sent_host, came_from = host or url.authority, ""
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
            timeout_seconds=max(end - loop.time(), 0.0) if end else None,
            source=source,
            tls=_tls(offers_alpn=offers_alpn) if url.scheme == "https" else None,
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


async def _result(incoming: Incoming, *, inflates: bool) -> ProbeResult:
    """Return what the caller gets of a final answer; what breaks after its head is cut off."""
    status = relayed_status(incoming.status)
    if status != incoming.status:
        return ProbeResult(status)
    coding = first_value(incoming.headers, "content-encoding") if inflates else ""
    body = b""
    try:
        async with aclosing(decoded(incoming, coding)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) >= BODY_BYTES:
                    break
    except (HttpError, ValueError) as error:
        log.debug("! answer of a probe is cut off: %s", error)
    return ProbeResult(status, body[:BODY_BYTES])


def _tls(*, offers_alpn: bool) -> "ssl.SSLContext":
    from agent.http.tls.client import trusting_context  # noqa: PLC0415 - few pods need it

    return trusting_context(*(("h2", "http/1.1") if offers_alpn else ()))
