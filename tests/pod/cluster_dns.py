"""A cluster's nameserver for tests: the addresses of names, over UDP, and that there are no others.

It needs no library: of a query it reads the first question, and gives that back with an answer.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

HEAD: Final = struct.Struct(">HHHHHH")
#: A response, authoritative, recursion desired and available. RFC 1035, section 4.1.1.
ANSWERED: Final = 0x8580
NXDOMAIN: Final = 3
TYPE_A: Final = 1
#: The name of the question, type A, class IN, five seconds, four bytes.
ANSWER: Final = struct.Struct(">HHHIH").pack(0xC00C, TYPE_A, 1, 5, 4)


class ClusterDns(asyncio.DatagramProtocol):
    """A nameserver."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = dict(names)
        self.knows_nothing_for: set[str] = set()  #: addresses of clients
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, peer: tuple[str, int]) -> None:
        known = {} if peer[0] in self.knows_nothing_for else self.names
        self._transport.sendto(answer(data, known), peer)


def answer(query: bytes, names: Mapping[str, str]) -> bytes:
    """Return the reply to a query: an address of its name, or that there is none."""
    labels, end = [], HEAD.size
    while length := query[end]:
        labels.append(query[end + 1 : end + 1 + length].decode())
        end += 1 + length
    kind = int.from_bytes(query[end + 1 : end + 3], "big")
    address = names.get(".".join(labels).lower())
    found = ANSWER + socket.inet_aton(address) if address and kind == TYPE_A else b""
    flags = ANSWERED if address else ANSWERED | NXDOMAIN
    number = int.from_bytes(query[:2], "big")
    return HEAD.pack(number, flags, 1, bool(found), 0, 0) + query[HEAD.size : end + 5] + found


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
