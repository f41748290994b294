"""A cluster's nameserver for tests: the addresses of names, over UDP, and that there are no others.

It needs no library: of a query it reads the first question, and gives that back with an answer.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final

HEAD: Final = struct.Struct(">HHHHHH")
#: A response, authoritative, recursion desired and available. RFC 1035, section 4.1.1.
ANSWERED: Final = 0x8580
NXDOMAIN: Final = 3
#: A and AAAA: the type of the addresses of an IP version.
TYPES: Final = {4: 1, 6: 28}
#: The name of the question, a type, class IN, seconds, the length of an address.
ANSWER: Final = struct.Struct(">HHHIH")
TTL_SECONDS: Final = 5
#: Addresses by name.
Names = Mapping[str, Sequence[str]]


class ClusterDns:
    """A nameserver."""

    def __init__(self, names: Names) -> None:
        self.names = dict(names)
        self.knows_nothing_for: set[str] = set()  #: addresses of clients

    def answer(self, query: bytes, client: str) -> bytes:
        return answer(query, {} if client in self.knows_nothing_for else self.names)


class Listener(asyncio.DatagramProtocol):
    """One socket of a nameserver."""

    def __init__(self, server: ClusterDns) -> None:
        self._server = server
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, peer: tuple[str, int]) -> None:
        self._transport.sendto(self._server.answer(data, peer[0]), peer)


def answer(query: bytes, names: Names) -> bytes:
    """Return the reply to a query: addresses of its name, or that there is none."""
    labels, end = [], HEAD.size
    while length := query[end]:
        labels.append(query[end + 1 : end + 1 + length].decode())
        end += 1 + length
    kind = int.from_bytes(query[end + 1 : end + 3], "big")
    known = [ip_address(each) for each in names.get(".".join(labels).lower(), ())]
    found = [each.packed for each in known if TYPES[each.version] == kind]
    flags = ANSWERED if known else ANSWERED | NXDOMAIN
    number = int.from_bytes(query[:2], "big")
    head = HEAD.pack(number, flags, 1, len(found), 0, 0)
    records = (ANSWER.pack(0xC00C, kind, 1, TTL_SECONDS, len(each)) + each for each in found)
    return head + query[HEAD.size : end + 5] + b"".join(records)


@contextlib.asynccontextmanager
async def cluster_dns(names: Names, *addresses: str) -> AsyncIterator[ClusterDns]:
    """Serve on port 53 of addresses."""
    made = ClusterDns(names)
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for address in addresses:
            transport, _ = await loop.create_datagram_endpoint(
                lambda: Listener(made), local_addr=(address, 53)
            )
            stack.callback(transport.close)
        yield made
