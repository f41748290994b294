"""Probing the application on behalf of the kubelet.

Source: status-lifecycle.md sections 5.3 to 5.6.
"""

import asyncio
import logging
import ssl
import time
from contextlib import aclosing
from functools import lru_cache
from typing import Final, NamedTuple, assert_never

from agent.http.client import HttpError, Incoming, dial, stream
from agent.http.coding import decoded
from agent.http.message import Request, first_value
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
        #: An outcome may follow from what a caller sends, so it could change with each request.
        self._pace = Pace(lines=10)

    async def run(self, path: str, probe: Probe, request: Request) -> ProbeResult:
        """Return the outcome of one probe.

        Args:
            path: of the request, for the log.
            probe: what to do.
            request: what the caller sent.
        """
        try:
            result = await self._run(probe, request)
        except (HttpError, ValueError) as error:
            result = ProbeResult(500, reason=str(error))
        if result.reason != self._reasons.get(path, "") and self._is_due(path):
            self._reasons[path] = result.reason
            if result.reason:
                log.warning("probe failed path=%s reason=%s", path, result.reason)
            else:
                log.info("probe succeeded again path=%s", path)
        return result

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
        own_host = rewrite_host(request.header("host"), self._status_port, probe.port)
        host = own_host or url.authority
        headers = probe_headers(request.headers)
        came_from = ""
        loop = asyncio.get_running_loop()
        end = loop.time() + probe.timeout_seconds if probe.timeout_seconds else None
        for _ in range(MAX_REQUESTS):
            sent = (("Host", host), *headers)
            if came_from and not first_value(headers, "referer"):
                sent += (("Referer", came_from),)
            async with stream(
                "GET",
                url.host,
                url.port,
                url.target,
                headers=sent,
                timeout_seconds=max(end - loop.time(), 0.0) if end else None,
                source=self._settings.source,
                tls=_tls(self._settings.offers_alpn) if url.scheme == "https" else None,
            ) as incoming:
                location = first_value(incoming.headers, "location")
                hop = next_hop(url, incoming.status, location)
                if hop is None:
                    return await _result(incoming, inflates=adds_gzip(request.headers))
            came_from = referer(url, hop.url)
            url = hop.url
            host = own_host if own_host and hop.is_relative else url.authority
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


ANY_STRENGTH: Final = "DEFAULT:@SECLEVEL=0"


@lru_cache(maxsize=2)
def _tls(offers_alpn: bool) -> ssl.SSLContext:  # noqa: FBT001 -- the cache's key
    """Return the context of HTTPS probes: like the kubelet, it believes any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ANY_STRENGTH)
    if offers_alpn:
        context.set_alpn_protocols(["http/1.1"])
    return context
