"""One task group that wires the subjects: status, xds and Envoy's life.

Envoy is already there, held at the gate (process.py). The order below is the order of opening;
closing is its reverse, so the status server answers to the very end.

Source: performance.md, recommended start sequence.
"""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import TYPE_CHECKING, Final

from agent import log as log_output
from agent.errors import EnvoyError
from agent.files import GrpcBootstrap, read_oom_kills
from agent.identity import run as identity
from agent.identity.process import keep_to_itself
from agent.lifecycle.client import Admin
from agent.lifecycle.plan import draw
from agent.lifecycle.process import Envoy
from agent.lifecycle.run import LifecycleSettings, Supervisor, Surroundings
from agent.metrics import Family, Metrics
from agent.process import ENDINGS, Start, build
from agent.settings import Settings
from agent.status import run as status
from agent.status.settings import StatusSettings
from agent.version import version_line
from agent.wasm.settings import WasmSettings
from agent.xds import run as xds
from agent.xds.discovery import Kind, read_response
from agent.xds.resources import EXTENSION, NAME_TABLE, PROXY_CONFIG
from bootstrap.files import Gate, write_atomic
from bootstrap.grpc import grpc_bootstrap
from bootstrap.node import Node

if TYPE_CHECKING:
    from agent.dns.run import Proxy
    from agent.wasm.run import Conversion

log = logging.getLogger(__name__)

#: Envoy needs some 40 ms to get to the gate; it is looked for this often meanwhile.
GATE_LOOK_SECONDS: Final = 0.001
#: One that is not there by then hangs, or waits for a disk that does.
GATE_SECONDS: Final = 60.0
#: The answer of a cloud that the user has named is worth that much.
CLOUD_SECONDS: Final = 1.0
RESTARTS: Final = "envoy_restarts_total"


def run(start: Start) -> int:
    """Run the agent around an Envoy held at the gate; return the exit code."""
    log_output.set_up(start.settings.log)
    for line in start.described:
        log.info("%s", line)
    for line in start.notes:
        log.warning("%s", line)
    start.mark("imports")
    try:
        return asyncio.run(_run(start))
    finally:
        log_output.flush()


async def _run(start: Start) -> int:
    """Serve and supervise until Envoy is gone; whoever is told to end is told so from the start."""
    metrics = Metrics()
    supervisor = _supervisor(start, metrics)
    try:
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(_serve(start, supervisor, metrics))
            code = await supervisor.run()
            for number in ENDINGS:  # the exit code is known; a late one would take its place
                asyncio.get_running_loop().remove_signal_handler(number)  # else its end does
                signal.signal(number, signal.SIG_IGN)
            serving.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from None
    return code


def _first(error: BaseException) -> BaseException:
    """Return the failure that stopped the others, however many groups it was in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _supervisor(start: Start, metrics: Metrics) -> Supervisor:
    settings = start.settings
    metrics.describe(RESTARTS, Family("counter", "The total number of restarts of Envoy."))
    return Supervisor(
        LifecycleSettings(
            admin=Admin(settings.admin_host, settings.node.proxy_config.proxy_admin_port),
            drain_target=settings.drain_target,
            plan=draw(settings.plan, _chance),
            own_listeners=settings.own_listeners,
            own_ports=tuple(settings.ports),
            restarts=settings.restarts,
        ),
        start.envoy,
        Surroundings(
            start=lambda: start.launch(log.warning),
            restarted=lambda: metrics.count(RESTARTS),
            oom_kills=read_oom_kills,
            rng=_chance,
        ),
    )


def _chance() -> float:
    """Return a random number in [0, 1); the module `random` would cost 3 ms."""
    return int.from_bytes(os.urandom(6), "big") / 2**48


async def _serve(start: Start, supervisor: Supervisor, metrics: Metrics) -> None:
    """Open everything, let Envoy go, and serve until cancelled."""
    settings = start.settings
    async with AsyncExitStack() as stack:
        details: dict[str, Callable[[], str | None]] = {}
        levels = log_output.Levels(settings.log, asyncio.get_running_loop().call_later)
        documents: dict[str, Callable[[], object]] = {
            "config": lambda: _config(settings),
            "drain": supervisor.document,
            "logging": levels.document,
            "pod": lambda: {"node": start.node.id, "version": version_line()},
        }
        checks = {"envoy": supervisor.problem}
        if settings.grpc.path:
            checks["grpc_bootstrap"] = GrpcBootstrap(settings.grpc.path).problem
        hooks = status.Hooks(
            terminating=supervisor.terminating,
            checks=checks,
            details=details,
            drain=supervisor.drain,
            quit=supervisor.quit,
            set_log_levels=levels.change,
            starts=supervisor.starts,
            documents=documents,
        )
        if settings.status.port:
            await stack.enter_async_context(status.serving(settings.status, hooks, metrics))
        names = await _dns(settings, metrics, stack)
        deliver: dict[str, xds.Consume] = {}
        workload = await stack.enter_async_context(_identity(start, metrics))
        metrics.before_render(workload.collect)
        details["certificates"] = workload.problem
        documents["certs"] = workload.document
        if names:
            checks["dns"] = names.problem
            documents |= {"ndsz": names.document, "dns": names.summary}
            deliver[NAME_TABLE] = names.replace
        if settings.identity.bundle_over_xds:
            deliver[PROXY_CONFIG] = workload.take_proxy_config
        relay = await stack.enter_async_context(
            xds.serving(
                settings.xds,
                count=metrics.count,
                observe=metrics.observe,
                deliver=deliver,
                convert=await _wasm(settings.wasm, metrics, stack),
                subscribe=tuple(deliver),
                rng=_chance,
            )
        )
        details["xds"] = relay.problem
        documents |= {
            "control_plane": relay.connection,
            "passed": relay.passed,
            "syncz": relay.document,
            "syncz/watch": relay.watch,
        }
        start.mark("listening")
        node = await _located(start)
        if start.gate and start.envoy:
            await _open(start.gate, start.envoy)
            start.mark("gate")
        _warm_up(relay, names)
        keep_to_itself()
        supervisor.started()
        await _check_application(settings.status, hooks, details, relay.report_health, stack)
        _write_grpc_bootstrap(settings, node)
        gc.enable()
        gc.freeze()
        await asyncio.Event().wait()


def _config(settings: Settings) -> dict[str, object]:
    """Return, as JSON has it, what this is and the settings that it has."""
    from agent.masking import describe  # noqa: PLC0415 - for hardly anyone

    return {"version": version_line(), "settings": describe(settings)}


def _identity(start: Start, metrics: Metrics) -> AbstractAsyncContextManager[identity.Identity]:
    """Return what serves the workload's secrets to Envoy."""
    return identity.serving(
        start.settings.identity,
        start.mode,
        recorder=identity.Recorder(metrics.count, metrics.set, metrics.observe),
        rng=_chance,
        first=start.first_key,
    )


