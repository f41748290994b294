"""The merged page passes through: little of it is held, and only for so long."""

import asyncio
import zlib

import pytest
from aiohttp import web

from agent.http.client import stream
from agent.status.merge.admission import PER_PEER
from agent.status.merge.client import time_limits
from tests.fakes.scraped import (
    APPLICATION,
    ENVOY,
    TEXT,
    TIMEOUT,
    failures,
    merged,
    merging,
    page,
)
from tests.fakes.web import hang


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
async def test_a_time_limit_that_is_not_positive_fails_at_once(seconds: str) -> None:
    response, text = await merged(page(ENVOY), page(APPLICATION), headers=((TIMEOUT, seconds),))

    assert text == ""
    assert failures(response) == ['{type="application"} 1', '{type="envoy"} 1']


@pytest.mark.parametrize("seconds", ["soon", "inf", "1e3"])
async def test_a_time_limit_that_says_nothing_is_none(seconds: str) -> None:
    _, text = await merged(page(ENVOY), page(APPLICATION), headers=((TIMEOUT, seconds),))

    assert text == ENVOY + APPLICATION


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


@pytest.mark.slow
async def test_a_hanging_application_costs_nothing_of_a_large_envoy_page() -> None:
    """cases.md M13: Envoy's page is sent when the application is given up, in what time is left."""
    body = "".join(f'series{{number="{number}"}} {number}\n' for number in range(20_000))

    one, two = await asyncio.gather(
        *(
            merged(page(body), *hanging, headers=((TIMEOUT, "3"),))
            for hanging in ([hang], [hang] * 2)
        )
    )

    assert (one[1], two[1]) == (body, body)
    assert failures(one[0]) == ['{type="application"} 1']
    assert failures(two[0]) == ['{type="application"} 2']


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", (None, None)),
        ("inf", (None, None)),
        ("10", (9.0, 9.9)),
        ("1.5", (0.75, 1.4625)),
        ("0", (0.0, 0.0)),
        ("-1", (0.0, 0.0)),
        ("nan", (0.0, 0.0)),
    ],
)
def test_time_is_left_for_what_has_answered(
    text: str, limits: tuple[float | None, float | None]
) -> None:
    assert time_limits(text) == limits


@pytest.mark.slow
async def test_an_application_that_stops_in_the_middle_costs_only_itself() -> None:
    async def half(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": TEXT})
        await response.prepare(request)
        await response.write(b"whole 1\nhalf_of_a_li")
        return await hang(request)

    async with merging(page(ENVOY), half) as (status, _, _):
        response = await status.ask("/metrics", headers=((TIMEOUT, "1"),))
        later = status.agent.metrics.render()

    assert response.body.decode().endswith(ENVOY + "whole 1\n")
    assert 'scrape_failures_total{type="application"} 1' in later


async def test_sources_are_asked_at_the_same_time() -> None:
    together = asyncio.Barrier(4)

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        await together.wait()
        return page("")

    response, _ = await merged(answer, answer, answer, answer)

    assert failures(response) == []
