"""Wasm modules as the agent has them: the subject at work, with its process that fetches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from agent.metrics import Metrics
from agent.wasm.cache import Key, Want
from agent.wasm.convert import Failure
from agent.wasm.process import Fetching
from agent.wasm.run import Conversion, Modules
from agent.wasm.settings import FetchSettings, WasmSettings
from agent.xds.discovery import Kind


class Bench(NamedTuple):
    """What a test has in hand."""

    modules: Modules
    conversion: Conversion
    metrics: Metrics
    fetching: Fetching

    async def path(self, want: Want) -> Path:
        """Return where a module is that must be had."""
        key = await self.modules.get(want)
        assert isinstance(key, Key), key
        return Path(self.modules.path(key))

    async def failure(self, want: Want) -> str:
        """Return why a module is not had."""
        failure = await self.modules.get(want)
        assert isinstance(failure, Failure)
        return failure.reason

    async def convert(self, kind: Kind, raw: bytes) -> bytes:
        return await self.conversion.convert(raw, delta=kind is Kind.DELTA)

    def metric(self, name: str, **labels: str) -> float:
        """Return a metric, 0 where there is none."""
        text = ",".join(f'{key}="{value}"' for key, value in labels.items())
        wanted = f"istio_agent_wasm_{name}" + (f"{{{text}}}" if text else "")
        for line in self.metrics.render().splitlines():
            found, _, value = line.rpartition(" ")
            if found == wanted:
                return float(value)
        return 0


@asynccontextmanager
async def modules(directory: Path, **settings: Any) -> AsyncIterator[Bench]:  # noqa: ANN401 - of any field
    """Run the subject; settings are those of WasmSettings and FetchSettings."""
    fetch = FetchSettings(str(directory))
    fetch = fetch._replace(
        **{name: settings.pop(name) for name in FetchSettings._fields if name in settings}
    )
    chosen = WasmSettings(fetch=fetch, **settings)
    metrics = Metrics()
    tasks: set[asyncio.Task[Any]] = set()

    def spawn(coroutine: Any) -> asyncio.Task[Any]:  # noqa: ANN401 - any coroutine
        task = asyncio.get_running_loop().create_task(coroutine)
        tasks.add(task)
        return task

    fetching = Fetching(fetch, spawn, idle_seconds=0.01)
    had = Modules(chosen, metrics, fetching, spawn)
    try:
        conversion = Conversion(had, fetching, metrics, keep_last=chosen.keep_last)
        yield Bench(had, conversion, metrics, fetching)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
