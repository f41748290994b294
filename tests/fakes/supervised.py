"""A supervisor that runs, around a process that stands in for Envoy."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent.lifecycle.client import Admin
from agent.lifecycle.drain import drain_target
from agent.lifecycle.plan import Plan
from agent.lifecycle.process import Envoy, spawn
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
