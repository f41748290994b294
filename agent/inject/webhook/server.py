"""The webhook's HTTP side, on aiohttp.

Source: status-lifecycle.md section 11.1; performance.md, decision on aiohttp.
"""

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from agent.errors import SystemRefusedError
from agent.inject.webhook.review import Answer, Context, answer, failure, url_environment
from agent.metrics import PREFIX, Family, Metrics

log = logging.getLogger(__name__)
#: aiohttp's own lines.
http_log = logging.getLogger(f"{__name__}.http")

#: What the API server may send: its own limit on objects, and the review around it.
LIMIT_BYTES: Final = 6 << 20
#: A body that takes longer comes from nobody who waits for the answer.
BODY_SECONDS: Final = 10.0
#: A client that asks nothing for so long, not even at first, is let go.
IDLE_SECONDS: Final = 60.0
HANDSHAKE_SECONDS: Final = 10.0
#: Requests under way when the server ends get so long.
FINISH_SECONDS: Final = 10.0
#: Larger reviews take more than a millisecond or two: they must not hold up the others.
LARGE_BYTES: Final = 64 << 10
#: Bodies of large reviews that are in memory at a time.
MOST_LARGE: Final = 16
#: Of one review, in the log.
LONGEST_NOTE: Final = 1000
JSON_TYPE: Final = "application/json"
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FAMILIES: Final[Mapping[str, Family]] = {
    "sidecar_injection_requests_total": Family("counter", "Reviews that were asked for."),
    "sidecar_injection_success_total": Family("counter", "Reviews that were answered."),
    "sidecar_injection_failure_total": Family("counter", "Reviews that were refused."),
    "sidecar_injection_skip_total": Family("counter", "Pods that are not to be injected."),
    "sidecar_injection_time_seconds": Family(
        "histogram", "Seconds from a review to its answer.", (0.1, 1, 3, 5, 10, 20, 30, 60)
    ),
}


class Service(Protocol):
    """What the server needs of whoever runs it."""

    @property
    def context(self) -> Context:
        """Return what answers go by at this moment."""

    @property
    def is_ready(self) -> bool:
        """Return whether new requests should come here."""


def _is_ours(record: logging.LogRecord) -> bool:
    """Return whether to log a line of aiohttp's; a client's fault is one line of our own."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
        return True
    reason = " ".join(getattr(error, "message", str(error)).split())[:LONGEST_NOTE]
    log.warning("refused a request reason=%r", reason)
    return False


http_log.addFilter(_is_ours)


def make_metrics() -> Metrics:
    """Return the injector's own registry."""
    return Metrics(FAMILIES)


def webhook_application(service: Service, metrics: Metrics) -> web.Application:
    """Return the application that the API server calls."""
    application = _application()
    injector = _Injector(service, metrics)
    application.router.add_post("/inject", injector.handle)
    application.router.add_post("/inject/{rest:.*}", injector.handle)
    _add_health(application, service, metrics)
    return application


def monitoring_application(service: Service, metrics: Metrics) -> web.Application:
    """Return the application for probes and scrapes, without TLS."""
    application = _application()
    _add_health(application, service, metrics)
    return application


