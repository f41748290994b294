"""Upstream resolvers that fail, stall, cut and lie: the client gets the right answer, or SERVFAIL.

Source: xds-identity-dns.md sections 8.6, 11.4 and 13; cases.md N2d and N4d.
"""

import asyncio
import socket
from collections.abc import Sequence
from itertools import count

import dns.flags
import dns.message
import dns.rcode
import pytest

from agent.dns.messages.run import MAX_FORWARDED
from agent.dns.race import Server
from agent.dns.resolv_conf import ResolvConf
from tests.fakes.dns_messages import addresses, query_wire, reply_to
from tests.fakes.dns_resolver import (
    DEAD,
    HANG_UP,
    KNOWN,
    KNOWN_IP,
    LOOPBACK,
    Asked,
    Behaviour,
    Over,
    dns_proxy,
    failing,
    honest,
    known,
    many,
    refusing,
    resolver,
    silent,
)

FORGED = "60 A 6.6.6.6"
OVER = pytest.mark.parametrize("over", ["udp", "tcp"])
PARALLEL = pytest.mark.parametrize("parallel", [False, True], ids=["series", "parallel"])


async def malformed(asked: Asked) -> Sequence[bytes]:
    return [known(asked)[:-3]]


async def hanging_up(_: Asked) -> Sequence[bytes]:
    return [HANG_UP]


async def short(asked: Asked) -> Sequence[bytes]:
    return [asked.wire[:5]]


@OVER
@PARALLEL
@pytest.mark.parametrize("bad", [silent, failing, refusing, malformed, short, hanging_up])
async def test_another_resolver_answers_instead(
    bad: Behaviour,
    over: Over,
    parallel: bool,  # noqa: FBT001 - a parameter
) -> None:
    """N2d, D-14."""
    async with (
        resolver(bad) as first,
        resolver() as second,
        dns_proxy(first.server, second.server, DEAD, parallel=parallel) as client,
    ):
        async with asyncio.timeout(2):
            replies = await asyncio.gather(*(client.ask(KNOWN, over=over) for _ in range(8)))

    assert [addresses(reply) for reply in replies] == [[KNOWN_IP]] * 8


@pytest.mark.slow
async def test_a_lost_datagram_is_sent_again() -> None:
    """N2d: one resolver, which drops the first query."""
    numbers = count()

    async def losing_the_first(asked: Asked) -> Sequence[bytes]:
        return [known(asked)] if next(numbers) else []

    async with resolver(losing_the_first) as upstream, dns_proxy(upstream.server) as client:
        async with asyncio.timeout(2):
            reply = await client.ask(KNOWN)

    first, second = upstream.asked
    assert addresses(reply) == [KNOWN_IP]
    assert first.wire[:2] != second.wire[:2]
    assert first.peer != second.peer


async def test_a_late_answer_is_an_answer() -> None:
    arrived, late = asyncio.Event(), asyncio.Event()

    async def slow(asked: Asked) -> Sequence[bytes]:
        arrived.set()
        await late.wait()
        return [known(asked)]

    async with resolver(slow) as upstream, dns_proxy(upstream.server, timeout_seconds=60) as client:
        asking = asyncio.ensure_future(client.ask(KNOWN))
        await arrived.wait()
        late.set()

        assert addresses(await asking) == [KNOWN_IP]


@OVER
@PARALLEL
async def test_silence_is_servfail_in_time(
    over: Over,
    parallel: bool,  # noqa: FBT001 - a parameter
) -> None:
    """T-D16."""
    loop = asyncio.get_running_loop()
    async with (
        resolver(silent) as upstream,
        dns_proxy(upstream.server, timeout_seconds=0.1, parallel=parallel) as client,
    ):
        started = loop.time()
        reply = await client.ask("WWW.bing.com.", over=over)
        seconds = loop.time() - started

        assert client.count("dns_upstream_requests_total") == 1
        assert client.count("dns_upstream_failures_total") == 1
    assert reply.rcode() == dns.rcode.SERVFAIL
    assert reply.question[0].name.to_text() == "WWW.bing.com."
    assert seconds >= 0.09


@OVER
@PARALLEL
async def test_without_a_resolver_there_is_servfail_at_once(
    over: Over,
    parallel: bool,  # noqa: FBT001 - a parameter
) -> None:
    """D-12."""
    async with dns_proxy(parallel=parallel, timeout_seconds=600) as client:
        assert (await client.ask(KNOWN, over=over)).rcode() == dns.rcode.SERVFAIL


