"""Whatever comes in, what goes out is a message that fits.

Source: xds-identity-dns.md sections 8.2 and 8.7; RFC 2308; RFC 5452.
"""

import dns.edns
import dns.flags
import dns.message
from hypothesis import example, given
from hypothesis import strategies as st

from agent.dns.messages.answer import Reply, answer
from agent.dns.messages.cache import Cache
from agent.dns.messages.explain import annotated, as_sent
from agent.dns.messages.query import Query, read_query
from agent.dns.messages.upstream import aged, fit, judge, lifetime
from agent.dns.race import Failure, Race, Server
from tests.fakes.dns_messages import EXPLAINED, addresses, query, query_wire, reply_to
from tests.fakes.dns_table import external, names

LABEL = st.text("abcABC-_*\\.\x00\xff", min_size=1, max_size=20)
HEADERS = st.builds(
    lambda number, flags, counts: b"".join(n.to_bytes(2, "big") for n in (number, flags, *counts)),
    st.integers(0, 65535),
    st.sampled_from([0, 0x0100, 0x0110, 0x8180, 0x2000, 0x2800]),
    st.tuples(*[st.integers(0, 3)] * 4),
)
VALID = st.sampled_from(
    [
        query_wire("many", id=0),
        query_wire("a.wildcard.search", "AAAA", id=1, use_edns=0, payload=1232),
        query_wire("other.example", "ANY", id=2, use_edns=0, want_dnssec=True),
        query_wire("many.search", "A", id=3, use_edns=0, options=[EXPLAINED]),
        reply_to(query_wire("many", id=4), "60 A 1.2.3.4", "5 CNAME x.").to_wire(),
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return a message with some bytes changed, taken out, or put in."""
    wire = bytearray(draw(VALID))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(wire)))
        end = start + draw(st.integers(0, 3))
        wire[start:end] = draw(st.binary(max_size=3))
    return bytes(wire)


PACKETS = st.one_of(
    st.binary(max_size=80), st.builds(bytes.__add__, HEADERS, st.binary(max_size=40)), damaged()
)
MANY = tuple(f"10.0.{n // 256}.{n % 256}" for n in range(300))
TABLE = names(
    external("many", *MANY, *(f"2001:db8::{n:x}" for n in range(300))),
    external("*.wildcard", "1.1.1.1", "::1"),
    search="search",
)


@given(PACKETS)
def test_a_packet_is_a_query_or_refused_or_ignored(wire: bytes) -> None:
    """A refusal is never longer than what it answers: no amplification."""
    found = read_query(wire)

    if isinstance(found, bytes):
        assert len(found) <= len(wire)
        assert found[:2] == wire[:2]
        assert dns.message.from_wire(found).flags & dns.flags.QR
    elif found is not None:
        assert dns.message.from_wire(wire, keyring=False).question[0].name == found.qname
        assert found.wire is wire


OPTIONS = st.lists(
    st.sampled_from([EXPLAINED, dns.edns.GenericOption(dns.edns.OptionType.NSID, b"abc")]),
    max_size=2,
)
QUERIES = st.builds(
    lambda name, rdtype, edns, payload, dnssec, options: query(
        name,
        rdtype,
        **(
            {}
            if edns < 0
            else {
                "use_edns": edns,
                "payload": payload,
                "want_dnssec": dnssec,
                "options": options,
            }
        ),
    ),
    st.sampled_from(["many", "MaNY.search", "a.wildcard", f"{'x' * 60}.wildcard.search", "other"]),
    st.sampled_from(["A", "AAAA", "SRV"]),
    st.sampled_from([-1, 0, 1]),
    st.integers(0, 65535),
    st.booleans(),
    OPTIONS,
)


@given(QUERIES, st.sampled_from([512, 600, 1232, 4096, 65535]), st.floats(0, 0.999))
def test_a_reply_fits_and_repeats_the_question(asked: Query, most: int, chance: float) -> None:
    found = answer(asked, TABLE, most_bytes=most)
    if not isinstance(found, Reply):
        return

    replies = [asked.wire[:2] + found.deal(lambda: chance) for _ in range(2)]

    for reply in replies:
        assert len(reply) <= most
        message = dns.message.from_wire(reply)
        assert reply[12 : asked.end] == asked.wire[12 : asked.end]
        assert (message.edns >= 0) == (asked.edns >= 0)
        cut = bool(message.flags & dns.flags.TC)
        assert cut or len(addresses(message)) in (0, 1, 300)


@given(PACKETS)
@example(reply_to(query_wire("many", id=0), "60 A 1.2.3.4").to_wire()[:-1])
def test_whatever_upstream_says_is_judged_and_fits(wire: bytes) -> None:
    asked = query("many", id=0)

    verdict = judge(asked, 0, wire)

    if verdict in ("answer", "unhelpful"):
        assert len(fit(asked, wire, 512)) <= 512
        assert lifetime(asked, wire) >= 0
        assert len(aged(asked, wire, 10)) == len(wire)
        assert len(annotated(wire, ["x"])) >= 12


@given(PACKETS, st.integers(0, 65535))
def test_no_reply_is_taken_for_another_querys(wire: bytes, number: int) -> None:
    asked = query("elsewhere.example", id=0)

    if judge(asked, number, wire) == "answer":
        assert wire[:2] == number.to_bytes(2, "big")
        assert b"\x09elsewhere\x07example" in wire.lower() or wire[3] & 0xF not in (0, 3)


@given(QUERIES)
def test_what_goes_upstream_asks_the_same(asked: Query) -> None:
    sent = as_sent(asked)

    assert sent.wire[:12] == asked.wire[:12] or asked.edns < 0
    assert sent.wire[12 : sent.end] == asked.wire[12 : asked.end]
    assert read_query(sent.wire) == asked._replace(wire=sent.wire, explain=False) or asked.edns < 0


RECORDS = st.lists(
    st.tuples(st.integers(0, 300), st.sampled_from(["A 1.2.3.4", "CNAME x.", "TXT abc"])).map(
        lambda pair: f"{pair[0]} {pair[1]}"
    ),
    max_size=4,
    unique_by=lambda line: line.split()[1],
)


@given(RECORDS, st.integers(0, 400))
def test_a_kept_reply_never_outlives_its_records(lines: list[str], seconds: int) -> None:
    asked = query("a")
    wire = reply_to(asked.wire, *lines).to_wire()
    cache = Cache()

    cache.put(asked, wire, "", 0.0)
    hit = cache.get(asked, float(seconds))

    if hit is not None:
        message = dns.message.from_wire(hit[0])
        was = dns.message.from_wire(wire)
        for now, before in zip(message.answer, was.answer, strict=True):
            assert now.ttl == before.ttl - seconds > 0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 300)), max_size=40))
def test_the_cache_has_an_end(puts: list[tuple[int, int]]) -> None:
    cache = Cache(max_bytes=2000)

    for number, ttl in puts:
        asked = query(f"host-{number}")
        cache.put(asked, reply_to(asked.wire, f"{ttl} A 1.2.3.4").to_wire(), "", 0.0)

    kept = sum(cache.get(query(f"host-{number}"), 0.0) is not None for number in range(31))
    assert kept <= 5


@given(
    st.integers(0, 5),
    st.booleans(),
    st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=30),
)
def test_every_resolver_is_asked_at_most_twice(
    servers: int,
    parallel: bool,  # noqa: FBT001 - a parameter
    events: list[int | None],
) -> None:
    known = [Server(f"10.0.0.{number}") for number in range(servers)]
    race = Race(known, parallel=parallel)
    asked = race.start()

    for event in events:
        if event is None:
            asked += race.silent()
        elif event < servers and known[event] in asked:
            asked += race.fail(known[event], Failure("SERVFAIL", b"reply"))

    assert all(asked.count(server) <= 2 for server in known)
    assert not servers or asked[0] == known[0]
    assert race.is_over or len(asked) < 2 * servers
