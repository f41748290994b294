"""The DNS proxy: listens at once, answers from the table in force, follows resolv.conf.

What knows messages is loaded when it is first needed, or told to: Envoy need not wait for it.

Source: xds-identity-dns.md sections 8.1 to 8.3; status-lifecycle.md sections 3.8 and 6.6;
performance.md, rule 5.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from agent.dns.files import find_resolv_conf, follow, read_resolv_conf
from agent.dns.names import Names, make_place
from agent.dns.race import Address, Transport
from agent.dns.resolv_conf import ResolvConf, parse_resolv_conf, without
from agent.dns.server import listening
from agent.dns.settings import DnsSettings
from agent.metrics import Metrics

if TYPE_CHECKING:
    from agent.dns.messages.run import Answering

log = logging.getLogger(__name__)

NOT_READY: Final = "istio DNS capture is turned ON and DNS lookup table is not ready yet"
MESSAGES: Final = "agent.dns.messages.run"


class Proxy:
    """The proxy, as the rest of the agent sees it."""

    def __init__(self, settings: DnsSettings, metrics: Metrics) -> None:
        """Begin without a table, unless none will come."""
        self._settings = settings
        self._metrics = metrics
        self._place = make_place(settings.namespace, settings.domain)
        self._names: Names | None = Names(self._place, "") if settings.is_local else None
        self._waived = False  #: the pod need not wait for a table any longer
        self._conf = ResolvConf()
        self._answering: Answering | None = None

    def problem(self) -> str | None:
        """Return why the pod must not get traffic yet; none if it may."""
        return NOT_READY if self._names is None and not self._waived else None

    async def document(self) -> object | None:
        """Return the table as JSON; none if there is no table yet."""
        return None if self._names is None else await asyncio.to_thread(self._names.document)

    def summary(self) -> dict[str, object]:
        """Return, as JSON has it, how much there is to answer from; no hosts before a table."""
        return {
            "hosts": None if self._names is None else len(self._names),
            "nameservers": [str(server) for server in self._conf.servers],
        }

    def warm_up(self) -> None:
        """Load what the first query needs, beside everything else."""
        Thread(target=import_module, args=(MESSAGES,), daemon=True).start()

    async def replace(self, table: bytes | None) -> None:
        """Take a serialised NameTable, a slice at a time; it counts once all of it was read.

        Args:
            table: none for one without hosts, which a response without resources stands for (X7).

        Raises:
            ValueError: it is no NameTable; the last one stays.
        """
        names = Names(self._place, self._conf.search)
        for _ in names.load(table or b""):
            await asyncio.sleep(0)  # probes and queries in between
        log.info("name table received hosts=%d", len(names))
        self._names = names
        self._changed()

    def use(self, conf: ResolvConf) -> None:
        """Take other nameservers or another search domain; without any, those before stay."""
        if not conf.servers:
            log.warning("resolv.conf names no nameserver that is not this agent itself")
            conf = conf._replace(servers=self._conf.servers)
        log.info(
            "nameservers=%s search=%r", ",".join(map(str, conf.servers)) or "none", conf.search
        )
        self._conf = conf
        self._changed()

    def waive(self) -> None:
        """Let the pod be ready without a table; all names are asked upstream until there is one."""
        if self._names is None:
            self._waived = True
            log.warning(
                "no name table within AGENT_DNS_READY_TIMEOUT=%gs: ready without it, "
                "all names are asked upstream",
                self._settings.ready_timeout_seconds,
            )
            self._changed()

    def reply(
        self, wire: bytes, peer: Address, over: Transport
    ) -> bytes | Coroutine[Any, Any, bytes] | None:
        """Return the reply to a query, or none at all, or what to wait for."""
        if self._answering is None:
            from agent.dns.messages.run import Answering  # noqa: PLC0415 - see above

            self._answering = Answering(self._settings, self._metrics)
            self._changed()
        return self._answering.reply(wire, peer, over)

    def _changed(self) -> None:
        names = self._names
        if names is None and (self._waived or self._settings.is_resolver):
            names = Names(self._place, "")
        if names is not None:
            names.search = self._conf.search
        if self._answering is not None:
            self._answering.change(names, self._conf)


@asynccontextmanager
async def serving(settings: DnsSettings, metrics: Metrics) -> AsyncIterator[Proxy]:
    """Serve DNS until the block is left; it listens once it is entered.

    Args:
        settings: the DNS branch.
        metrics: the agent's own, to which those of DNS are added.

    Raises:
        SystemRefusedError: an address is taken, or resolv.conf cannot be read.
    """
    proxy = Proxy(settings, metrics)
    path = find_resolv_conf(is_resolver=settings.is_resolver)
    text = read_resolv_conf(path)
    async with listening(settings.host, settings.port, proxy.reply) as own:
        log.info("DNS listening addresses=%s", ",".join(map(str, own)))

        def use(text: str) -> None:
            proxy.use(without(parse_resolv_conf(text), own))

        use(text)
        async with _following(path, text, use), _waiting(settings, proxy):
            yield proxy


@asynccontextmanager
async def _following(path: Path, text: str, use: Callable[[str], None]) -> AsyncIterator[None]:
    group = asyncio.TaskGroup()
    await group.__aenter__()
    task = group.create_task(follow(path, text, use))
    try:
        yield
    finally:
        task.cancel()
        # Without the error that ends the block: it is not this task's.
        await group.__aexit__(None, None, None)


@asynccontextmanager
async def _waiting(settings: DnsSettings, proxy: Proxy) -> AsyncIterator[None]:
    """Wait for a table no longer than the settings say."""
    if not settings.ready_timeout_seconds:
        yield
        return
    loop = asyncio.get_running_loop()
    timer = loop.call_later(settings.ready_timeout_seconds, proxy.waive)
    try:
        yield
    finally:
        timer.cancel()
