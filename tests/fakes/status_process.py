"""A status server in a process of its own, run as a script: what it costs can be seen from outside.

Takes admin port, Envoy's metrics port and an application's port; prints its own port, then a line
for each call of the rest of the agent.
"""

import asyncio
import logging
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent.status.probes import HttpProbe, Probe
from agent.status.run import serving
from agent.status.scrape import Target
from agent.status.settings import ProbeSettings, ScrapeSettings, StatusSettings
from tests.fakes.status import Agent

#: Stands in what is for the pod alone.
SECRET = "for-this-pod-alone"  # noqa: S105 -- none


class Running:
    """One of them, seen from outside."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, log: Path) -> None:
        self.port = port
        self._process = process
        self._log = log

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def resident_kib(self) -> int:
        return self._status("VmRSS")

    def peak_kib(self) -> int:
        """Return the most it had since the peak was cleared."""
        return self._status("VmHWM")

    def clear_peak(self) -> None:
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(rf"{name}:\s+(\d+)", status)[0])

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    async def calls(self) -> str:
        """End it, and return what it has called."""
        self._process.kill()
        printed, _ = await self._process.communicate()
        return printed.decode()


@asynccontextmanager
async def status_process(
    directory: Path, *, admin_port: int, envoy_port: int, application_port: int
) -> AsyncIterator[Running]:
    """Run one until the block is left; its log is in the directory."""
    ports = map(str, (admin_port, envoy_port, application_port))
    with (directory / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, *ports, SECRET,
            stdout=asyncio.subprocess.PIPE, stderr=log,
        )  # fmt: skip
    try:
        assert process.stdout
        yield Running(process, int(await process.stdout.readline()), directory / "log")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Calls(list[str]):
    """Prints what is added."""

    def append(self, call: str) -> None:
        sys.stdout.write(f"called {call}\n")
        sys.stdout.flush()


async def main(admin_port: int, envoy_port: int, application_port: int) -> None:
    agent = Agent()
    agent.calls = Calls()
    for name in ("config", "ndsz", "certs", "drain", "syncz", "logging"):
        agent.documents[name] = lambda: {"text": SECRET}
    probes: dict[str, Probe] = {
        "/app-health/fuzz/livez": HttpProbe("/probe", application_port, timeout_seconds=0.1),
        "/app-lifecycle/fuzz/prestopz": HttpProbe("/probe", application_port, timeout_seconds=0.1),
    }
    settings = StatusSettings(
        port=0,
        admin_host="127.0.0.1",
        admin_port=admin_port,
        envoy_enabled=True,
        probes=ProbeSettings(probes),
        scrape=ScrapeSettings(envoy_port, (Target(application_port, "/metrics"),)),
    )
    async with serving(settings, agent.hooks(), agent.metrics) as port:
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(*map(int, sys.argv[1:4])))
