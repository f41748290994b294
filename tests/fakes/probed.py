"""A status server that probes one application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from agent.http.message import Response
from agent.status.probes import Probe
from agent.status.settings import ProbeSettings
from tests.fakes.status import Status, status_server

PATH = "/app-health/hello/readyz"


@asynccontextmanager
async def probing(
    probe: Probe, *, host: str = "127.0.0.1", source: str = "127.0.0.6", offers_alpn: bool = True
) -> AsyncIterator[Status]:
    """A status server with one prober."""
    probes = ProbeSettings({PATH: probe}, host, source, offers_alpn)
    async with status_server(probes=probes) as status:
        yield status


async def probed(
    probe: Probe, *, host: str = "127.0.0.1", source: str = "127.0.0.6", offers_alpn: bool = True
) -> Response:
    async with probing(probe, host=host, source=source, offers_alpn=offers_alpn) as server:
        return await server.ask(PATH)


def page(status: int = 200, text: str = "", **headers: str) -> web.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(status=status, text=text, headers=named)
