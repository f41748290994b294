"""The merged metrics page, from real servers that fail in every way."""

import asyncio
import gzip
import logging
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from agent.http.client import stream
from agent.http.message import Headers, Response
from agent.status.merge.admission import PER_PEER
from agent.status.scrape import Target
from agent.status.settings import ScrapeSettings
from tests.fakes.status import Agent, Status, status_server
from tests.fakes.web import Answer, Pages, web_server

ENVOY = "# TYPE envoy_up gauge\nenvoy_up 1\n"
APPLICATION = "# TYPE app_up gauge\napp_up 1\n"
OM1 = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OM0 = "application/openmetrics-text; version=0.0.1; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
PROMETHEUS = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
)
TIMEOUT = "X-Prometheus-Scrape-Timeout-Seconds"


def page(text: str, content_type: str = TEXT) -> web.Response:
    return web.Response(body=text.encode(), headers={"Content-Type": content_type})


async def hang(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("waits for ever")


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
    envoy: web.Response | Answer | None, *applications: web.Response | Answer
) -> AsyncIterator[tuple[Status, Pages, list[Pages]]]:
    """A status server over Envoy's page and those of applications; None is a closed port."""
    async with AsyncExitStack() as stack:
        envoy_pages = Pages({"/stats/prometheus": envoy} if envoy else {})
        envoy_port = await stack.enter_async_context(web_server(envoy_pages)) if envoy else 1
        pages = [Pages({"/metrics": application}) for application in applications]
        ports = [await stack.enter_async_context(web_server(each)) for each in pages]
        targets = tuple(Target(port, "/metrics") for port in ports)
        settings = ScrapeSettings(envoy_port=envoy_port, targets=targets)
        status = await stack.enter_async_context(status_server(scrape=settings))
        yield status, envoy_pages, pages


async def merged(
    envoy: web.Response | Answer | None,
    *applications: web.Response | Answer,
    headers: Headers = (),
) -> tuple[Response, str]:
    """Return the answer, and its text without the agent's own part."""
    async with merging(envoy, *applications) as (status, _, _):
        response = await status.ask("/metrics", headers=headers)
    assert response.status == 200
    text = response.body.decode()
    assert "# TYPE istio_agent_scrapes_total counter\n" in text
    return response, text.rpartition("istio_agent_scrapes_total 1\n")[2]


def failures(response: Response) -> list[str]:
    return sorted(
        line.removeprefix("istio_agent_scrape_failures_total")
        for line in response.body.decode().splitlines()
        if line.startswith("istio_agent_scrape_failures_total{")
    )


async def test_agent_envoy_and_application_follow_in_this_order() -> None:
    response, text = await merged(page(ENVOY), page(APPLICATION))

    assert text == ENVOY + APPLICATION
    assert response.header("content-type") == TEXT
    assert failures(response) == []
    names = {family.name for family in text_string_to_metric_families(response.body.decode())}
    assert {"istio_agent_scrapes", "envoy_up", "app_up", "istio_agent_process_open_fds"} <= names


async def test_no_application_and_no_envoy_leave_the_agents_own() -> None:
    async with status_server(scrape=ScrapeSettings(envoy_port=None)) as status:
        response = await status.ask("/stats/prometheus")

    assert b"istio_agent_python_info{" in response.body
    assert b"istio_agent_process_resident_memory_bytes " in response.body
    assert b"istio_agent_process_start_time_seconds 1" in response.body


@pytest.mark.parametrize(
    "broken", [None, web.Response(status=503), hang], ids=["closed", "503", "hanging"]
)
async def test_an_application_survives_envoy(broken: web.Response | Answer | None) -> None:
    headers = ((TIMEOUT, "0.2"),)

    response, text = await merged(broken, page(APPLICATION), headers=headers)

    assert text == APPLICATION
    assert failures(response) == ['{type="envoy"} 1']


@pytest.mark.parametrize("broken", [web.Response(status=500), hang], ids=["500", "hanging"])
async def test_envoy_survives_its_application(broken: web.Response | Answer) -> None:
    """cases.md M7, M12, M13."""
    response, text = await merged(page(ENVOY), broken, headers=((TIMEOUT, "0.2"),))

    assert text == ENVOY
    assert response.header("content-type") == TEXT
    assert failures(response) == ['{type="application"} 1']


