"""50,000 arbitrary packets over each transport: no crash, no amplification."""

import asyncio
import random
import socket
from collections.abc import Iterator
from typing import Any

import dns.edns
import dns.message
import pytest

from agent.dns.messages.query import Query, read_query
from tests.fakes.dns_messages import EXPLAINED, addresses, query_wire, reply_to
from tests.fakes.dns_resolver import LOOPBACK, Client, dns_proxy

PACKETS = 50_000
BATCH = 40
#: The id of a query that is answered when all before it are done with.
LAST = 65535
COOKIE = dns.edns.GenericOption(dns.edns.OptionType.COOKIE, bytes(8))
SEEDS = (
    query_wire("productpage.ns1"),
    query_wire("details.ns2.svc.cluster.remote", use_edns=0, payload=4096, want_dnssec=True),
    query_wire("a.b.wildcard.ns1.svc.cluster.local", "AAAA", use_edns=0, options=[COOKIE]),
    query_wire("www.bing.com", "HTTPS", use_edns=0, options=[EXPLAINED]),
    reply_to(query_wire("www.bing.com"), "60 A 1.2.3.4", "60 CNAME a.b.").to_wire(),
)


def packets(rng: random.Random) -> Iterator[bytes]:
    """Yield bytes of all kinds: arbitrary, with a header that is right, queries with damage."""
    while True:
        kind = rng.randrange(4)
        if kind == 0:
            yield rng.randbytes(rng.randrange(600))
        elif kind == 1:
            counts = bytes(rng.choice((0, 0, 1, 2)) if place % 2 else 0 for place in range(8))
            flags = rng.choice((b"\1\0", b"\0\0", b"\x28\0", b"\x81\x80"))
            yield b"\0\0" + flags + counts + rng.randbytes(rng.randrange(80))
        else:
            wire = bytearray(rng.choice(SEEDS))
            for _ in range(rng.randrange(kind * 2)):
                start = rng.randrange(len(wire) + 1)
                wire[start : start + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
            yield bytes(wire)


def numbered(rng: random.Random) -> Iterator[dict[int, bytes]]:
    """Yield batches of packets by their ids, none of which is used again soon."""
    source = packets(rng)
    for first in range(0, PACKETS, BATCH):
        numbers = [number % LAST for number in range(first, first + BATCH)]
        yield {number: number.to_bytes(2, "big") + next(source)[2:] for number in numbers}


def check(sent: dict[int, bytes], reply: bytes) -> None:
    packet = sent[int.from_bytes(reply[:2], "big")]
    if not isinstance(read_query(packet), Query):
        assert len(reply) <= len(packet)
    assert reply[2] & 0x80


@pytest.fixture
def complaints() -> Iterator[list[dict[str, Any]]]:
    """What asyncio has to say of exceptions that nobody caught."""
    found: list[dict[str, Any]] = []
    yield found
    assert found == []


@pytest.mark.slow
async def test_datagrams(
    complaints: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    rng = random.Random(8)  # noqa: S311 - the same in each run
    sent: dict[int, bytes] = {}
    last = query_wire("productpage.", id=LAST)
    async with dns_proxy() as client:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            sock.connect((LOOPBACK, client.port))
            for batch in numbered(rng):
                sent |= batch
                for packet in (*batch.values(), last):
                    sock.send(packet)
                while (reply := await loop.sock_recv(sock, 65535))[:2] != last[:2]:
                    check(sent, reply)
        await still_answers(client)
    assert "could not be handled" not in caplog.text


@pytest.mark.slow
async def test_connections(
    complaints: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    rng = random.Random(9)  # noqa: S311 - the same in each run
    async with dns_proxy() as client:
        for sent in numbered(rng):
            reader, writer = await asyncio.open_connection(LOOPBACK, client.port)
            for packet in sent.values():
                writer.write(len(packet).to_bytes(2, "big") + packet)
            writer.write(rng.randbytes(rng.randrange(4)))
            writer.write_eof()
            received = await reader.read()
            while received:
                size = int.from_bytes(received[:2], "big")
                check(sent, received[2 : 2 + size])
                received = received[2 + size :]
            writer.close()
        await still_answers(client)
    assert "could not be handled" not in caplog.text


async def still_answers(client: Client) -> None:
    assert addresses(await client.ask("productpage.")) == ["9.9.9.9"]
    assert addresses(await client.ask("productpage.", over="tcp")) == ["9.9.9.9"]