@OVER
@PARALLEL
async def test_a_refused_connection_is_no_reason_to_wait(
    over: Over,
    parallel: bool,  # noqa: FBT001 - a parameter
) -> None:
    async with dns_proxy(DEAD, parallel=parallel, timeout_seconds=600) as client:
        assert (await client.ask(KNOWN, over=over)).rcode() == dns.rcode.SERVFAIL


@pytest.mark.parametrize(("behaviour", "rcode"), [(failing, "SERVFAIL"), (refusing, "REFUSED")])
async def test_the_answer_of_the_last_resort_is_passed_on(behaviour: Behaviour, rcode: str) -> None:
    async with resolver(behaviour) as upstream, dns_proxy(upstream.server) as client:
        reply = await client.ask(KNOWN)

        assert dns.rcode.to_text(reply.rcode()) == rcode
        assert reply.flags & dns.flags.RA
        assert client.count("dns_upstream_failures_total") == 1


@OVER
async def test_what_cannot_be_bettered_is_final(over: Over) -> None:
    async def strange(asked: Asked) -> Sequence[bytes]:
        return [reply_to(asked.wire, rcode=dns.rcode.NOTIMP).to_wire()]

    async with (
        resolver(strange) as first,
        resolver(strange) as second,
        dns_proxy(first.server, second.server) as client,
    ):
        assert (await client.ask(KNOWN, over=over)).rcode() == dns.rcode.NOTIMP
        assert len(first.asked) + len(second.asked) == 1


async def wrong_id(asked: Asked) -> Sequence[bytes]:
    """Return forged replies that guess the id wrong, then the true one."""
    number = int.from_bytes(asked.wire[:2], "big")
    forged = reply_to(asked.wire, FORGED).to_wire()[2:]
    guesses = ((number + step) % 65536 for step in range(1, 200))
    return [*(guess.to_bytes(2, "big") + forged for guess in guesses), known(asked)]


async def wrong_question(asked: Asked) -> Sequence[bytes]:
    forged = reply_to(query_wire("www.bing.org"), FORGED).to_wire()
    other = reply_to(query_wire(KNOWN, "AAAA"), "60 AAAA 2001:db8::6").to_wire()
    number = asked.wire[:2]
    return [number + forged[2:], number + other[2:], number, b"", known(asked)]