async def test_all_may_fail() -> None:
    response, text = await merged(None, web.Response(status=404))

    assert text == ""
    assert failures(response) == ['{type="application"} 1', '{type="envoy"} 1']


async def test_a_source_that_breaks_off_loses_its_unfinished_line() -> None:
    async with merging(break_off, page(APPLICATION)) as (status, _, _):
        response = await status.ask("/metrics")
        later = await status.ask("/metrics")

    assert response.body.decode().endswith("whole 1\n" + APPLICATION)
    assert failures(later) == ['{type="envoy"} 1']


async def test_a_terminator_stands_at_the_end_even_if_the_application_breaks_off() -> None:
    response, text = await merged(page(ENVOY), break_off)

    assert text == ENVOY + "whole 1\n# EOF\n"
    assert response.header("content-type") == OM1


async def test_parts_that_do_not_end_their_line_do_not_run_together() -> None:
    """cases.md M5."""
    _, text = await merged(page(ENVOY.strip()), page("a 1\r\nb 2"))

    assert text == ENVOY + "a 1\r\nb 2\n"


@pytest.mark.parametrize(
    ("content_type", "body", "label", "end"),
    [
        (OM1, "app_up 1\n# EOF\n", OM1, "app_up 1\n# EOF\n"),
        ("application/openmetrics-text", "app_up 1\n# EOF\r\n\r\n", OM0, "app_up 1\n# EOF\n"),
        ("application/openmetrics-text; version=2.0.0", "app_up 1\n# EOF\n", TEXT, "app_up 1\n"),
        ("text/plain", "app_up 1\n# EOF\n", TEXT, "app_up 1\n"),
        ("", "app_up 1\n", TEXT, "app_up 1\n"),
    ],
)
async def test_the_label_is_the_applications_and_the_terminator_fits_it(
    content_type: str, body: str, label: str, end: str
) -> None:
    """A terminator in what is labelled text would be an error (D17)."""
    response, text = await merged(page(ENVOY), page(body, content_type))

    assert response.header("content-type") == label
    assert text == ENVOY + end


async def test_each_source_is_asked_for_what_can_be_merged() -> None:
    """cases.md M3, M4."""
    async with merging(page(ENVOY), page(APPLICATION)) as (status, envoy, applications):
        headers = (
            ("Accept", PROMETHEUS),
            ("User-Agent", "Prometheus/3"),
            (TIMEOUT, "10"),
            ("Accept-Encoding", "br"),
            ("Authorization", "Bearer x"),
        )
        await status.ask("/metrics?usedonly&filter=^a%20b$", headers=headers)
        await status.ask("/metrics")

    first, second = envoy.requests
    (application, _) = applications[0].requests
    assert first.raw_path == "/stats/prometheus?usedonly&filter=^a%20b$"
    assert application.raw_path == "/metrics"
    assert dict(first.headers) == {
        "Host": first.headers["Host"],
        "Connection": "close",
        "User-Agent": "Prometheus/3",
        TIMEOUT: "10",
        "Accept": "text/plain; q=0.1; version=0.0.4",
        "Accept-Encoding": "gzip",
    }
    assert application.headers["Accept"].startswith("application/openmetrics-text; q=0.2;")
    assert second.headers["Accept"] == "text/plain;version=0.0.4"
    assert "User-Agent" not in second.headers


async def test_compressed_sources_are_merged_plain() -> None:
    packed = {"Content-Type": TEXT, "Content-Encoding": "gzip"}
    envoy = web.Response(body=gzip.compress(ENVOY.encode()), headers=packed)
    application = web.Response(body=gzip.compress(APPLICATION.encode()), headers=packed)

    _, text = await merged(envoy, application)
    _, several = await merged(envoy, application, application)

    assert text == ENVOY + APPLICATION
    assert several == ENVOY + APPLICATION * 2


async def test_a_source_that_is_not_the_gzip_it_says_fails_alone() -> None:
    bad = web.Response(body=b"plain", headers={"Content-Encoding": "gzip"})
    async with merging(page(ENVOY), bad) as (status, _, _):
        response = await status.ask("/metrics")
        later = await status.ask("/metrics")

    assert response.body.decode().endswith(ENVOY)
    assert failures(later) == ['{type="application"} 1']


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
async def test_a_time_limit_that_is_not_positive_fails_at_once(seconds: str) -> None:
    response, text = await merged(page(ENVOY), page(APPLICATION), headers=((TIMEOUT, seconds),))

    assert text == ""
    assert failures(response) == ['{type="application"} 1', '{type="envoy"} 1']


