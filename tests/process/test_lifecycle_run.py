"""The supervisor around a process that stands in for Envoy: real signals, real admin requests."""

import asyncio
import signal
from pathlib import Path

import pytest

from agent.lifecycle.process import Envoy
from agent.lifecycle.run import Supervisor, Surroundings
from tests.fakes.supervised import BRIEF, DRAIN, ENDLESS, SETTINGS, pod, send_to_self
from tests.waiting import until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_then_asks_envoy_to_stop(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Cases D13, D14, D25."""
    async with pod(tmp_path) as it:
        send_to_self(number)

        assert await it.exit_code() == 0
        assert it.requests() == ["GET /ready", DRAIN, "SIGTERM"]


async def test_the_cause_of_termination_is_told_from_the_signal_on(tmp_path: Path) -> None:
    async with pod(tmp_path) as it:
        assert it.supervisor.terminating() is None

        send_to_self(signal.SIGTERM)
        await it.exit_code()

        assert it.supervisor.terminating() == "received signal: terminated"


async def test_a_signal_before_envoy_is_live_drains_nothing(tmp_path: Path) -> None:
    """Case S5."""
    async with pod(tmp_path, ENDLESS, ready=503) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.requests() == ["GET /ready", "SIGTERM"]


async def test_a_second_signal_ends_a_long_drain(tmp_path: Path) -> None:
    async with pod(tmp_path, ENDLESS, on_term=None) as it:
        send_to_self(signal.SIGTERM)
        await until(lambda: DRAIN in it.requests())

        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0


async def test_an_envoy_that_ignores_the_request_to_stop_is_killed(tmp_path: Path) -> None:
    async with pod(tmp_path, settings=SETTINGS._replace(stop_seconds=0.05), on_term=None) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.requests()[-1] == "SIGTERM"


@pytest.mark.parametrize("target", ["/drain_listeners", "/ready"])
async def test_an_admin_port_that_never_answers_does_not_hold_up_the_end(
    tmp_path: Path, target: str
) -> None:
    """Case D11."""
    async with pod(tmp_path, hang=[target]) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.requests()[-1] == "SIGTERM"


async def test_a_drain_request_returns_when_envoy_was_asked(tmp_path: Path) -> None:
    async with pod(tmp_path, ENDLESS) as it:
        await it.supervisor.drain()
        await it.supervisor.drain()

        assert it.requests() == [DRAIN, DRAIN]
        assert it.supervisor.terminating() is None


async def test_a_drain_that_nobody_follows_up_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Case D20."""
    async with pod(tmp_path, settings=SETTINGS._replace(forgotten_seconds=0)) as it:
        await it.supervisor.drain()

        await until(lambda: "without a signal; only a restart ends it" in caplog.text)


async def test_a_drained_sidecar_stops_at_its_signal_without_waiting(tmp_path: Path) -> None:
    async with pod(tmp_path, ENDLESS) as it:
        await it.supervisor.drain()

        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.requests() == [DRAIN, "SIGTERM"]


async def test_quit_stops_without_draining(tmp_path: Path) -> None:
    """Case D16."""
    async with pod(tmp_path, ENDLESS) as it:
        it.supervisor.quit()

        assert await it.exit_code() == 0
        assert it.requests() == ["SIGTERM"]
        assert it.supervisor.terminating() == "/quitquitquit called"


async def test_a_drain_request_after_the_end_returns(tmp_path: Path) -> None:
    async with pod(tmp_path) as it:
        it.supervisor.quit()
        await it.exit_code()

        await it.supervisor.drain()


async def test_an_admin_port_that_is_gone_shortens_nothing(tmp_path: Path) -> None:
    """Case D10."""
    settings = SETTINGS._replace(starting_seconds=0)
    plan = BRIEF._replace(minimum_seconds=0.3)
    async with pod(tmp_path, plan, settings, closes_after="/close") as it:
        await it.close_admin_port()
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.seconds_since_signal() >= 0.3


async def test_a_drain_that_is_refused_shortens_nothing(tmp_path: Path) -> None:
    """Case D15."""
    plan = BRIEF._replace(minimum_seconds=0.3)
    async with pod(tmp_path, plan, refuse=["/drain_listeners"]) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.seconds_since_signal() >= 0.3


async def test_an_envoy_too_young_for_an_admin_port_has_nothing_to_drain(tmp_path: Path) -> None:
    """Case S5."""
    async with pod(tmp_path, ENDLESS, closes_after="/close") as it:
        await it.close_admin_port()
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0


async def test_other_signals_are_passed_on(tmp_path: Path) -> None:
    async with pod(tmp_path) as it:
        send_to_self(signal.SIGUSR1)

        await until(lambda: "SIGUSR1" in it.requests())
        it.supervisor.quit()
        assert await it.exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_without_envoy_a_signal_ends_the_agent(number: signal.Signals) -> None:
    supervisor = proxyless()
    running = asyncio.ensure_future(supervisor.run())
    await asyncio.sleep(0)
    await supervisor.drain()

    send_to_self(number)

    async with asyncio.timeout(5):
        assert await running == 0


async def test_without_envoy_quitting_ends_the_agent() -> None:
    """Spec: status-lifecycle.md section 14, D2."""
    supervisor = proxyless()

    supervisor.quit()

    async with asyncio.timeout(5):
        assert await supervisor.run() == 0


def proxyless() -> Supervisor:
    def refuse() -> Envoy:
        raise AssertionError("there is no Envoy to start")

    return Supervisor(SETTINGS, None, Surroundings(refuse, lambda: None, lambda: 0, lambda: 0.0))
