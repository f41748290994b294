"""The supervisor around a process that stands in for Envoy: real signals, real admin requests."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.errors import EnvoyError, SystemRefusedError
from agent.lifecycle.client import Admin
from agent.lifecycle.drain import CONNECTIONS_TARGET, REQUESTS_TARGET, drain_target
from agent.lifecycle.plan import Plan
from agent.lifecycle.process import Envoy, check_ports, spawn
from agent.lifecycle.run import LifecycleSettings, Supervisor, Surroundings
from tests.waiting import until

FAKE = Path(__file__).parents[1] / "fakes" / "envoy.py"
DRAIN = "POST " + drain_target(is_sidecar=True)
BRIEF = Plan(minimum_seconds=0.05)
ENDLESS = Plan(minimum_seconds=3600)
#: Of a drain that looks at what goes on, from the first moment.
CONNECTIONS = Plan(condition="connections", minimum_seconds=0)
BUSY = "listener.0.0.0.0_15006.downstream_cx_active: 1\n"
IDLE = BUSY.replace(": 1", ": 0")


SETTINGS = LifecycleSettings(
    Admin("127.0.0.1", 0), drain_target(is_sidecar=True), BRIEF, failure_pause_seconds=0.01
)


class Pod:
    """A supervisor that runs, and what its Envoy was asked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.envoy = self._start()
        self.restarts = 0
        self.oom_kills = 0
        self.admin: Admin
        self.supervisor: Supervisor
        self.running: asyncio.Task[int]

    async def begin(self, settings: LifecycleSettings) -> None:
        await until((self.directory / "port").exists)
        self.admin = Admin("127.0.0.1", int((self.directory / "port").read_text()))
        around = Surroundings(
            start=self._restart,
            restarted=self._count,
            oom_kills=lambda: self.oom_kills,
            rng=lambda: 0.0,
        )
        self.supervisor = Supervisor(settings._replace(admin=self.admin), self.envoy, around)
        self.running = asyncio.ensure_future(self.supervisor.run())
        await asyncio.sleep(0)  # lets it install its signal handlers
        self.supervisor.started()

    def _start(self) -> Envoy:
        return spawn(sys.executable, [str(FAKE), str(self.directory)], os.environ)

    def _restart(self) -> Envoy:
        self.envoy = self._start()
        return self.envoy

    def _count(self) -> None:
        self.restarts += 1

    def requests(self) -> list[str]:
        record = self.directory / "requests"
        return record.read_text().splitlines() if record.exists() else []

    async def close_admin_port(self) -> None:
        await self.admin.drain("/close")
        async with asyncio.timeout(10):
            while await self.admin.is_live() is not None:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.005)

    def seconds_since_signal(self) -> float:
        waited = self.supervisor.document()["seconds_since_signal"]
        assert isinstance(waited, float)
        return waited

    async def exit_code(self) -> int:
        async with asyncio.timeout(10):
            return await self.running


@asynccontextmanager
async def pod(
    directory: Path,
    plan: Plan = BRIEF,
    settings: LifecycleSettings = SETTINGS,
    **behaviour: object,
) -> AsyncIterator[Pod]:
    (directory / "behaviour.json").write_text(json.dumps(behaviour))
    pod = Pod(directory)
    try:
        await pod.begin(settings._replace(plan=plan))
        yield pod
    finally:
        pod.envoy.send(signal.SIGKILL)
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


async def test_an_admin_port_that_is_gone_shortens_nothing(tmp_path: Path) -> None:
    """Case D10."""
    settings = SETTINGS._replace(starting_seconds=0)
    plan = BRIEF._replace(minimum_seconds=0.3)
    async with pod(tmp_path, plan, settings, closes_after="/close") as it:
        await it.close_admin_port()
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.seconds_since_signal() >= 0.3


async def test_an_envoy_too_young_for_an_admin_port_has_nothing_to_drain(tmp_path: Path) -> None:
    """Case S5."""
    async with pod(tmp_path, ENDLESS, closes_after="/close") as it:
        await it.close_admin_port()
        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0


