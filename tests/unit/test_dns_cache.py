"""Kept replies. Source: docs/settings.md, AGENT_DNS_CACHE; RFC 2308."""

import dns.message

from agent.dns.messages.cache import ENTRY_BYTES, Cache
from agent.dns.messages.query import Query
from tests.fakes.dns_messages import query, reply_to


def reply(asked: Query, *answers: str) -> bytes:
    return reply_to(asked.wire, *(answers or ("60 A 1.2.3.4",))).to_wire()


def test_a_reply_is_given_until_its_time_is_over() -> None:
    cache, asked = Cache(), query("a")

    cache.put(asked, reply(asked), "10.0.0.1", 100.0)

    hit = cache.get(query("A"), 130.5)
    assert hit is not None
    wire, kept = hit
    message = dns.message.from_wire(wire)
    assert message.answer[0].ttl == 30
    assert message.question[0].name.to_text() == "A."
    assert (kept.server, kept.since, kept.until) == ("10.0.0.1", 100.0, 160.0)
    assert cache.get(asked, 160.0) is None
    assert cache.get(asked, 130.0) is None


def test_queries_that_differ_have_replies_of_their_own() -> None:
    cache, asked = Cache(), query("a")

    cache.put(asked, reply(asked), "", 0.0)

    others = (query("a", "AAAA"), query("a", use_edns=0), query("a", flags=0), query("b"))
    assert all(cache.get(other, 0.0) is None for other in others)


def test_what_has_no_lifetime_is_not_kept() -> None:
    cache, asked = Cache(), query("a")

    cache.put(asked, reply(asked, "0 A 1.2.3.4"), "", 0.0)

    assert cache.get(asked, 0.0) is None


def test_a_newer_reply_takes_the_place_of_the_older() -> None:
    cache, asked = Cache(), query("a")

    cache.put(asked, reply(asked, "60 A 1.1.1.1"), "", 0.0)
    cache.put(asked, reply(asked, "60 A 2.2.2.2"), "", 1.0)

    hit = cache.get(asked, 1.0)
    assert hit is not None
    assert dns.message.from_wire(hit[0]).answer[0][0].to_text() == "2.2.2.2"


def test_what_was_not_asked_for_longest_goes_first() -> None:
    asked = [query(name) for name in "abc"]
    size = len(asked[0].wire) - 2 + len(reply(asked[0])) + ENTRY_BYTES
    cache = Cache(max_bytes=2 * size)

    for each in asked[:2]:
        cache.put(each, reply(each), "", 0.0)
    cache.get(asked[0], 0.0)
    cache.put(asked[2], reply(asked[2]), "", 0.0)

    assert [cache.get(each, 0.0) is not None for each in asked] == [True, False, True]


def test_everything_can_be_forgotten() -> None:
    cache, asked = Cache(max_bytes=600), query("a")

    cache.put(asked, reply(asked), "", 0.0)
    cache.clear()

    assert cache.get(asked, 0.0) is None
    cache.put(asked, reply(asked), "", 0.0)
    assert cache.get(asked, 0.0) is not None
