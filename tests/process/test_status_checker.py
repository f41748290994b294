"""What is reported of an application. Source: xds-identity-dns.md sections 9.3 and 9.4."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from agent.status.application.run import Checker, checking
from agent.status.application.settings import (
    Check,
    ExecCheck,
    HealthSettings,
    HttpCheck,
    TcpCheck,
    Thresholds,
)
from agent.status.settings import StatusSettings
from tests.fakes.ports import LOCAL, closed_port, listening
from tests.fakes.status import Agent
from tests.fakes.web import Admin, web_server

PERIOD_SECONDS = 0.01


class Reports:
    """What was reported; None is healthy."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[str | None] = asyncio.Queue()

    async def next(self) -> str | None:
        async with asyncio.timeout(10):
            return await self.queue.get()


@asynccontextmanager
async def reporting(
    check: Check,
    *,
    agent: Agent | None = None,
    admin_port: int | None = None,
    thresholds: Thresholds = Thresholds(),  # noqa: B008 -- immutable
    initial_delay_seconds: float = 0.0,
    period_seconds: float = PERIOD_SECONDS,
) -> AsyncIterator[tuple[Reports, Checker]]:
    settings = StatusSettings(
        port=0,
        admin_host=LOCAL,
        admin_port=admin_port or 1,
        envoy_enabled=admin_port is not None,
    )
    health = HealthSettings(
        check,
        initial_delay_seconds=initial_delay_seconds,
        period_seconds=period_seconds,
        thresholds=thresholds,
    )
    reports = Reports()
    hooks = (agent or Agent()).hooks()
    async with checking(settings, health, hooks, reports.queue.put_nowait) as checker:
        yield reports, checker


async def test_a_target_that_comes_and_goes_is_reported_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """T-H5."""
    caplog.set_level(logging.INFO, "agent.status.application")
    port = closed_port()
    async with reporting(TcpCheck(LOCAL, port)) as (reports, checker):
        down = await reports.next()
        problem = checker.problem()
        with listening(port):
            up = await reports.next()
            assert checker.problem() is None
        down_again = await reports.next()
        assert reports.queue.empty()

    refused = f"{LOCAL}:{port}: connection refused"
    assert (down, up, down_again) == (refused, None, refused)
    assert problem == f"application is not healthy: {refused}"
    assert [record.message for record in caplog.records] == [
        f"application is not healthy reason={refused!r}",
        "application is healthy",
        f"application is not healthy reason={refused!r}",
    ]


async def test_only_a_row_of_results_is_reported() -> None:
    statuses = iter([200, 500, 500, 200, 500, 500, 500])
    asked = 0

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.Response(status=next(statuses, 500))

    async with (
        web_server(answer) as port,
        reporting(HttpCheck(LOCAL, port), thresholds=Thresholds(1, 3)) as (reports, _),
    ):
        assert await reports.next() is None
        assert "status 500" in str(await reports.next())

    assert asked >= 7


async def test_envoy_is_asked_first() -> None:
    """Section 9.2: the first that is not healthy decides."""
    admin = Admin()
    admin.stats = ""
    agent = Agent()
    async with (
        web_server(admin) as admin_port,
        reporting(ExecCheck(("true",)), agent=agent, admin_port=admin_port) as (reports, _),
    ):
        not_configured = await reports.next()
        admin.stats = Admin().stats
        ready = await reports.next()
        agent.checks["envoy"] = lambda: "Envoy is restarted, 1 of 3 times"
        restarted = await reports.next()
        del agent.checks["envoy"]
        again = await reports.next()
        agent.cause = "received signal: terminated"
        terminated = await reports.next()

    assert "config not received from XDS server (is Istiod running?)" in str(not_configured)
    assert (ready, again) == (None, None)
    assert restarted == "Envoy is restarted, 1 of 3 times"
    assert terminated == "server is terminated: received signal: terminated"


async def test_the_first_check_waits_for_the_initial_delay_alone() -> None:
    """The first check is at once after the delay, not a period later."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    check = ExecCheck(("true",))
    async with reporting(check, initial_delay_seconds=0.05, period_seconds=1000) as (reports, _):
        assert await reports.next() is None

    assert loop.time() - began >= 0.05


async def test_a_system_without_descriptors_is_not_the_end_of_checking() -> None:
    import resource  # noqa: PLC0415 -- of this test alone

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with listening() as port:
        async with reporting(TcpCheck(LOCAL, port)) as (reports, _):
            assert await reports.next() is None
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
            try:
                exhausted = await reports.next()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert await reports.next() is None

    assert "too many open files" in str(exhausted)