async def wrong_source(asked: Asked) -> Sequence[bytes]:
    """Send a forged reply, right but for the port and the address it comes from."""
    forged = reply_to(asked.wire, FORGED).to_wire()
    for host in (LOOPBACK, "127.0.0.2"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind((host, 0))
            other.sendto(forged, asked.peer)
    return [known(asked)]


@pytest.mark.parametrize("lying", [wrong_id, wrong_question, wrong_source])
@PARALLEL
async def test_a_forged_answer_is_never_passed_on(
    lying: Behaviour,
    parallel: bool,  # noqa: FBT001 - a parameter
) -> None:
    """D-15, RFC 5452."""
    async with (
        resolver(lying) as upstream,
        dns_proxy(upstream.server, parallel=parallel) as client,
    ):
        assert addresses(await client.ask(KNOWN)) == [KNOWN_IP]


@pytest.mark.parametrize("lying", [wrong_id, wrong_question])
async def test_a_lie_over_tcp_ends_the_connection(lying: Behaviour) -> None:
    async with (
        resolver(lying) as upstream,
        resolver() as other,
        dns_proxy(upstream.server, other.server) as client,
    ):
        replies = [await client.ask(KNOWN, over="tcp") for _ in range(5)]

    assert [addresses(reply) for reply in replies] == [[KNOWN_IP]] * 5


async def test_nothing_but_lies_is_servfail() -> None:
    async def liar(asked: Asked) -> Sequence[bytes]:
        return (await wrong_id(asked))[:-1]

    async with (
        resolver(liar) as upstream,
        dns_proxy(upstream.server, timeout_seconds=0.1) as client,
    ):
        assert (await client.ask(KNOWN)).rcode() == dns.rcode.SERVFAIL


async def test_ids_and_ports_are_random() -> None:
    """D-15."""
    async with resolver() as upstream, dns_proxy(upstream.server) as client:
        for _ in range(30):
            await client.ask(KNOWN, id=7)

    assert len({asked.wire[:2] for asked in upstream.asked}) > 25
    assert len({asked.peer[1] for asked in upstream.asked}) > 25


async def test_resolvers_are_asked_in_random_order() -> None:
    """R-22."""
    async with (
        resolver() as first,
        resolver() as second,
        dns_proxy(first.server, second.server) as client,
    ):
        for _ in range(40):
            await client.ask(KNOWN)

    assert len(first.asked) + len(second.asked) == 40
    assert first.asked
    assert second.asked


async def test_a_reply_too_large_for_the_client_is_cut() -> None:
    """N4d, D-14; T-D15."""
    async with resolver(many) as upstream, dns_proxy(upstream.server) as client:
        cut = await client.ask(KNOWN)
        with_edns = await client.ask(KNOWN, use_edns=0, payload=8192)
        over_tcp = await client.ask(KNOWN, over="tcp")

    assert cut.flags & dns.flags.TC
    assert 0 < len(addresses(cut)) < 31
    assert len(cut.wire or b"") <= 512
    assert [len(addresses(reply)) for reply in (with_edns, over_tcp)] == [400, 400]
    assert not (with_edns.flags | over_tcp.flags) & dns.flags.TC
    assert [asked.over for asked in upstream.asked] == ["udp", "udp", "tcp"]


async def test_a_truncated_reply_is_passed_on_for_the_client_to_ask_again() -> None:
    async def cutting(asked: Asked) -> Sequence[bytes]:
        if asked.over == "tcp":
            return [known(asked)]
        return [reply_to(asked.wire, flags=dns.flags.TC).to_wire()]

    async with resolver(cutting) as upstream, dns_proxy(upstream.server) as client:
        cut = await client.ask(KNOWN)
        whole = await client.ask(KNOWN, over="tcp")

    assert cut.flags & dns.flags.TC
    assert addresses(whole) == [KNOWN_IP]


@OVER
async def test_a_query_goes_upstream_unchanged(over: Over) -> None:
    async with resolver() as upstream, dns_proxy(upstream.server) as client:
        wire = query_wire("wWw.bing.com", use_edns=0, payload=1400, want_dnssec=True)
        await client.ask("wWw.bing.com", over=over, use_edns=0, payload=1400, want_dnssec=True)

    assert [asked.wire[2:] for asked in upstream.asked] == [wire[2:]]


async def test_resolvers_may_have_ipv6_addresses_only_of_this_machine() -> None:
    async with dns_proxy(Server("::1", 9), Server("fe80::1%nowhere0", 9)) as client:
        assert (await client.ask(KNOWN)).rcode() == dns.rcode.SERVFAIL


@OVER
async def test_our_own_query_is_not_asked_again(over: Over) -> None:
    """R-21, I25: capture that does not exempt the agent sends its queries back to it."""
    async with dns_proxy(timeout_seconds=600) as client:
        client.proxy.use(ResolvConf((client.own[0],)))
        replies = [await client.ask(KNOWN, over=over) for _ in range(2)]

        assert client.count("dns_upstream_requests_total") == 2
    assert [reply.rcode() for reply in replies] == [dns.rcode.SERVFAIL] * 2


async def test_there_is_an_end_to_what_is_asked_at_once() -> None:
    """A socket each: the rest is refused, so that files and memory have an end."""
    loop = asyncio.get_running_loop()
    async with (
        resolver(silent) as upstream,
        dns_proxy(upstream.server, timeout_seconds=2) as client,
    ):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as asking:
            asking.connect((LOOPBACK, client.port))
            for number in range(MAX_FORWARDED + 1):
                await loop.sock_sendall(asking, query_wire(KNOWN, id=number))
            refused = dns.message.from_wire(await loop.sock_recv(asking, 512))

        assert client.count("dns_upstream_failures_total") == 1
    assert (refused.id, refused.rcode()) == (MAX_FORWARDED, dns.rcode.SERVFAIL)


async def test_honesty_is_enough() -> None:
    async with resolver(honest) as upstream, dns_proxy(upstream.server) as client:
        assert addresses(await client.ask(KNOWN)) == [KNOWN_IP]
        assert client.count("dns_requests_total") == 1
        assert client.count("dns_upstream_request_duration_seconds_count") == 1
        assert client.count("dns_upstream_failures_total") == 0