class _UnderWay:
    """Counts the requests that are being answered.

    aiohttp itself ends by reading no further, also not the rest of a body that is on its way.
    """

    def __init__(self) -> None:
        self._count = 0
        self._nothing = asyncio.Event()
        self._nothing.set()

    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, and count it meanwhile."""
        self._count += 1
        self._nothing.clear()
        try:
            return await handler(request)
        finally:
            self._count -= 1
            if not self._count:
                self._nothing.set()

    async def finish(self) -> None:
        """Return when no request is under way, or none that is worth waiting for."""
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                await self._nothing.wait()
        except TimeoutError:
            log.warning("requests were not finished waited_seconds=%g", FINISH_SECONDS)


UNDER_WAY: Final = web.AppKey("under_way", _UnderWay)


def _application() -> web.Application:
    under_way = _UnderWay()

    @web.middleware
    async def counting(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await under_way.answer(request, handler)

    application = web.Application(client_max_size=LIMIT_BYTES, middlewares=[counting])
    application[UNDER_WAY] = under_way
    return application


def _add_health(application: web.Application, service: Service, metrics: Metrics) -> None:
    async def alive(_: web.Request) -> web.Response:
        return web.Response()

    async def ready(_: web.Request) -> web.Response:
        if service.is_ready:
            return web.Response()
        return web.Response(status=503, text="the injector is ending\n")

    async def scrape(_: web.Request) -> web.Response:
        # The registry is the pods' agent's, whose names all begin alike; these do not.
        text = metrics.render().replace(PREFIX, "")
        return web.Response(body=text.encode(), headers={"Content-Type": METRICS_TYPE})

    application.router.add_get("/healthz", alive)
    application.router.add_get("/ready", ready)
    application.router.add_get("/metrics", scrape)


class _Injector:
    """Answers reviews."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics
        self._large = asyncio.Semaphore(MOST_LARGE)
        #: One large review is worked on at a time: as data it takes a hundred times its text.
        self._turn = asyncio.Lock()

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one review."""
        began = time.monotonic()
        self._metrics.count("sidecar_injection_requests_total")
        is_small = request.content_length is not None and request.content_length <= LARGE_BYTES
        try:
            if is_small:
                return await self._respond(request)
            async with self._large:
                return await self._respond(request)
        finally:
            seconds = time.monotonic() - began
            self._metrics.observe("sidecar_injection_time_seconds", seconds)

    async def _respond(self, request: web.Request) -> web.Response:
        try:
            body = await _body(request)
        except ValueError as error:
            return self._refuse(400, str(error))
        if request.headers.get("Content-Type") != JSON_TYPE:
            return self._refuse(415, f"invalid Content-Type, want `{JSON_TYPE}`")
        environment = url_environment(request.match_info.get("rest", ""))
        found = await self._answer(body, environment)
        self._note(found)
        return web.Response(body=json.dumps(found.document).encode(), content_type=JSON_TYPE)

    async def _answer(self, body: bytes, environment: Mapping[str, str]) -> Answer:
        context = self._service.context
        try:
            if len(body) <= LARGE_BYTES:
                return answer(body, environment, context)
            async with self._turn:
                return await asyncio.to_thread(answer, body, environment, context)
        except Exception:
            log.exception("a bug of the injector bytes=%d", len(body))
            return failure("the injector has failed; its log says where")

    def _note(self, found: Answer) -> None:
        self._metrics.count("sidecar_injection_success_total")
        match found.outcome:
            case "failed":
                self._metrics.count("sidecar_injection_failure_total")
            case "skipped":
                self._metrics.count("sidecar_injection_skip_total")
        if found.notes:
            log.warning("%s note=%r", found.outcome, "; ".join(found.notes)[:LONGEST_NOTE])

    def _refuse(self, status: int, reason: str) -> web.Response:
        self._metrics.count("sidecar_injection_failure_total")
        log.warning("refused status=%d reason=%r", status, reason)
        return web.Response(status=status, text=f"{reason}\n")


async def _body(request: web.Request) -> bytes:
    """Return the body of a request; ValueError says what is wrong with it."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise ValueError(f"expected a body of at most {LIMIT_BYTES >> 20} MiB") from None
    except TimeoutError:
        raise ValueError(f"expected the whole body within {BODY_SECONDS:g} seconds") from None
    except (web.RequestPayloadError, OSError) as error:
        raise ValueError(f"could not read the body: {type(error).__name__}") from None
    if not body:
        raise ValueError("no body found")
    return body


@asynccontextmanager
async def listening(
    application: web.Application, host: str, port: int, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, Callable[[], None]]]:
    """Serve an application; requests under way are finished at the end.

    Yields:
        The port, and a function that stops listening while connections go on.

    Raises:
        SystemRefusedError: the port cannot be had.
    """
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=http_log,
        keepalive_timeout=IDLE_SECONDS,
        shutdown_timeout=1.0,  # what is worth it was waited for
    )
    await runner.setup()
    try:
        if runner.server is None:
            raise RuntimeError("an application that was set up has a server")
        handshake = HANDSHAKE_SECONDS if tls else None
        server = await asyncio.get_running_loop().create_server(
            runner.server, host or None, port, ssl=tls, ssl_handshake_timeout=handshake
        )
    except OSError as error:
        await runner.cleanup()
        where = f"{host or '*'}:{port}"
        reason = (error.strerror or str(error)).lower()
        raise SystemRefusedError(f"cannot listen on {where}: {reason}") from error
    try:
        yield server.sockets[0].getsockname()[1], server.close
    finally:
        server.close()
        await application[UNDER_WAY].finish()
        await runner.cleanup()