async def _dns(settings: Settings, metrics: Metrics, stack: AsyncExitStack) -> "Proxy | None":
    """Return the DNS proxy, which listens; none where DNS is not captured."""
    if not settings.dns.enabled:
        return None
    from agent.dns.run import serving  # noqa: PLC0415 - few pods need it

    return await stack.enter_async_context(serving(settings.dns, metrics))


async def _wasm(
    settings: WasmSettings, metrics: Metrics, stack: AsyncExitStack
) -> dict[str, xds.Convert]:
    """Return what has Envoy find Wasm modules in files, loaded when there is the first extension.

    What it fetches outlives Envoy's stream, but not the stack.
    """
    if not settings.enabled:
        return {}
    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    conversion: Conversion | None = None

    async def convert(kind: Kind, raw: bytes) -> bytes:
        nonlocal conversion
        if conversion is None:
            if not read_response(raw).resource_count:
                return raw
            from agent.wasm.run import make_conversion  # noqa: PLC0415 - few pods have extensions

            conversion = make_conversion(settings, metrics, tasks.create_task)
        return await conversion.convert(raw, delta=kind is Kind.DELTA)

    return {EXTENSION: convert}


def _warm_up(relay: xds.Relay, names: "Proxy | None") -> None:
    """Import what is needed soon, while Envoy reads its configuration."""
    relay.warm_up()
    if names:
        names.warm_up()


async def _check_application(
    settings: StatusSettings,
    hooks: status.Hooks,
    details: dict[str, Callable[[], str | None]],
    report: Callable[[str | None], None],
    stack: AsyncExitStack,
) -> None:
    """Have the application's health be reported, where the control plane cannot see it itself."""
    if settings.health is None:
        return
    from agent.status.application.run import checking  # noqa: PLC0415 - virtual machines alone

    checker = checking(settings, settings.health, hooks, report)
    details["application"] = (await stack.enter_async_context(checker)).problem


async def _located(start: Start) -> Node:
    """Return the node with what the cloud has said of it by now; Envoy will read the same."""
    detection = start.detection
    if detection.is_certain and detection.fileno() >= 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOUD_SECONDS):
                while not detection.read():
                    await _readable(detection.fileno())
    found = detection.finish()
    if found is None:
        return start.node
    log.info("cloud metadata=%s locality=%s labels=%s", *map(dict, found))
    inputs = start.settings.node._replace(
        platform=found.metadata,
        platform_locality=found.locality,
        instance_labels=found.labels,
    )
    node, text = build(start.settings._replace(node=inputs), [])  # its warnings were told
    if start.gate:
        start.gate.replace(text)
    return node


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


def _write_grpc_bootstrap(settings: Settings, node: Node) -> None:
    """Write what applications start from that speak xDS themselves, now that the relay listens."""
    path, certificates = settings.grpc
    if path:
        config_path = settings.node.proxy_config.config_path
        text = grpc_bootstrap(node, config_path, certificates=certificates)
        write_atomic(path, text, mode=0o644, named_by="GRPC_XDS_BOOTSTRAP")


async def _open(gate: Gate, envoy: Envoy) -> None:
    """Let Envoy read its configuration, once it has come for it.

    One that has died will not come; the supervisor says so.
    """
    try:
        async with asyncio.timeout(GATE_SECONDS):
            while not gate.open():  # nothing tells of a reader's arrival at a FIFO
                if envoy.has_exited():
                    return
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