async def test_what_envoy_writes_at_the_end_arrives(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Case D25."""
    async with pod(tmp_path, last_words="last access log\n") as it:
        send_to_self(signal.SIGTERM)
        await it.exit_code()

    assert "last access log\n" in capfd.readouterr().out


@pytest.mark.parametrize("kills", [0, 1])
async def test_a_kill_by_the_kernel_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kills: int
) -> None:
    """Case V5."""
    async with pod(tmp_path) as it:
        it.oom_kills = kills
        it.envoy.send(signal.SIGKILL)

        assert await it.exit_code() == 137

    assert ("out of memory" in caplog.text) == bool(kills)


def test_orphans_are_reaped_and_children_left_to_their_owners() -> None:
    """A child that is dead for the first time may be waited for by whoever started it."""
    script = """
import ctypes, os
from agent.lifecycle.process import Orphans
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER, as pid 1 is one
read_end, write_end = os.pipe()
if (parent := os.fork()) == 0:
    if (orphan := os.fork()) == 0:
        os._exit(0)
    os.write(write_end, str(orphan).encode())
    os._exit(0)
os.waitpid(parent, 0)
orphan = int(os.read(read_end, 100))
os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
orphans = Orphans()
print(orphans.reap())
if (own := os.fork()) == 0:
    os._exit(7)
os.waitid(os.P_PID, own, os.WEXITED | os.WNOWAIT)
print(orphans.reap())
print(os.waitpid(own, 0)[1] >> 8, orphans.reap())
try:
    os.waitpid(orphan, 0)
except ChildProcessError:
    print("reaped")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=30
    )

    assert done.stdout.splitlines() == ["True", "True", "7 False", "reaped"]


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


@pytest.mark.slow
async def test_a_killed_envoy_is_started_again_until_restarts_are_used_up(tmp_path: Path) -> None:
    """Cases V1, V3 and V7."""
    async with pod(tmp_path, settings=SETTINGS._replace(restarts=1)) as it:
        first = it.envoy
        first.send(signal.SIGKILL)
        await until(it.supervisor.problem)
        assert it.supervisor.problem() == "Envoy is restarted, 1 of 1 times"
        await until(lambda: it.restarts)
        assert (it.supervisor.problem(), it.supervisor.starts()) == (None, 2)

        it.envoy.send(signal.SIGKILL)

        assert await it.exit_code() == 137
        assert it.envoy.pid != first.pid


@pytest.mark.slow
async def test_a_signal_ends_the_pause_before_a_restart(tmp_path: Path) -> None:
    async with pod(tmp_path, settings=SETTINGS._replace(restarts=1)) as it:
        it.envoy.send(signal.SIGKILL)
        await until(it.supervisor.problem)

        send_to_self(signal.SIGTERM)

        assert await it.exit_code() == 0
        assert it.restarts == 0


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


@pytest.mark.root
def test_an_envoy_may_run_as_another_user() -> None:
    with tempfile.TemporaryDirectory() as name:
        seen = Path(name, "seen")
        seen.touch()
        os.chown(name, 1337, 1337)
        os.chown(seen, 1337, 1337)

        envoy = spawn(
            "/bin/sh", ["-c", f"id -u >{seen}; id -G >>{seen}"], os.environ, user=(1337, 1337)
        )

        assert envoy.reap() == 0
        assert seen.read_text() == "1337\n1337\n"


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
            check_ports(
                {ports[0]: "inbound capture", ports[1]: "status"}, ipv6=True, patience_seconds=0
            )

    assert f"port {ports[0]} (inbound capture), {ports[1]} (status) is in use" in str(caught.value)
    check_ports({ports[0]: "inbound capture"}, ipv6=True)


async def test_a_port_that_is_about_to_be_free_is_waited_for() -> None:
    """The Envoy of an agent that was killed may be dying still."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    checking = asyncio.create_task(asyncio.to_thread(check_ports, {port: "admin"}, ipv6=False))
    await asyncio.sleep(0)

    server.close()
    await server.wait_closed()

    await checking
