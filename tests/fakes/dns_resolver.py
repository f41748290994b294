"""An upstream resolver that does as it is told, and a DNS proxy to ask."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal, NamedTuple

import dns.asyncquery
import dns.message
import dns.rcode

from agent.dns.names import Entry
from agent.dns.race import Server
from agent.dns.resolv_conf import ResolvConf
from agent.dns.run import Proxy
from agent.dns.server import listening
from agent.dns.settings import DnsSettings
from agent.metrics import Metrics
from tests.fakes.dns_messages import query_wire, reply_to
from tests.fakes.dns_table import DOMAIN, NAMESPACE, SEARCH, TABLE, serialised

Over = Literal["udp", "tcp"]
LOOPBACK = "127.0.0.1"
KNOWN = "www.bing.com."
KNOWN_IP = "204.79.197.200"
#: Nobody answers there: nothing listens on the port of discard.
DEAD = Server(LOOPBACK, 9)


#: Instead of a reply: the end of the connection.
HANG_UP = b"hang up"


class Asked(NamedTuple):
    """A query as it arrived at a resolver."""

    wire: bytes
    peer: tuple[str, int]
    over: Over

    @property
    def name(self) -> str:
        return dns.message.from_wire(self.wire, keyring=False).question[0].name.to_text()


#: Returns the replies, in order; it may wait before it does.
Behaviour = Callable[[Asked], Awaitable[Sequence[bytes]]]


def known(asked: Asked, *answers: str) -> bytes:
    """Return the address of www.bing.com, or that there is no such name."""
    if asked.name.lower() != KNOWN:
        return reply_to(asked.wire, rcode=dns.rcode.NXDOMAIN).to_wire()
    return reply_to(asked.wire, *(answers or (f"60 A {KNOWN_IP}",))).to_wire(max_size=65535)


async def honest(asked: Asked) -> Sequence[bytes]:
    return [known(asked)]


async def silent(_: Asked) -> Sequence[bytes]:
    return []


async def failing(asked: Asked) -> Sequence[bytes]:
    return [reply_to(asked.wire, rcode=dns.rcode.SERVFAIL).to_wire()]


async def refusing(asked: Asked) -> Sequence[bytes]:
    return [reply_to(asked.wire, rcode=dns.rcode.REFUSED).to_wire()]


async def many(asked: Asked) -> Sequence[bytes]:
    """Return 400 addresses, whatever the client takes."""
    return [known(asked, *(f"60 A 10.0.{n // 256}.{n % 256}" for n in range(400)))]


class Resolver(asyncio.DatagramProtocol):
    """A resolver; `asked` has what it was asked."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.asked: list[Asked] = []
        self.server = DEAD
        self._behaviour = behaviour
        self._tasks: set[asyncio.Task[None]] = set()
        self._udp: asyncio.DatagramTransport | None = None

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        while True:
            tcp = await asyncio.start_server(self._connected, LOOPBACK, 0)
            port = tcp.sockets[0].getsockname()[1]
            try:
                self._udp, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                    lambda: self, local_addr=(LOOPBACK, port)
                )
            except OSError:  # free for one transport, but not for the other
                tcp.close()
            else:
                break
        self.server = Server(LOOPBACK, port)
        try:
            yield
        finally:
            self._udp.close()
            tcp.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def datagram_received(self, data: bytes, peer: tuple[str, int]) -> None:
        self._start(self._answer_udp(Asked(data, peer, "udp")))

    async def _answer_udp(self, asked: Asked) -> None:
        self.asked.append(asked)
        assert self._udp
        for reply in await self._behaviour(asked):
            self._udp.sendto(reply, asked.peer)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._start(self._answer_tcp(reader, writer))

    async def _answer_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                size = int.from_bytes(await reader.readexactly(2), "big")
                wire = await reader.readexactly(size)
                asked = Asked(wire, writer.get_extra_info("peername")[:2], "tcp")
                self.asked.append(asked)
                for reply in await self._behaviour(asked):
                    if reply == HANG_UP:
                        return
                    writer.write(len(reply).to_bytes(2, "big") + reply)


@contextlib.asynccontextmanager
async def resolver(behaviour: Behaviour = honest) -> AsyncIterator[Resolver]:
    """Run a resolver on the loopback."""
    made = Resolver(behaviour)
    async with made.listening():
        yield made


class Client:
    """A DNS proxy, and how to ask it."""

    def __init__(self, proxy: Proxy, own: Sequence[Server], metrics: Metrics) -> None:
        self.proxy = proxy
        self.own = own
        self.port = own[0].port
        self.metrics = metrics

    def count(self, name: str) -> float:
        """Return the value of a counter, 0 if nothing was counted."""
        lines = (line.split() for line in self.metrics.render().splitlines())
        return next((float(line[1]) for line in lines if line[0] == f"istio_agent_{name}"), 0)

    async def ask(
        self,
        name: str,
        rdtype: str = "A",
        over: Over = "udp",
        *,
        host: str = LOOPBACK,
        **options: Any,  # noqa: ANN401 - of dns.message.make_query
    ) -> dns.message.Message:
        """Return the reply; what was sent over UDP must fit what the client takes."""
        wire = query_wire(name, rdtype, **options)
        query = dns.message.from_wire(wire, keyring=False)
        query.request_payload = 65535  # what is sent may be longer than what is taken
        if over == "tcp":
            return await dns.asyncquery.tcp(query, host, timeout=10, port=self.port)
        return await dns.asyncquery.udp(query, host, timeout=10, port=self.port)


@contextlib.asynccontextmanager
async def dns_proxy(
    *upstream: Server,
    table: Sequence[Entry] | None = TABLE,
    search: str = SEARCH,
    host: str = "localhost",
    **settings: Any,  # noqa: ANN401 - of DnsSettings
) -> AsyncIterator[Client]:
    """Run a DNS proxy with these upstream resolvers; its port is any."""
    metrics = Metrics()
    branch = DnsSettings(enabled=True, namespace=NAMESPACE, domain=DOMAIN, **settings)
    proxy = Proxy(branch, metrics)
    async with listening(host, 0, proxy.reply) as own:
        proxy.use(ResolvConf(tuple(upstream), search))
        if table is not None:
            await proxy.replace(serialised(table))
        yield Client(proxy, own, metrics)
