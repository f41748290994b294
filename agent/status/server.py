"""The endpoints of the status port.

Source: status-lifecycle.md sections 3 and 6.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from agent.http.coding import compressed
from agent.http.message import Headers, Reply, Request, accepts_json
from agent.metrics import Metrics
from agent.status.envoy.client import EnvoyReadiness
from agent.status.hooks import Hooks
from agent.status.pace import Pace
from agent.status.process import own_usage, seconds_since_start
from agent.status.readiness import Shortfall, Standing, document, standing_after
from agent.status.routes import Endpoint, Redirect, find_route, is_foreign, is_loopback
from agent.status.settings import StatusSettings

if TYPE_CHECKING:
    from agent.status.client import Prober
    from agent.status.merge.run import Scraper

log = logging.getLogger(__name__)

OK: Final = 200
TEXT: Final[Headers] = (("Content-Type", "text/plain; charset=utf-8"),)
SAFE_TEXT: Final[Headers] = (*TEXT, ("X-Content-Type-Options", "nosniff"))
COMMON_HEADERS: Final[Headers] = (("Vary", "Accept-Encoding"),)
JSON: Final[Headers] = (("Content-Type", "application/json"),)
JSON_LINES: Final[Headers] = (("Content-Type", "application/x-ndjson"),)
PUBLIC: Final = frozenset((Endpoint.READY, Endpoint.METRICS, Endpoint.PROBE))
#: Others are asked by any method.
METHODS: Final = {
    Endpoint.QUIT: ("POST",),
    Endpoint.DRAIN: ("POST",),
    Endpoint.LOGGING: ("GET", "HEAD", "POST"),
}
#: What the process says of itself, whatever runs in it.
INSPECTED: Final = frozenset(("memory", "tasks"))
PROFILES: Final = b"profiles:\ncmdline\n"


class Readiness:
    """Whether the pod may get traffic."""

    def __init__(self, settings: StatusSettings, hooks: Hooks, metrics: Metrics) -> None:
        self._hooks = hooks
        self._metrics = metrics
        self._envoy = (
            EnvoyReadiness(settings, hooks.starts, self._note_live)
            if settings.envoy_enabled
            else None
        )
        self._standing: Standing | None = None

    async def check(self) -> Standing:
        """Return how things stand now; changes are logged and counted."""
        shortfall = await self._find_shortfall()
        before, now = self._standing, time.monotonic()
        standing = self._standing = standing_after(before, shortfall, now)
        if before is None or shortfall != before.shortfall:
            self._note_change(shortfall)
        return standing

    def _note_change(self, shortfall: Shortfall | None) -> None:
        self._metrics.set("ready", shortfall is None)
        if shortfall is None:
            log.info("Envoy proxy is ready")
            return
        self._metrics.count("readiness_failures_total", check=shortfall.check)
        log.warning("Envoy proxy is NOT ready: %s", shortfall.reason)

    def explain(self, standing: Standing) -> str:
        """Return what is wrong, as lines: a reason with its duration, and what else there is.

        A pod that is ready may have something to say too, such as that a changed file of its
        configuration was refused.
        """
        lines = list(self._details().values())
        if standing.shortfall:
            seconds = time.monotonic() - standing.since
            lines = [standing.shortfall.reason, *lines, f"not ready for {seconds:.1f}s"]
        return "".join(f"{line}\n" for line in lines)

    def document(self, standing: Standing) -> dict[str, Any]:
        """Return the same and more, as JSON has it."""
        now, tell = time.monotonic(), self._hooks.documents.get("control_plane")
        epoch = time.time() - now
        return document(standing, self._details(), tell and tell(), now=now, epoch=epoch)

    def _details(self) -> dict[str, str]:
        details = self._hooks.details.items()
        return {name: remark for name, detail in details if (remark := detail())}

    async def _find_shortfall(self) -> Shortfall | None:
        if cause := self._hooks.terminating():
            return Shortfall("terminating", f"server is terminated: {cause}")
        if self._envoy and (shortfall := await self._envoy.problem()):
            return shortfall
        for name, check in self._hooks.checks.items():
            if reason := check():
                return Shortfall(name, reason)
        return None

    def _note_live(self) -> None:
        seconds = seconds_since_start()
        self._metrics.set("startup_duration_seconds", seconds)
        log.info("Readiness succeeded in %.3fs", seconds)


class StatusServer:
    """Answers requests on the status port."""

    def __init__(
        self, settings: StatusSettings, status_port: int, hooks: Hooks, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._hooks = hooks
        self._readiness = Readiness(settings, hooks, metrics)
        self._metrics = metrics
        self._status_port = status_port
        self._prober: Prober | None = None
        self._scraper: Scraper | None = None
        self._pace = Pace()
        #: Requests so far, by kind.
        self._asked = {"readiness": 0, "probes": 0, "scrapes": 0}

    def close(self) -> None:
        """Let go of the connections to the application and Envoy."""
        for each in (self._prober, self._scraper):
            if each:
                each.close()

    async def handle(self, request: Request) -> Reply:
        """Return the reply to any request, in a coding that the caller accepts."""
        return await compressed(request, await self._handle(request))

    async def _handle(self, request: Request) -> Reply:
        found = find_route(request.path, request.query, profiling=self._settings.profiling)
        if found is None:
            return Reply(404, b"404 page not found\n", SAFE_TEXT)
        if isinstance(found, Redirect):
            return Reply(307, b"", (("Location", found.location),))
        endpoint = found.endpoint
        if self._is_private(endpoint) and not is_loopback(request.peer):
            return Reply(403, b"Only requests from localhost are allowed\n", SAFE_TEXT)
        # Metrics for this pod alone may come through Envoy, which leaves their Host as it was.
        if endpoint not in PUBLIC and is_foreign(request):
            return Reply(
                403, b"Requests of other sites are not allowed: use localhost\n", SAFE_TEXT
            )
        methods = METHODS.get(endpoint, (request.method,))
        if request.method not in methods:
            return Reply(405, b"Method Not Allowed\n", (*SAFE_TEXT, ("Allow", ", ".join(methods))))
        return await self._serve(endpoint, found.path, request)

    def _is_private(self, endpoint: Endpoint) -> bool:
        if endpoint is Endpoint.METRICS:
            return self._settings.scrape.localhost_only
        return endpoint not in PUBLIC

    async def _serve(self, endpoint: Endpoint, path: str, request: Request) -> Reply:
        match endpoint:
            case Endpoint.READY:
                return await self._ready(request)
            case Endpoint.METRICS:
                return await self._scrape(request)
            case Endpoint.PROBE:
                return await self._probe(path, request)
            case Endpoint.DRAIN:
                await self._hooks.drain()
                return Reply(OK, b"OK", TEXT)
            case Endpoint.QUIT:
                return Reply(OK, b"OK", TEXT, then=self._hooks.quit)
            case _:
                return await self._debug(endpoint, path.removeprefix("/debug/"), request)

    async def _ready(self, request: Request) -> Reply:
        self._asked["readiness"] += 1
        standing = await self._readiness.check()
        status = 503 if standing.shortfall else OK
        if accepts_json(request.header("accept")):
            text = json.dumps(self._readiness.document(standing), indent=2)
            return Reply(status, text.encode() + b"\n", JSON)
        lines = self._readiness.explain(standing).encode("utf-8", "surrogateescape")
        return Reply(status, lines, SAFE_TEXT if lines else ())

    async def _probe(self, path: str, request: Request) -> Reply:
        self._asked["probes"] += 1
        probe = self._settings.probes.probers.get(path)
        if probe is None:
            if self._pace.is_due("no probe", time.monotonic()):
                log.error("no probe is configured for path=%r", path)
            text = f"app prober config does not exists for {path}"
            return Reply(400, text.encode("utf-8", "surrogateescape"), TEXT)
        if self._prober is None:
            from agent.status.client import Prober  # noqa: PLC0415 -- by the first probe

            self._prober = Prober(self._settings.probes, self._status_port)
        result = await self._prober.run(path, probe, request)
        return Reply(result.status, result.body, TEXT if result.body else ())

    async def _debug(self, endpoint: Endpoint, name: str, request: Request) -> Reply:
        if endpoint is Endpoint.PAGE:
            from agent.status.page.server import page  # noqa: PLC0415 -- by who looks

            return page(name)
        if endpoint is Endpoint.OVERVIEW:
            return await self._overview()
        if endpoint is Endpoint.INDEX:
            from agent.status.index import index  # noqa: PLC0415 -- by who looks

            return Reply(OK, index(profiling=self._settings.profiling).encode(), SAFE_TEXT)
        if endpoint is Endpoint.PROFILE:
            return _profile(name.removeprefix("pprof/"))
        if endpoint is Endpoint.LOGGING and request.method == "POST":
            return self._set_log_levels(request)
        return await self._show(name)

    def _set_log_levels(self, request: Request) -> Reply:
        """Have other log levels for a while, and say so; a level that is none changes nothing."""
        from agent.status.levels import parse_change  # noqa: PLC0415 -- for hardly anyone

        try:
            change = parse_change(request.query)
            if self._hooks.set_log_levels:
                self._hooks.set_log_levels(change.levels, change.seconds)
        except ValueError as error:
            return Reply(400, f"{error}\n".encode(), SAFE_TEXT)
        return Reply(OK, b"OK", TEXT)

    async def _show(self, name: str) -> Reply:
        """Return what a part of the agent says of itself; 404 where there is nothing yet."""
        if name in INSPECTED:
            from agent.status.inspection import process  # noqa: PLC0415 -- for hardly anyone

            tell: Callable[[], object] | None = getattr(process, name)
        else:
            tell = self._hooks.documents.get(name)
        found = tell() if tell else None
        if isinstance(found, AsyncGenerator):
            return Reply(OK, found, JSON_LINES)
        if isinstance(found, Awaitable):
            found = await found
        if found is None:
            return Reply(404, b"{}", JSON)
        # Beside the loop: the names of a large mesh take seconds.
        text = await asyncio.to_thread(json.dumps, found, indent=2)
        return Reply(OK, text.encode() + b"\n", JSON)

    async def _scrape(self, request: Request) -> Reply:
        self._asked["scrapes"] += 1
        if self._scraper is None:
            from agent.status.merge.run import Scraper  # noqa: PLC0415 -- by the first scrape

            self._scraper = Scraper(self._settings.scrape, self._metrics)
        return await self._scraper.scrape(request)

    async def _overview(self) -> Reply:
        from agent.status.page import overview, server  # noqa: PLC0415 -- by who looks

        standing = await self._readiness.check()
        return server.document(
            overview.Parts(
                time=time.time(),
                process=own_usage(),
                readiness=self._readiness.document(standing),
                documents=self._hooks.documents,
                probers=self._settings.probes.probers,
                outcomes=self._prober.outcomes if self._prober else {},
                asked=self._asked,
                dns_queries=self._metrics.total("dns_requests_total"),
                envoy={
                    "enabled": self._settings.envoy_enabled,
                    "starts": self._hooks.starts(),
                    "is_local": self._settings.is_local,
                },
            )
        )


def _profile(name: str) -> Reply:
    if name == "":
        return Reply(OK, PROFILES, TEXT)
    if name == "cmdline":
        return Reply(OK, "\0".join(sys.argv).encode("utf-8", "surrogateescape"), TEXT)
    return Reply(404, f"Unknown profile {name!r}\n".encode(), SAFE_TEXT)
