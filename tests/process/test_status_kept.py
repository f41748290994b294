"""Connections that scrapes and probes use again.

Source: status-lifecycle.md sections 4.8, 5.4 and 12.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent.http.message import Headers
from agent.status.probes import HttpProbe
from agent.status.scrape import Target
from agent.status.settings import ProbeSettings, ScrapeSettings
from tests.fakes.counted import OK, Application, counted, open_sockets
from tests.fakes.status import Status, status_server
from tests.waiting import until

PROBES = ("/app-health/one/readyz", "/app-health/two/livez")
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\na 1\n"
CLOSE = (("Connection", "close"),)


@asynccontextmanager
async def scraping(*, targets: int = 1) -> AsyncIterator[tuple[Status, list[Application]]]:
    """A status server between callers, Envoy's page, which is the first, and the application's."""
    async with counted(PAGE) as envoy, counted(PAGE) as first, counted(PAGE) as second:
        applications = [first, second][:targets]
        settings = ScrapeSettings(
            envoy.port, tuple(Target(each.port, "/metrics") for each in applications)
        )
        async with status_server(scrape=settings) as status:
            yield status, [envoy, *applications]


async def test_scrapes_use_their_connections_again_and_leave_none() -> None:
    before = open_sockets()
    for targets in (1, 2):
        async with scraping(targets=targets) as (status, sources):
            answers = [await status.ask("/metrics") for _ in range(5)]

            assert [each.body.count(b"\na 1") for each in answers] == [targets + 1] * 5
            assert [len(each.peers) for each in sources] == [1] * (targets + 1)
            assert [len(each.requests) for each in sources] == [5] * (targets + 1)
    await until(lambda: open_sockets() == before)


async def test_no_scrape_fails_from_connections_that_are_closed_when_idle() -> None:
    async with scraping() as (status, sources):
        for number in range(30):
            for each in sources:
                each.most_per_connection = 1 + number % 3
                if number % 4 == 3:
                    each.hang_up()
            await status.ask("/metrics")
        answer = await status.ask("/metrics")

    assert answer.body.count(b"\na 1") == 2
    assert b"istio_agent_scrape_failures_total{" not in answer.body


async def test_scrapes_at_once_leave_one_connection_to_each() -> None:
    async with scraping() as (status, sources):
        await asyncio.gather(*(status.ask("/metrics") for _ in range(4)))

        await until(lambda: [len(each.writers) for each in sources] == [1, 1])


@asynccontextmanager
async def probing(
    application: Application, *, keeps_connections: bool = True
) -> AsyncIterator[Status]:
    """A status server with two probers of one application."""
    probes = ProbeSettings(
        dict.fromkeys(PROBES, HttpProbe("/", application.port, timeout_seconds=5)),
        keeps_connections=keeps_connections,
    )
    async with status_server(probes=probes) as status:
        yield status


async def probed(status: Status, count: int, headers: Headers = ()) -> list[int]:
    """Return what every prober says, again and again."""
    return [
        (await status.ask(path, headers=headers or (("Connection", "keep-alive"),))).status
        for _ in range(count)
        for path in PROBES
    ]


async def test_each_probe_has_a_connection_unless_asked_otherwise() -> None:
    async with counted() as application, probing(application, keeps_connections=False) as status:
        assert await probed(status, 2) == [200] * 4

    assert application.peers == ["127.0.0.6"] * 4
    assert all(b"Connection: close" in each for each in application.requests)


async def test_each_prober_uses_its_connection_again() -> None:
    before = open_sockets()
    async with counted() as application, probing(application) as status:
        assert await probed(status, 3) == [200] * 6

        assert application.peers == ["127.0.0.6"] * 2
        assert not any(b"Connection:" in each for each in application.requests)
    await until(lambda: open_sockets() == before)


async def test_a_caller_that_closes_its_connection_has_the_probe_close_its_own() -> None:
    async with counted() as application, probing(application) as status:
        assert await probed(status, 2, CLOSE) == [200] * 4
        await until(lambda: not application.writers)

    assert len(application.peers) == 4
    assert all(each.count(b"Connection: close") == 1 for each in application.requests)


async def test_no_probe_fails_from_connections_that_are_closed_when_idle() -> None:
    async with counted() as application, probing(application) as status:
        application.most_per_connection = 2
        application.closes_after = set(range(1, 40, 7))

        assert await probed(status, 10) == [200] * 20


async def test_what_a_redirect_leads_to_elsewhere_is_not_kept() -> None:
    async with counted() as other:
        redirect = (
            b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:%d/\r\n\r\n"
        )
        async with counted(redirect % other.port) as application, probing(application) as status:
            assert await probed(status, 2) == [200] * 4

            assert (len(application.peers), len(other.peers)) == (2, 4)
            await until(lambda: not other.writers)


async def test_a_body_that_is_too_long_for_a_probe_costs_its_connection() -> None:
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n" + b"x" * 900_000
    async with counted(long, OK) as application, probing(application) as status:
        assert await probed(status, 2) == [200] * 4
        await until(lambda: len(application.writers) == 2)

    assert len(application.peers) == 3
