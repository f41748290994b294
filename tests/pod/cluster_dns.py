"""A cluster's DNS for tests: the addresses of names, over UDP, and that there are no others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype

from tests.fakes.dns_messages import reply_to


class ClusterDns(asyncio.DatagramProtocol):
    """A nameserver."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = dict(names)
        self.knows_nothing_for: set[str] = set()  #: addresses of clients
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, peer: tuple[str, int]) -> None:
        asked = dns.message.from_wire(data).question[0]
        address = self.names.get(asked.name.to_text(omit_final_dot=True).lower())
        if address is None or peer[0] in self.knows_nothing_for:
            reply = reply_to(data, rcode=dns.rcode.NXDOMAIN, flags=dns.flags.AA)
        elif asked.rdtype == dns.rdatatype.A:
            reply = reply_to(data, f"5 A {address}", flags=dns.flags.AA)
        else:
            reply = reply_to(data, flags=dns.flags.AA)
        self._transport.sendto(reply.to_wire(), peer)


@contextlib.asynccontextmanager
async def cluster_dns(address: str, names: Mapping[str, str]) -> AsyncIterator[ClusterDns]:
    """Serve on port 53 of an address."""
    made = ClusterDns(names)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: made, local_addr=(address, 53))
    try:
        yield made
    finally:
        transport.close()
