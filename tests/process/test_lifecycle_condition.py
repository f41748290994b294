"""When a drain is over: what goes on is counted, within minimum and deadline."""

import signal
from pathlib import Path

import pytest

from agent.lifecycle.drain import CONNECTIONS_TARGET, REQUESTS_TARGET
from tests.fakes.supervised import (
    BUSY,
    CONNECTIONS,
    DRAIN,
    ENDLESS,
    IDLE,
    SETTINGS,
    pod,
    send_to_self,
)
from tests.waiting import until


async def test_connections_are_counted_until_none_is_left(tmp_path: Path) -> None:
    """Case D9: an answer that fails is no end."""
    async with pod(tmp_path, CONNECTIONS, stats=[BUSY, BUSY, IDLE]) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.requests().count(f"GET {CONNECTIONS_TARGET}") == 3


async def test_four_failures_to_count_are_tolerated(tmp_path: Path) -> None:
    """Case D9."""
    async with pod(tmp_path, CONNECTIONS, stats=[None, None, None, None, BUSY, IDLE]) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.requests().count(f"GET {CONNECTIONS_TARGET}") == 6


async def test_the_fifth_failure_to_count_ends_the_drain(tmp_path: Path) -> None:
    """Case D9."""
    async with pod(tmp_path, CONNECTIONS, stats=[None]) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.requests().count(f"GET {CONNECTIONS_TARGET}") == 5


async def test_an_envoy_without_statistics_is_not_waited_for(tmp_path: Path) -> None:
    async with pod(tmp_path, CONNECTIONS, stats=[""]) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0


async def test_idle_connections_do_not_hold_up_a_drain_that_counts_requests(
    tmp_path: Path,
) -> None:
    """Case D7."""
    idle = BUSY + "http.inbound;.downstream_cx_active: 1\nhttp.inbound;.downstream_rq_active: 0\n"
    async with pod(tmp_path, CONNECTIONS._replace(condition="requests"), stats=[idle]) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert f"GET {REQUESTS_TARGET}" in it.requests()


@pytest.mark.slow
async def test_nothing_is_looked_at_before_the_minimum(tmp_path: Path) -> None:
    """Case D8: what is idle at once is drained for as long as any other."""
    plan = CONNECTIONS._replace(minimum_seconds=1.5)
    async with pod(tmp_path, plan, stats=[IDLE]) as it:
        send_to_self(signal.SIGTERM)
        await it.exit_code()

    assert it.seconds_since_signal() >= 1.5


async def test_the_deadline_ends_what_does_not_end_by_itself(tmp_path: Path) -> None:
    """Case D3."""
    plan = CONNECTIONS._replace(deadline_seconds=0.2)
    settings = SETTINGS._replace(hurried_stop_seconds=0.05)
    async with pod(tmp_path, plan, settings, stats=[BUSY], on_term=None) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert "SIGTERM" in it.requests()


async def test_a_drain_is_put_off_by_the_delay(tmp_path: Path) -> None:
    """Case D12: Envoy is asked only after it, and the agent is not ready meanwhile."""
    async with pod(tmp_path, ENDLESS._replace(delay_seconds=0.2)) as it:
        send_to_self(signal.SIGTERM)
        await until(lambda: it.requests() == ["GET /ready"])
        assert it.supervisor.terminating()
        await until(lambda: DRAIN in it.requests())

        assert it.seconds_since_signal() >= 0.2


async def test_the_plan_and_how_far_it_is_can_be_seen(tmp_path: Path) -> None:
    async with pod(tmp_path, CONNECTIONS, stats=[BUSY]) as it:
        before = it.supervisor.document()
        send_to_self(signal.SIGTERM)
        await until(lambda: it.supervisor.document()["still_active"] == 1)
        during = it.supervisor.document()

    plan = before["plan"]
    assert isinstance(plan, dict)
    assert plan["condition"] == {"value": "connections", "from": "default"}
    assert (before["state"], before["seconds_since_signal"]) == ("running", None)
    assert (during["state"], during["cause"]) == ("terminating", "received signal: terminated")
