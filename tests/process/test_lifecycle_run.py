"""The supervisor around a process that stands in for Envoy: real signals, real admin requests."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.errors import EnvoyError, SystemRefusedError
from agent.lifecycle.client import Admin
from agent.lifecycle.drain import DrainSettings, drain_target
from agent.lifecycle.process import Envoy, check_ports, spawn
from agent.lifecycle.run import LifecycleSettings, Supervisor
from tests.waiting import until

FAKE = Path(__file__).parents[1] / "fakes" / "envoy.py"
DRAIN = "POST " + drain_target(is_sidecar=True)
BRIEF = DrainSettings(termination_seconds=0.05, stop_seconds=5, hurried_stop_seconds=0.05)
ENDLESS = BRIEF._replace(termination_seconds=3600)


class Pod:
    """A supervisor that runs, and what its Envoy was asked."""

    def __init__(self, directory: Path, envoy: Envoy, drain: DrainSettings) -> None:
        port = int((directory / "port").read_text())
        admin = Admin("127.0.0.1", port)
        settings = LifecycleSettings(admin, drain_target(is_sidecar=True), drain)
        self.directory = directory
        self.envoy = envoy
        self.supervisor = Supervisor(settings, envoy)
        self.running: asyncio.Task[int]

    def requests(self) -> list[str]:
        record = self.directory / "requests"
        return record.read_text().splitlines() if record.exists() else []

    async def exit_code(self) -> int:
        async with asyncio.timeout(10):
            return await self.running


@asynccontextmanager
async def pod(
    directory: Path, drain: DrainSettings = BRIEF, **behaviour: object
) -> AsyncIterator[Pod]:
    (directory / "behaviour.json").write_text(json.dumps(behaviour))
    envoy = spawn(sys.executable, [str(FAKE), str(directory)], os.environ)
    try:
        await until((directory / "port").exists)
        pod = Pod(directory, envoy, drain)
        pod.running = asyncio.ensure_future(pod.supervisor.run())
        await asyncio.sleep(0)  # lets it install its signal handlers
        yield pod
    finally:
        if envoy.pidfd >= 0:
            envoy.send(signal.SIGKILL)
            await pod.running


def send_to_self(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


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
    async with pod(tmp_path, ENDLESS) as it:
        send_to_self(signal.SIGTERM)
        await until(lambda: DRAIN in it.requests())

        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0


async def test_an_envoy_that_ignores_the_request_to_stop_is_killed(tmp_path: Path) -> None:
    async with pod(tmp_path, BRIEF._replace(stop_seconds=0.05), on_term=None) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.requests()[-1] == "SIGTERM"


@pytest.mark.parametrize("target", ["/drain_listeners", "/ready"])
async def test_an_admin_port_that_never_answers_does_not_hold_up_the_end(
    tmp_path: Path, target: str
) -> None:
    """Cases D11, D15."""
    async with pod(tmp_path, hang=[target]) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.requests()[-1] == "SIGTERM"


async def test_envoys_own_end_is_passed_on(tmp_path: Path) -> None:
    """Cases V4, D26."""
    async with pod(tmp_path) as it:
        it.envoy.send(signal.SIGKILL)

        assert await it.exit_code() == 137


async def test_envoys_end_during_a_drain_ends_the_drain(tmp_path: Path) -> None:
    """Cases D21, D27."""
    async with pod(tmp_path, ENDLESS) as it:
        send_to_self(signal.SIGTERM)
        await until(lambda: DRAIN in it.requests())

        it.envoy.send(signal.SIGKILL)

        assert await it.exit_code() == 0


async def test_a_drain_request_returns_when_envoy_was_asked(tmp_path: Path) -> None:
    async with pod(tmp_path, ENDLESS) as it:
        await it.supervisor.drain()
        await it.supervisor.drain()

        assert it.requests() == [DRAIN, DRAIN]
        assert it.supervisor.terminating() is None


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


@pytest.mark.slow
async def test_connections_are_counted_until_none_is_left(tmp_path: Path) -> None:
    drain = ENDLESS._replace(exit_on_idle=True, minimum_seconds=0)
    busy = "listener.0.0.0.0_15006.downstream_cx_active: 1\n"
    async with pod(tmp_path, drain, stats=[busy, None, busy.replace("1\n", "0\n")]) as it:
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        stats = "GET /stats?usedonly&filter=downstream_cx_active$"
        assert it.requests().count(stats) == 3


def test_an_envoy_dies_with_whoever_started_it(tmp_path: Path) -> None:
    """Case D26."""
    (tmp_path / "behaviour.json").write_text('{"on_term": null}')
    script = (
        "import os, sys, time; from agent.lifecycle.process import spawn;"
        f"spawn(sys.executable, [{str(FAKE)!r}, {str(tmp_path)!r}], os.environ);"
        f"\nwhile not os.path.exists({str(tmp_path / 'port')!r}): time.sleep(0.005)"
        "\nos.kill(os.getpid(), 9)"
    )
    read_end, write_end = os.pipe()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", script],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, write_end, 1)],
    )
    os.close(write_end)

    os.waitpid(child, 0)

    # Both held our pipe as their stdout: its end means that both are gone.
    assert os.read(read_end, 1) == b""
    os.close(read_end)


@pytest.mark.parametrize("mode", [None, 0o644])
def test_an_envoy_that_cannot_be_run_is_named(tmp_path: Path, mode: int | None) -> None:
    binary = tmp_path / "envoy"
    if mode is not None:
        binary.touch(mode)

    with pytest.raises(EnvoyError, match=str(binary)):
        spawn(str(binary), [], os.environ)


def test_a_missing_tool_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvoyError, match="setpriv not found in PATH; install util-linux"):
        spawn(sys.executable, [], {"PATH": str(tmp_path)})


async def test_ports_that_are_taken_are_named_together() -> None:
    async with (
        await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as first,
        await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as second,
    ):
        ports = [server.sockets[0].getsockname()[1] for server in (first, second)]

        with pytest.raises(SystemRefusedError) as caught:
            check_ports({ports[0]: "inbound capture", ports[1]: "status"}, ipv6=True)

    assert f"port {ports[0]} (inbound capture), {ports[1]} (status) is in use" in str(caught.value)
    check_ports({ports[0]: "inbound capture"}, ipv6=True)
