"""Envoy's page and those of applications, which fail in every way, behind a status server."""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from agent.http.message import Headers, Response
from agent.status.scrape import Target
from agent.status.settings import ScrapeSettings
from tests.fakes.status import Status, status_server
from tests.fakes.web import Answer, Pages, web_server

ENVOY = "# TYPE envoy_up gauge\nenvoy_up 1\n"
APPLICATION = "# TYPE app_up gauge\napp_up 1\n"
OM1 = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OM0 = "application/openmetrics-text; version=0.0.1; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
TIMEOUT = "X-Prometheus-Scrape-Timeout-Seconds"


def page(text: str, content_type: str = TEXT) -> web.Response:
    return web.Response(body=text.encode(), headers={"Content-Type": content_type})


async def break_off(request: web.BaseRequest) -> web.StreamResponse:
    """Send a line and a half, then reset the connection."""
    response = web.StreamResponse(headers={"Content-Type": OM1})
    await response.prepare(request)
    await response.write(b"whole 1\nhalf_of_a_li")
    assert request.transport is not None
    request.transport.abort()
    return response


@asynccontextmanager
async def merging(
    envoy: web.Response | Answer | None,
    *applications: web.Response | Answer,
    strict: bool = False,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[Status, Pages, list[Pages]]]:
    """A status server over Envoy's page and those of applications; None is a closed port.

    With a context, the applications' are over HTTPS.
    """
    async with AsyncExitStack() as stack:
        envoy_pages = Pages({"/stats/prometheus": envoy} if envoy else {})
        envoy_port = await stack.enter_async_context(web_server(envoy_pages)) if envoy else 1
        pages = [Pages({"/metrics": application}) for application in applications]
        ports = [await stack.enter_async_context(web_server(each, tls=tls)) for each in pages]
        targets = tuple(Target(port, "/metrics", is_tls=tls is not None) for port in ports)
        settings = ScrapeSettings(envoy_port=envoy_port, targets=targets, strict=strict)
        status = await stack.enter_async_context(status_server(scrape=settings))
        yield status, envoy_pages, pages


async def merged(
    envoy: web.Response | Answer | None,
    *applications: web.Response | Answer,
    headers: Headers = (),
    strict: bool = False,
) -> tuple[Response, str]:
    """Return the answer, and its text without the agent's own part."""
    async with merging(envoy, *applications, strict=strict) as (status, _, _):
        response = await status.ask("/metrics", headers=headers)
    assert response.status == 200
    text = response.body.decode()
    assert "\nistio_agent_scrapes_total 1\n" in text
    return response, text.rpartition("istio_agent_scrapes_total 1\n")[2]


def failures(response: Response) -> list[str]:
    return sorted(
        line.removeprefix("istio_agent_scrape_failures_total")
        for line in response.body.decode().splitlines()
        if line.startswith("istio_agent_scrape_failures_total{")
    )


def dropped(text: str) -> dict[str, float]:
    """Return what was left out by source and reason, such as envoy/duplicate."""
    return {
        f"{sample.labels['type']}/{sample.labels['reason']}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "istio_agent_scrape_dropped_total"
    }


def judged(response: Response) -> list[Metric]:
    """Return the families that a strict parser of the labelled format finds."""
    text = response.body.decode()
    if response.header("content-type").startswith("application/openmetrics-text"):
        return list(openmetrics.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]  # has no types
    assert not text.endswith("# EOF\n")
    return list(text_string_to_metric_families(text))