@pytest.mark.parametrize("seconds", ["soon", "inf", "1e3"])
async def test_a_time_limit_that_says_nothing_is_none(seconds: str) -> None:
    _, text = await merged(page(ENVOY), page(APPLICATION), headers=((TIMEOUT, seconds),))

    assert text == ENVOY + APPLICATION


async def test_a_redirect_on_the_same_host_is_followed() -> None:
    async def redirect(request: web.BaseRequest) -> web.StreamResponse:
        if request.query_string:
            return page(APPLICATION)
        return web.Response(status=308, headers={"Location": "/metrics?there"})

    away = web.Response(status=302, headers={"Location": "http://example.com/"})
    loop = web.Response(status=302, headers={"Location": "/metrics"})

    _, text = await merged(page(ENVOY), redirect)
    failed = [await merged(page(ENVOY), answer) for answer in (away, loop)]

    assert text == ENVOY + APPLICATION
    assert [failures(response) for response, _ in failed] == [['{type="application"} 1']] * 2


async def test_a_path_without_slash_is_a_failed_scrape(caplog: pytest.LogCaptureFixture) -> None:
    settings = ScrapeSettings(envoy_port=None, targets=(Target(80, "metrics\nforged line"),))
    async with status_server(scrape=settings) as status:
        response = await status.ask("/metrics")

    assert failures(response) == ['{type="application"} 1']
    assert "path='metrics\\nforged line'" in caplog.text
    assert "\nforged line" not in caplog.text


# Several targets


async def test_targets_follow_in_their_order_with_one_terminator() -> None:
    """cases.md M8."""

    async def slow(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0)
        return page("# TYPE a gauge\na 1\n# EOF\n", OM1)

    b = page("# TYPE b gauge\nb 1\n# EOF\r\n", OM1)
    c = page("# TYPE c gauge\nc 1", OM1)
    response, text = await merged(page(""), slow, b, c)

    parts = "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE c gauge\nc 1\n# EOF\n"
    assert text == parts
    assert response.header("content-type") == OM1
    families = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # has no types
    assert [family.name for family in families] == ["a", "b", "c"]


async def test_two_text_targets_have_no_terminator() -> None:
    response, text = await merged(page(ENVOY), page("a 1\n"), page("b 1\n"))

    assert text == ENVOY + "a 1\nb 1\n"
    assert response.header("content-type") == TEXT


@pytest.mark.parametrize(
    ("first", "second", "label", "end"),
    [
        (page("a 1\n"), page("b 1\n# EOF\n", OM1), TEXT, "a 1\nb 1\n"),
        (page("a 1\n# EOF\n", OM0), page("b 1\n# EOF\n", OM1), TEXT, "a 1\nb 1\n"),
        (web.Response(status=500), page("b 1\n# EOF\n", OM1), OM1, "b 1\n# EOF\n"),
        (page("", OM1), page("b 1\n# EOF\n", OM1), OM1, "b 1\n# EOF\n"),
        (page("", TEXT), page("b 1\n# EOF\n", OM1), TEXT, "b 1\n"),
    ],
)
async def test_the_format_is_common_to_the_targets_that_answered(
    first: web.Response, second: web.Response, label: str, end: str
) -> None:
    response, text = await merged(page(""), first, second)

    assert response.header("content-type") == label
    assert text == end
    assert len(failures(response)) == (first.status != 200)


CAP = 10 * 1024 * 1024


@pytest.mark.parametrize(("size", "is_kept"), [(CAP, True), (CAP + 1, False)])
async def test_a_page_over_the_cap_is_dropped_and_the_rest_served(
    size: int,
    is_kept: bool,  # noqa: FBT001 -- a column
) -> None:
    """cases.md M2."""
    response, text = await merged(page(ENVOY), page("x" * (size - 1) + "\n"), page("b 1\n"))

    assert ("x" * (size - 1) in text) is is_kept
    assert text.endswith("b 1\n")
    assert len(failures(response)) == (not is_kept)


# Streaming


