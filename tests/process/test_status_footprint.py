"""A large scrape costs little, and keeps nobody waiting: seen from outside the process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from agent.http.client import fetch, stream
from agent.http.message import Headers
from tests.fakes.scraped import OM1, TEXT, page
from tests.fakes.status_process import Running, status_process
from tests.fakes.web import Admin, Answer, Pages, web_server

LINES: Final = 100_000
LARGE: Final = "# TYPE istio_requests_total counter\n" + "".join(
    f'istio_requests_total{{reporter="destination",source_workload="w{number}",source_app="front",'
    f'destination_service="reviews.default.svc.cluster.local",response_code="200"}} {number}\n'
    for number in range(LINES)
)
GROWTH_KIB: Final = 5 * 1024
PROBE: Final = "/app-health/fuzz/livez"


@asynccontextmanager
async def serving(
    directory: Path, *, envoy: web.Response | Answer, application: web.Response
) -> AsyncIterator[Running]:
    pages = Pages({"/metrics": application, "/probe": page("fine")})
    async with (
        web_server(Admin()) as admin_port,
        web_server(Pages({"/stats/prometheus": envoy})) as envoy_port,
        web_server(pages) as application_port,
        status_process(
            directory,
            admin_port=admin_port,
            envoy_port=envoy_port,
            application_port=application_port,
        ) as server,
    ):
        yield server


async def scrape(server: Running, headers: Headers) -> int:
    """Return how long the page is."""
    size = 0
    async with stream(
        "GET", "127.0.0.1", server.port, "/metrics", headers=headers, timeout_seconds=60
    ) as incoming:
        async for piece in incoming:
            size += len(piece)
    return size


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["identity", "gzip", "zstd"])
@pytest.mark.parametrize("content_type", [TEXT, OM1], ids=["text", "OpenMetrics"])
async def test_a_page_of_a_hundred_thousand_lines_passes_through(
    tmp_path: Path, coding: str, content_type: str
) -> None:
    """cases.md M1."""
    small = page("# TYPE a gauge\na 1\n# EOF\n" if content_type == OM1 else "a 1\n", content_type)
    headers = (("Accept-Encoding", coding),)
    async with serving(tmp_path, envoy=page(LARGE), application=small) as server:
        await fetch("GET", "127.0.0.1", server.port, PROBE, timeout_seconds=9)
        before = server.resident_kib()
        server.clear_peak()
        size = await scrape(server, headers)
        grown = server.peak_kib() - before

    assert size > (len(LARGE) if coding == "identity" else len(LARGE) / 100)
    assert grown < GROWTH_KIB


async def test_probes_are_answered_while_a_scrape_is_under_way(tmp_path: Path) -> None:
    """cases.md P12: neither a scrape that is not read nor one that is held up by its source."""
    release = asyncio.Event()

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": TEXT})
        await response.prepare(request)
        await response.write(LARGE.encode())
        await release.wait()
        return response

    async with (
        serving(tmp_path, envoy=slow, application=page("a 1\n")) as server,
        stream("GET", "127.0.0.1", server.port, "/metrics", timeout_seconds=60) as unread,
        stream("GET", "127.0.0.1", server.port, "/metrics", timeout_seconds=60) as held_up,
    ):
        await anext(unread)
        size = 0
        while size < len(LARGE) / 2:
            size += len(await anext(held_up))
        answers = [
            (await fetch("GET", "127.0.0.1", server.port, path, timeout_seconds=9)).status
            for path in (PROBE, "/healthz/ready") * 10
        ]
        release.set()

    assert answers == [200] * 20
