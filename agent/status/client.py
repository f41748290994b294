"""Probing the application on behalf of the kubelet.

Source: status-lifecycle.md sections 5.3 to 5.6.
"""

import logging
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, assert_never

from agent.http.client import HttpError, Incoming, dial
from agent.http.coding import decoded
from agent.http.message import Request, first_value
from agent.status.outcomes import Outcome, failure_reason, outcome_after
from agent.status.pace import Pace
from agent.status.probes import GrpcProbe, HttpProbe, Probe, TcpProbe
from agent.status.redirects.client import EITHER, get
from agent.status.relay import (
    BODY_BYTES,
    Url,
    adds_gzip,
    probe_headers,
    relayed_status,
    request_target,
    rewrite_host,
)
from agent.status.settings import ProbeSettings

if TYPE_CHECKING:
    from agent.http.kept.client import Kept

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
        self._kept: dict[str, Kept] = {}  #: by path
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
            result = await self._run(path, probe, request)
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

    async def _run(self, path: str, probe: Probe, request: Request) -> ProbeResult:
        match probe:
            case HttpProbe():
                return await self._http(path, probe, request)
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

    async def _http(self, path: str, probe: HttpProbe, request: Request) -> ProbeResult:
        scheme = "https" if probe.is_tls else "http"
        url = Url(scheme, self._settings.host, probe.port, request_target(probe.path))
        async with get(
            url,
            host=rewrite_host(request.header("host"), self._status_port, probe.port),
            headers=probe_headers(request.headers, may_go_on=self._settings.keeps_connections),
            timeout_seconds=probe.timeout_seconds,
            source=self._settings.source,
            protocols=EITHER if self._settings.offers_alpn else (),
            kept=self._kept_of(path),
        ) as incoming:
            return await _result(incoming, inflates=adds_gzip(request.headers))

    def _kept_of(self, path: str) -> "Kept | None":
        if not self._settings.keeps_connections:
            return None
        from agent.http.kept.client import Kept  # noqa: PLC0415 -- for who asked for it

        return self._kept.setdefault(path, Kept())

    def close(self) -> None:
        """Keep no connection any more."""
        for kept in self._kept.values():
            kept.close()


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
