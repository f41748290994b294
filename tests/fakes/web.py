"""Web servers on aiohttp, to stand for Envoy's ports and for applications."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from tests.fakes.control_plane import Authority, Pair

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


async def hang(_request: web.BaseRequest) -> web.StreamResponse:
    """Answer nothing, for ever."""
    await asyncio.Event().wait()
    raise AssertionError


class Hanging:
    """Does so, too, and tells of the first request."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.set()
        return await hang(request)


@asynccontextmanager
async def web_server(
    answer: Answer, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """Serve every path with one function; yield the port."""
    runner = web.ServerRunner(web.Server(answer, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0, ssl_context=tls)
    await site.start()
    try:
        address: tuple[str, int] = runner.addresses[0]
        yield address[1]
    finally:
        await runner.cleanup()


def server_context(directory: Path, *alpn: str) -> ssl.SSLContext:
    """Return the TLS context of a server whose certificate nobody knows."""
    return tls_context(directory, Authority().issue("application"), *alpn)


def tls_context(directory: Path, pair: Pair, *alpn: str) -> ssl.SSLContext:
    """Return the TLS context of a server with this certificate, written to the directory."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


@dataclass
class Pages:
    """Answers by path; records what was asked. Another path is a 404."""

    pages: dict[str, web.Response | Answer] = field(default_factory=dict)
    requests: list[web.BaseRequest] = field(default_factory=list)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        page = self.pages.get(request.path)
        if page is None:
            return web.Response(status=404, text="no such page")
        if isinstance(page, web.Response):
            return web.Response(status=page.status, body=page.body, headers=page.headers)
        return await page(request)


READY_STATS = (
    "cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 1\n"
    "server.state: 0\nlistener_manager.workers_started: 1\n"
)


class Admin:
    """Envoy's admin port with statistics that a test may change."""

    def __init__(self) -> None:
        self.stats = READY_STATS
        self.status = 200
        self.targets: list[str] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.targets.append(request.raw_path)
        return web.Response(status=self.status, text=self.stats)
