"""AGENT_METRICS_STRICT: the merged page of sources that contradict themselves and each other."""

import asyncio
import gzip

import pytest
from aiohttp import web

from agent.http.client import stream
from agent.status.merge.client import PAGE_BYTES
from tests.fakes.scraped import (
    ENVOY,
    OM1,
    TEXT,
    break_off,
    dropped,
    failures,
    judged,
    merged,
    merging,
    page,
)

SHARED = "# TYPE go_goroutines gauge\ngo_goroutines 5\n"
REQUESTS = '# TYPE requests counter\nrequests_total{{app="{}"}} 1\n'


async def test_equal_series_are_one_and_counted() -> None:
    """cases.md M6."""
    async with merging(page(ENVOY), page(SHARED), page(SHARED), strict=True) as (status, _, _):
        response = await status.ask("/metrics")
        later = await status.ask("/metrics")

    assert response.body.decode().endswith(ENVOY + SHARED)
    assert dropped(response.body.decode()) == {}
    assert dropped(later.body.decode()) == {
        "application/duplicate": 1,
        "application/repeated_family": 1,
    }
    assert judged(later)


async def test_series_of_several_sources_stand_together() -> None:
    first, second = (page(REQUESTS.format(name) + "# EOF\n", OM1) for name in "ab")
    envoy = page(ENVOY + '# TYPE requests_total counter\nrequests_total{app="envoy"} 1\n')

    response, text = await merged(envoy, first, second, strict=True)

    assert text == (
        ENVOY
        + REQUESTS.format("envoy")
        + 'requests_total{app="a"} 1\nrequests_total{app="b"} 1\n# EOF\n'
    )
    assert response.header("content-type") == OM1
    assert judged(response)


async def test_what_contradicts_or_cannot_be_read_is_left_out_and_counted() -> None:
    application = page("# TYPE envoy_up counter\nenvoy_up 1\nodd line here\napp_up 1\n")
    async with merging(page(ENVOY + "?\n"), application, strict=True) as (status, _, _):
        response = await status.ask("/metrics")
        counted = dropped(status.agent.metrics.render())

    assert response.body.decode().endswith(ENVOY + "app_up 1\n")
    assert counted == {
        "envoy/invalid": 1,
        "application/invalid": 1,
        "application/conflict": 1,
        "application/repeated_family": 1,
    }


@pytest.mark.parametrize("count", [1, 2])
async def test_a_page_over_the_cap_is_left_out(count: int) -> None:
    """cases.md M2."""
    large = page("# " + "x" * PAGE_BYTES + "\n")
    others = [page(SHARED)] * (count - 1)

    response, text = await merged(page(ENVOY), large, *others, strict=True)

    assert text == ENVOY + SHARED * (count - 1)
    assert failures(response) == ['{type="application"} 1']


async def test_a_source_that_breaks_off_loses_its_unfinished_line_alone() -> None:
    async with merging(break_off, page(SHARED), strict=True) as (status, _, _):
        response = await status.ask("/metrics")
        later = await status.ask("/metrics")

    assert response.body.decode().endswith("whole 1\n" + SHARED)
    assert 'scrape_failures_total{type="envoy"} 1\n' in later.body.decode()
    assert dropped(later.body.decode()) == {}


async def test_a_compressed_page_without_its_last_end_is_read() -> None:
    packed = gzip.compress(SHARED.rstrip().encode())
    headers = {"Content-Type": TEXT, "Content-Encoding": "gzip"}

    _, text = await merged(
        page(ENVOY.rstrip()), web.Response(body=packed, headers=headers), strict=True
    )

    assert text == ENVOY + SHARED


async def test_others_are_answered_while_a_large_page_is_read() -> None:
    """cases.md P12: no page keeps the loop for itself."""
    body = "".join(f'series{{number="{number}"}} {number}\n' for number in range(60_000))
    async with merging(page(body), page(body), strict=True) as (status, _, _):
        scrape = asyncio.create_task(status.ask("/metrics"))
        answered = 0
        while not scrape.done():
            assert (await status.ask("/unknown")).status == 404
            answered += 1
        response = await scrape
        counted = dropped(status.agent.metrics.render())

    assert response.body.decode().endswith(body)
    assert answered > 20
    assert counted["application/duplicate"] == 60_000


async def test_a_caller_that_leaves_ends_the_scrape() -> None:
    stopped = asyncio.Event()

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": TEXT})
        await response.prepare(request)
        number = 0
        try:
            while True:
                number += 1
                await response.write(b"series_%d 1\n" % number * 100)
        finally:
            stopped.set()

    async with merging(endless, page(SHARED), strict=True) as (status, _, _):
        async with stream("GET", "127.0.0.1", status.port, "/metrics", timeout_seconds=60) as body:
            await anext(body)
        await stopped.wait()
        text = status.agent.metrics.render()

    assert 'istio_agent_scrape_failures_total{type="envoy"} 1\n' in text
