"""How queries arrive: sockets, connections, limits. Source: xds-identity-dns.md section 8.2."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Sequence

import dns.edns
import dns.message
import dns.rcode
import pytest

from agent.dns.race import Address, Transport
from agent.dns.server import MAX_CONNECTIONS, MAX_QUERIES, listening
from agent.errors import SystemRefusedError
from tests.fakes.dns_messages import addresses, query_wire
from tests.fakes.dns_resolver import (
    KNOWN,
    KNOWN_IP,
    LOOPBACK,
    Asked,
    dns_proxy,
    known,
    resolver,
)


def answer(wire: bytes, _peer: Address, _over: Transport) -> bytes | None:
    return wire or None


def framed(*messages: bytes) -> bytes:
    return b"".join(len(message).to_bytes(2, "big") + message for message in messages)


async def read_message(reader: asyncio.StreamReader) -> dns.message.Message:
    size = int.from_bytes(await reader.readexactly(2), "big")
    return dns.message.from_wire(await reader.readexactly(size))


async def test_pipelined_queries_are_answered_as_they_are_ready() -> None:
    """RFC 7766, section 6.2.1.1: a slow name does not hold up the others."""
    late = asyncio.Event()

    async def slow(asked: Asked) -> Sequence[bytes]:
        await late.wait()
        return [known(asked)]

    async with resolver(slow) as upstream, dns_proxy(upstream.server) as client:
        reader, writer = await asyncio.open_connection(LOOPBACK, client.port)
        names = (KNOWN, "productpage.", KNOWN, "example.ns2.")
        queries = [query_wire(name, id=number) for number, name in enumerate(names)]
        writer.write(framed(*queries))
        local = [await read_message(reader) for _ in range(2)]
        late.set()
        upstreams = [await read_message(reader) for _ in range(2)]
        writer.close()

    assert [reply.id for reply in local] == [1, 3]
    assert {reply.id for reply in upstreams} == {0, 2}
    assert [addresses(reply) for reply in upstreams] == [[KNOWN_IP]] * 2


async def test_a_query_may_come_in_pieces() -> None:
    async with dns_proxy() as client:
        reader, writer = await asyncio.open_connection(LOOPBACK, client.port)
        for byte in framed(query_wire("productpage.")):
            writer.write(bytes([byte]))
            await writer.drain()

        assert addresses(await read_message(reader)) == ["9.9.9.9"]
        writer.close()


async def test_a_client_that_closes_its_side_gets_its_answer() -> None:
    async with resolver() as upstream, dns_proxy(upstream.server) as client:
        reader, writer = await asyncio.open_connection(LOOPBACK, client.port)
        writer.write(framed(query_wire(KNOWN)))
        writer.write_eof()

        assert addresses(await read_message(reader)) == [KNOWN_IP]
        assert await reader.read() == b""
        writer.close()


async def test_a_connection_has_a_last_query() -> None:
    async with dns_proxy() as client:
        reader, writer = await asyncio.open_connection(LOOPBACK, client.port)
        writer.write(framed(query_wire("productpage.")) * (MAX_QUERIES + 1))
        for _ in range(MAX_QUERIES):
            await read_message(reader)

        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_message(reader)
        writer.close()


async def test_there_is_an_end_to_the_number_of_connections() -> None:
    async with dns_proxy() as client, contextlib.AsyncExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            _, writer = await asyncio.open_connection(LOOPBACK, client.port)
            stack.callback(writer.close)
        reader, writer = await asyncio.open_connection(LOOPBACK, client.port)
        stack.callback(writer.close)

        assert await reader.read() == b""


async def test_rubbish_on_a_connection_is_refused_and_harms_no_other_query() -> None:
    async with dns_proxy() as client:
        reader, writer = await asyncio.open_connection(LOOPBACK, client.port)
        rubbish = bytes.fromhex("1234 0100 0001 0000 0000 0000 ff")
        writer.write(framed(b"", b"x", rubbish, query_wire("productpage.")))

        refused, reply = await read_message(reader), await read_message(reader)
        writer.close()

    assert (refused.id, refused.rcode()) == (0x1234, dns.rcode.FORMERR)
    assert addresses(reply) == ["9.9.9.9"]


async def test_a_long_datagram_is_read() -> None:
    """N11d."""
    padding = dns.edns.GenericOption(dns.edns.OptionType.PADDING, bytes(4500))
    async with dns_proxy() as client:
        reply = await client.ask("productpage.", use_edns=0, options=[padding])

    assert addresses(reply) == ["9.9.9.9"]


async def test_many_datagrams_at_once_are_answered() -> None:
    async with resolver() as upstream, dns_proxy(upstream.server) as client:
        replies = await asyncio.gather(
            *(client.ask(name) for _ in range(50) for name in ("productpage.", KNOWN))
        )

    assert {tuple(addresses(reply)) for reply in replies} == {("9.9.9.9",), (KNOWN_IP,)}


async def test_a_failure_within_is_logged_and_the_next_query_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken() -> bytes:
        raise RuntimeError("a bug")

    def failing(wire: bytes, _peer: Address, _over: Transport):  # type: ignore[no-untyped-def]  # noqa: ANN202 - either
        return broken() if wire == b"bad" else wire

    async with listening(LOOPBACK, 0, failing) as own:
        reader, writer = await asyncio.open_connection(*own[0])
        writer.write(framed(b"good", b"bad"))
        assert await reader.readexactly(6) == framed(b"good")
        assert await reader.read() == b""
        writer.close()
        again, other = await asyncio.open_connection(*own[0])
        other.write(framed(b"good"))
        assert await again.readexactly(6) == framed(b"good")
        other.close()

    assert "a query could not be handled" in caplog.text


async def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind((LOOPBACK, 0))
        port = holder.getsockname()[1]

        with pytest.raises(SystemRefusedError, match=f"{port}: address already in use; find"):
            async with listening("localhost", port, answer):
                pass


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "::ffff"])
async def test_an_address_that_is_not_ours_is_refused(host: str) -> None:
    with pytest.raises(SystemRefusedError, match="DNS proxy on"):
        async with listening(host, 0, answer):
            pass


async def test_all_addresses_can_be_served() -> None:
    async with listening("", 0, answer) as own:
        assert [server.host for server in own] == ["0.0.0.0", "::"]
        _, writer = await asyncio.open_connection(LOOPBACK, own[0].port)
        writer.close()


async def test_nothing_listens_any_more_afterwards() -> None:
    async with dns_proxy() as client:
        _, writer = await asyncio.open_connection(LOOPBACK, client.port)

    with socket.socket() as late:
        assert late.connect_ex((LOOPBACK, client.port)) == errno.ECONNREFUSED
    writer.close()


async def test_a_query_under_way_ends_with_the_server() -> None:
    arrived = asyncio.Event()

    async def stuck(_: Asked) -> Sequence[bytes]:
        arrived.set()
        await asyncio.Event().wait()
        return []

    async with resolver(stuck) as upstream:
        async with dns_proxy(upstream.server, timeout_seconds=600) as client:
            reader, writer = await asyncio.open_connection(LOOPBACK, client.port)
            writer.write(framed(query_wire(KNOWN)))
            await arrived.wait()

        assert await reader.read() == b""
        writer.close()
