"""The injector as a process: its servers, its files, its cluster, and how it ends.

SIGTERM ─► not ready, still answering: whoever sends requests learns it by and by ─► no new
connections ─► requests under way are finished ─► exit. A second signal skips the waiting.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from agent.errors import SettingsError
from agent.inject.cluster.client import ApiServer
from agent.inject.cluster.run import Contents, Follower
from agent.inject.files import Sources, load
from agent.inject.webhook.files import Certificate, Followed
from agent.inject.webhook.review import Cluster, Context, with_cluster
from agent.inject.webhook.server import (
    listening,
    make_metrics,
    monitoring_application,
    webhook_application,
)

log = logging.getLogger(__name__)

ENDINGS: Final = (signal.SIGTERM, signal.SIGINT)
#: Objects made and not freed before cycles are looked for; a review makes a tenth of that.
COLLECT_AFTER: Final = 50_000
#: What the cluster has not told by then is taken for unknown.
SETTLE_SECONDS: Final = 10.0


class InjectorSettings(NamedTuple):
    """How the injector runs."""

    sources: Sources
    certificate: str
    key: str
    host: str = ""
    port: int = 15017
    #: 0 for none.
    monitoring_port: int = 15014
    native: str = "auto"
    #: Between SIGTERM and the end of listening.
    drain_seconds: float = 5.0
    #: Of the API server; '' to go without.
    api_server: str = ""


class Injector:
    """What the servers answer by: it changes while they run."""

    def __init__(self, settings: InjectorSettings) -> None:
        """Load the configuration.

        Raises:
            SettingsError: it cannot be used.
        """
        self._settings = settings
        self.context = self._load(Cluster())
        self.is_ready = False

    def reload(self) -> None:
        """Take the configuration files as they are now; what cannot be used changes nothing."""
        try:
            self.context = self._load(self.context.cluster)
        except SettingsError as error:
            log.error("kept the old configuration reason=%r", "; ".join(error.problems))  # noqa: TRY400 - no bug of ours
        else:
            log.info("configuration loaded")

    def know(self, contents: Contents) -> None:
        """Go by what is known of the cluster from now on."""
        cluster = Cluster(
            kubelets=dict(contents["nodes"]) if "nodes" in contents else None,
            namespaces=dict(contents.get("namespaces", {})),
            proxy_configs=tuple(contents.get("proxyconfigs", {}).values()),
        )
        self.context = with_cluster(self.context, cluster)

    def _load(self, cluster: Cluster) -> Context:
        loaded = load(self._settings.sources)
        for warning in loaded.warnings:
            log.warning("%s", warning)
        context = Context(loaded.configuration, loaded.settings, self._settings.native)
        return with_cluster(context, cluster)


async def run(settings: InjectorSettings) -> None:
    """Serve until asked to stop.

    Raises:
        AgentError: a file or a port cannot be had; nothing is left running.
    """
    sources = settings.sources
    configured = Followed(sources.mesh, sources.values, sources.configuration)
    injector = Injector(settings)
    certified = Followed(settings.certificate, settings.key)
    certificate = Certificate(settings.certificate, settings.key)
    ending = _Ending()
    metrics = make_metrics()
    async with AsyncExitStack() as stack:
        webhook = webhook_application(injector, metrics)
        port, stop_listening = await stack.enter_async_context(
            listening(webhook, settings.host, settings.port, tls=certificate.context)
        )
        if settings.monitoring_port:
            monitoring = monitoring_application(injector, metrics)
            await stack.enter_async_context(
                listening(monitoring, settings.host, settings.monitoring_port)
            )
        async with asyncio.TaskGroup() as tasks:
            background = (
                tasks.create_task(_follow_cluster(injector, settings.api_server)),
                tasks.create_task(_on_change(injector.reload, configured)),
                tasks.create_task(_on_change(lambda: _renew(certificate), certified)),
            )
            log.info("listening port=%d native_sidecars=%s", port, settings.native)
            _spare_the_collector()
            await ending.first.wait()
            for task in background:  # before anything else: one of them says ready
                task.cancel()
            injector.is_ready = False
            log.info("ending drain_seconds=%g", settings.drain_seconds)
            await ending.drained(settings.drain_seconds)
            stop_listening()
    log.info("ended")


def _spare_the_collector() -> None:
    """Collect rarely: what was loaded stays, and what a review makes has no cycles."""
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


async def _follow_cluster(injector: Injector, api_server: str) -> None:
    """Follow the cluster, and say when requests may come."""
    async with asyncio.TaskGroup() as tasks:
        if api_server:
            follower = Follower(ApiServer(api_server), injector.know)
            tasks.create_task(follower.run())
            await _settled(follower)
        injector.is_ready = True
        log.info("ready")


async def _settled(follower: Follower) -> None:
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            await follower.settled.wait()
    except TimeoutError:
        log.warning("the API server has not answered waited_seconds=%g", SETTLE_SECONDS)


async def _on_change(act: Callable[[], None], files: Followed) -> None:
    async for _ in files.changes():
        act()


def _renew(certificate: Certificate) -> None:
    try:
        certificate.reload()
    except SettingsError as error:
        log.error("kept the old certificate reason=%r", str(error))  # noqa: TRY400 - no bug of ours
    else:
        log.info("certificate loaded")


class _Ending:
    """The signals that end the process."""

    def __init__(self) -> None:
        """Take the signals from now on."""
        self.first = asyncio.Event()
        self._second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in ENDINGS:
            loop.add_signal_handler(number, self._note)

    def _note(self) -> None:
        (self._second if self.first.is_set() else self.first).set()

    async def drained(self, seconds: float) -> None:
        """Return after a while, or on the second signal."""
        try:
            async with asyncio.timeout(seconds):
                await self._second.wait()
        except TimeoutError:
            return