async def test_a_page_is_fetched_no_faster_than_it_is_read() -> None:
    """cases.md M1: what is under way is bounded by buffers, whatever the page measures."""
    written = 0
    stopped = asyncio.Event()

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse(headers={"Content-Type": TEXT})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"series 1\n" * 8192)
                written += 9 * 8192
        finally:
            stopped.set()

    async with (
        merging(endless) as (status, _, _),
        stream("GET", "127.0.0.1", status.port, "/metrics", timeout_seconds=60) as incoming,
    ):
        await anext(incoming)
        before = -1
        while written != before:  # until everything between is full
            before = written
            for _ in range(100):
                await asyncio.sleep(0)
        assert written < 40 << 20
    await stopped.wait()


async def test_a_caller_that_leaves_counts_and_ends_the_scrape() -> None:
    stopped = asyncio.Event()

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": TEXT})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"series 1\n" * 8192)
        finally:
            stopped.set()

    async with merging(endless) as (status, _, _):
        async with stream("GET", "127.0.0.1", status.port, "/metrics", timeout_seconds=60) as body:
            await anext(body)
        await stopped.wait()
        text = status.agent.metrics.render()

    assert 'istio_agent_scrape_failures_total{type="envoy"} 1\n' in text


async def test_a_large_page_is_streamed_compressed() -> None:
    body = "".join(f'series{{number="{number}"}} {number}\n' for number in range(50_000))
    async with merging(page(body)) as (status, _, _):
        response = await status.ask("/metrics", headers=(("Accept-Encoding", "gzip"),))

    assert response.header("content-encoding") == "gzip"
    assert zlib.decompress(response.body, 31).decode().endswith(body)


async def test_own_metrics_that_fail_leave_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "agent.status.merge.client")
    agent = Agent()

    def fail() -> None:
        raise RuntimeError("broken collector")

    agent.metrics.before_render(fail)
    async with web_server(Pages({"/metrics": page(APPLICATION)})) as port:
        settings = ScrapeSettings(envoy_port=None, targets=(Target(port, "/metrics"),))
        async with status_server(scrape=settings, agent=agent) as status:
            response = await status.ask("/metrics")

    assert response.body.decode() == APPLICATION


class Gate:
    """A page that comes once it may."""

    def __init__(self) -> None:
        self.asked = asyncio.Semaphore(0)
        self.open = asyncio.Event()

    async def __call__(self, _: web.BaseRequest) -> web.StreamResponse:
        self.asked.release()
        await self.open.wait()
        return page(ENVOY)


async def test_one_caller_has_few_scrapes_at_once_and_keeps_no_other_one_out() -> None:
    """Each holds connections and buffers for as long as its caller takes."""
    gate = Gate()
    async with merging(gate) as (status, _, _), asyncio.TaskGroup() as tasks:
        first = [tasks.create_task(status.ask("/metrics")) for _ in range(PER_PEER)]
        for _ in first:
            await gate.asked.acquire()
        refused = await status.ask("/metrics")
        other = tasks.create_task(status.ask("/metrics", source="127.0.0.2"))
        await gate.asked.acquire()
        gate.open.set()
        answers = [await task for task in (*first, other)]
        again = await status.ask("/metrics")

    assert (refused.status, refused.header("retry-after")) == (503, "1")
    assert [answer.status for answer in (*answers, again)] == [200] * (PER_PEER + 2)


async def test_a_caller_that_leaves_gives_back_its_place() -> None:
    gate = Gate()
    async with merging(gate) as (status, _, _):
        leaving = [asyncio.create_task(status.ask("/metrics")) for _ in range(PER_PEER)]
        for task in leaving:
            await gate.asked.acquire()
            task.cancel()
        await asyncio.wait(leaving)
        gate.open.set()
        async with asyncio.timeout(10):
            while (await status.ask("/metrics")).status != 200:
                pass


@pytest.mark.parametrize("headers", [(), ((TIMEOUT, "soon"),)], ids=["", "with a bad time limit"])
async def test_many_scrapes_that_fail_are_a_few_lines(
    headers: Headers, caplog: pytest.LogCaptureFixture
) -> None:
    async with merging(None, web.Response(status=500)) as (status, _, _):
        for _ in range(20):
            await status.ask("/metrics", headers=headers)
        failed = await status.ask("/metrics", headers=headers)

    assert len(caplog.messages) == 2 + len(headers)
    assert 'type="application"} 21' in failed.body.decode()
