"""Answers queries: from the table in force, from the cache, or from upstream.

Source: xds-identity-dns.md sections 8.5 and 8.6.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import dns.rcode

from agent.dns.messages.answer import Forward, Reply, answer, render
from agent.dns.messages.cache import Cache
from agent.dns.messages.client import CHANCE, Outcome, Resolvers
from agent.dns.messages.explain import annotated, as_sent
from agent.dns.messages.query import MOST_BYTES, Query, read_query
from agent.dns.messages.upstream import fit
from agent.dns.names import Names
from agent.dns.race import Address, Transport
from agent.dns.resolv_conf import ResolvConf
from agent.dns.settings import DnsSettings
from agent.metrics import Family, Metrics

log = logging.getLogger(__name__)

REQUESTS: Final = "dns_requests_total"
FORWARDED: Final = "dns_upstream_requests_total"
FAILED: Final = "dns_upstream_failures_total"
SECONDS: Final = "dns_upstream_request_duration_seconds"
FAMILIES: Final = {
    REQUESTS: Family("counter", "The total number of DNS queries."),
    FORWARDED: Family("counter", "The total number of DNS queries asked upstream."),
    FAILED: Family("counter", "The total number of DNS queries that upstream gave no answer to."),
    SECONDS: Family(
        "histogram", "Seconds that upstream took to answer.", (0.001, 0.005, 0.01, 0.1, 1.0, 5.0)
    ),
}
#: Of replies ready to be given again. Beyond it all are made anew.
MAX_READY_BYTES: Final = 1_000_000
#: Queries upstream at once, each with a socket. More get SERVFAIL.
MAX_FORWARDED: Final = 512


class Answering:
    """Answers queries."""

    def __init__(self, settings: DnsSettings, metrics: Metrics) -> None:
        """Begin without a table and without resolvers."""
        self._count = metrics.count
        self._observe = metrics.observe
        for name, family in FAMILIES.items():
            metrics.describe(name, family)
        self._names: Names | None = None
        self._conf = ResolvConf()
        self._ready: dict[bytes, Reply] = {}
        self._ready_bytes = 0
        self._cache = Cache() if settings.cache else None
        self._resolvers = Resolvers(
            parallel=settings.parallel, total_seconds=settings.timeout_seconds
        )
        self._under_way = 0
        self._warned_of_loop = False

    def change(self, names: Names | None, conf: ResolvConf) -> None:
        """Answer from this table, and ask these resolvers, from now on.

        Args:
            names: the table; none to answer every query with SERVFAIL.
            conf: the resolvers.
        """
        self._names = names
        self._forget()
        if conf != self._conf:
            self._conf = conf
            self._resolvers.use(conf.servers)
            if self._cache:
                self._cache.clear()

    def reply(
        self, wire: bytes, peer: Address, over: Transport
    ) -> bytes | Coroutine[Any, Any, bytes] | None:
        """Return the reply to a query, or none at all, or what to wait for."""
        ready = self._ready.get(wire[2:]) if over == "udp" else None
        if ready is not None:
            self._count(REQUESTS)
            return wire[:2] + ready.deal(CHANCE.random)
        query = read_query(wire)
        if not isinstance(query, Query):
            return query
        self._count(REQUESTS)
        most_bytes = query.payload if over == "udp" else MOST_BYTES
        found = self._look_up(query, most_bytes)
        if isinstance(found, Reply):
            if over == "udp" and not query.explain:
                self._keep(query, found)
            return wire[:2] + found.deal(CHANCE.random)
        if self._resolvers.is_own(peer):
            return self._break_loop(query, most_bytes)
        return self._forward(query, over, most_bytes, found.why)

    def _look_up(self, query: Query, most_bytes: int) -> Reply | Forward:
        if self._names is not None:
            return answer(query, self._names, most_bytes=most_bytes)
        notes = ["there is no name table yet"] if query.explain else ()
        return render(query, dns.rcode.SERVFAIL, most_bytes=most_bytes, notes=notes)

    def _keep(self, query: Query, reply: Reply) -> None:
        """Give the same reply to the next one who asks the same."""
        self._ready_bytes += len(query.wire) + reply.size_bytes
        if self._ready_bytes > MAX_READY_BYTES:
            self._forget()
        else:
            self._ready[query.tail] = reply

    def _forget(self) -> None:
        self._ready.clear()
        self._ready_bytes = 0

    def _break_loop(self, query: Query, most_bytes: int) -> bytes:
        """Return SERVFAIL to ourselves: a query to a resolver came back to us."""
        if not self._warned_of_loop:
            self._warned_of_loop = True
            log.error(
                "a query of our own to a nameserver came back to us: capture must exempt the "
                "agent's user id, and resolv.conf must not name the agent query=%r",
                query.about,
            )
        refusal = render(query, dns.rcode.SERVFAIL, most_bytes=most_bytes)
        return query.wire[:2] + refusal.deal(CHANCE.random)

    async def _forward(self, query: Query, over: Transport, most_bytes: int, why: str) -> bytes:
        """Return the reply of an upstream resolver, or SERVFAIL."""
        sent = as_sent(query) if query.explain else query
        reply, notes = await self._find(sent, over)
        if reply is None:
            failure = render(query, dns.rcode.SERVFAIL, most_bytes=most_bytes)
            reply = failure.deal(CHANCE.random)
        else:
            reply = reply[2:]
        reply = query.wire[:2] + reply
        if query.explain:
            reply = annotated(reply, (why, *notes))
        return fit(query, reply, most_bytes)

    async def _find(self, query: Query, over: Transport) -> tuple[bytes | None, Sequence[str]]:
        """Return a reply, perhaps a kept one, with where it comes from."""
        now = asyncio.get_running_loop().time()
        if self._cache and (hit := self._cache.get(query, now)):
            reply, kept = hit
            note = (
                f"from the cache: {kept.server} said so {now - kept.since:.0f} s ago, "
                f"good for {kept.until - now:.0f} s"
            )
            return reply, (note,)
        outcome = await self._ask(query, over)
        if outcome.server is None or outcome.reply is None:
            self._count(FAILED)
            log.debug("! unanswered query=%r reasons=%r", query.about, outcome.notes)
            return outcome.reply, (*outcome.notes, "no nameserver has a good answer")
        if self._cache:
            self._cache.put(query, outcome.reply, str(outcome.server), now)
        return outcome.reply, (*outcome.notes, f"answered by nameserver {outcome.server}")

    async def _ask(self, query: Query, over: Transport) -> Outcome:
        self._count(FORWARDED)
        if self._under_way >= MAX_FORWARDED:
            return Outcome(None, None, (f"{MAX_FORWARDED} queries are under way already",))
        clock = asyncio.get_running_loop().time
        started = clock()
        self._under_way += 1
        try:
            return await self._resolvers.ask(query, over)
        finally:
            self._under_way -= 1
            self._observe(SECONDS, clock() - started)
