"""One task group that wires the subjects: status, xds and Envoy's life.

Envoy is already there, held at the gate (process.py). The order below is the order of opening;
closing is its reverse, so the status server answers to the very end.

Source: performance.md, recommended start sequence.
"""

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

from agent import log as log_output
from agent.errors import EnvoyError
from agent.lifecycle.client import Admin
from agent.lifecycle.process import Envoy
from agent.lifecycle.run import LifecycleSettings, Supervisor
from agent.metrics import Metrics
from agent.settings import Settings
from agent.status import run as status
from agent.xds import run as xds
from bootstrap.files import Gate

log = logging.getLogger(__name__)

#: Envoy needs some 40 ms to get to the gate; it is looked for this often meanwhile.
GATE_LOOK_SECONDS: Final = 0.001
#: One that is not there by then hangs, or waits for a disk that does.
GATE_SECONDS: Final = 60.0


def run(
    settings: Settings,
    envoy: Envoy,
    gate: Gate | None,
    described: Sequence[str],
    mark: Callable[[str], None],
) -> int:
    """Run the agent around an Envoy held at the gate; return the exit code.

    Args:
        settings: the whole tree.
        envoy: the process that waits for its configuration.
        gate: where it waits; None if it starts from a file of the user's own.
        described: lines that begin the log.
        mark: told of each phase of the start.
    """
    log_output.set_up(settings.log)
    for line in described:
        log.info("%s", line)
    mark("imports")
    try:
        return asyncio.run(_run(settings, envoy, gate, mark))
    finally:
        log_output.flush()


async def _run(
    settings: Settings, envoy: Envoy, gate: Gate | None, mark: Callable[[str], None]
) -> int:
    metrics = Metrics()
    admin = Admin(settings.admin_host, settings.node.proxy_config.proxy_admin_port)
    supervisor = Supervisor(LifecycleSettings(admin, settings.drain_target, settings.drain), envoy)
    async with AsyncExitStack() as stack:
        details: list[Callable[[], str | None]] = []
        hooks = status.Hooks(
            terminating=supervisor.terminating,
            checks=(),
            details=details,
            drain=supervisor.drain,
            quit=supervisor.quit,
        )
        if settings.status.port:
            await stack.enter_async_context(status.serving(settings.status, hooks, metrics))
        relay = await stack.enter_async_context(xds.serving(settings.xds, count=metrics.count))
        details.append(relay.problem)
        mark("listening")
        if gate:
            await _open(gate, envoy)
            mark("gate")
        gc.enable()
        gc.freeze()
        return await supervisor.run()
    raise AssertionError("unreachable: nothing on the stack swallows exceptions")


async def _open(gate: Gate, envoy: Envoy) -> None:
    """Let Envoy read its configuration, once it has come for it."""
    try:
        async with asyncio.timeout(GATE_SECONDS):
            while not gate.open():  # nothing tells of a reader's arrival at a FIFO
                if envoy.has_exited():
                    raise EnvoyError("Envoy died before it had read its configuration")
                await asyncio.sleep(GATE_LOOK_SECONDS)
            await _write(gate)
    except TimeoutError:
        raise EnvoyError(
            f"Envoy did not come for its configuration within {GATE_SECONDS:g} seconds"
        ) from None


async def _write(gate: Gate) -> None:
    loop = asyncio.get_running_loop()
    while not gate.write():
        writable = asyncio.Event()
        loop.add_writer(gate.fileno(), writable.set)
        try:
            await writable.wait()
        finally:
            loop.remove_writer(gate.fileno())
