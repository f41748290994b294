"""Replies of our own. Source: xds-identity-dns.md sections 8.5, 8.7 and 11.4."""

from collections import Counter
from collections.abc import Callable
from random import Random

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import pytest

from agent.dns.messages.answer import Forward, Reply, answer, render
from agent.dns.messages.query import Query
from agent.dns.names import Names
from tests.fakes.dns_messages import EXPLAINED, addresses, query, reasons
from tests.fakes.dns_table import DETAILS, TABLE, external, kubernetes, names

NAMES = names(*TABLE)
SIXTY = tuple(f"10.0.0.{number}" for number in range(60))
PRODUCTPAGE = "productpage.ns1.svc.cluster.local (Kubernetes service, productpage in ns1)"
CHANCE = Random(1).random  # noqa: S311 - the same in each run


def chance() -> float:
    return 0.5


def parsed(asked: Query, reply: Reply | Forward, rng: Callable[[], float] = chance) -> (
    dns.message.Message
):  # fmt: skip
    assert isinstance(reply, Reply)
    message = dns.message.from_wire(asked.wire[:2] + reply.deal(rng))
    assert message.id == dns.message.from_wire(asked.wire, keyring=False).id
    return message


def ask(asked: Query, table: Names = NAMES, *, most_bytes: int = 512) -> dns.message.Message:
    return parsed(asked, answer(asked, table, most_bytes=most_bytes))


def test_a_host_is_answered_with_its_addresses() -> None:
    """T-D4 and the properties of section 8.5."""
    reply = ask(query("productpage.ns1", flags=dns.flags.RD | dns.flags.CD))

    assert reply.flags == dns.flags.QR | dns.flags.AA | dns.flags.RD | dns.flags.CD
    assert (reply.rcode(), reply.edns) == (dns.rcode.NOERROR, -1)
    assert [rrset.to_text() for rrset in reply.answer] == ["productpage.ns1. 30 IN A 9.9.9.9"]


def test_the_case_of_the_question_is_kept() -> None:
    """N10d."""
    asked = query("wWw.GooGLE.com")

    reply = ask(asked)

    assert reply.question[0].name.to_text() == "wWw.GooGLE.com."
    assert addresses(reply) == ["1.1.1.1"]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("www.google.com.ns1.svc.cluster.local.", "www.google.com."),
        ("productpage.ns1.ns1.svc.cluster.local.", "productpage.ns1."),
        ("foo.wildcard.ns1.svc.cluster.local.", "*.wildcard."),
    ],
)
def test_a_search_domain_is_answered_by_a_cname(name: str, target: str) -> None:
    """T-D2, T-D6, T-D13."""
    alias, found = ask(query(name)).answer

    assert (alias.name.to_text(), alias.rdtype, alias.ttl) == (name, dns.rdatatype.CNAME, 30)
    assert alias[0].to_text() == target
    assert found.name.to_text() == target


def test_a_wildcard_is_answered_as_what_was_asked() -> None:
    """T-D12."""
    (found,) = ask(query("foo.wildcard")).answer

    assert found.to_text() == "foo.wildcard. 30 IN A 10.10.10.10"


@pytest.mark.parametrize(
    ("rdtype", "ips"), [("A", ["2.2.2.2"]), ("AAAA", ["2001:db8::ff00:42:8329"])]
)
def test_only_the_family_asked_for_is_answered(rdtype: str, ips: list[str]) -> None:
    """T-D10."""
    assert addresses(ask(query("dual.localhost", rdtype))) == ips


@pytest.mark.parametrize(
    ("name", "rdtype"),
    [
        ("ipv6.localhost", "A"),
        ("ipv4.localhost", "AAAA"),
        ("ipv4.localhost.ns1.svc.cluster.local", "AAAA"),
    ],
)
def test_a_name_without_such_an_address_exists_all_the_same(name: str, rdtype: str) -> None:
    """T-D11, R-17, N3d."""
    reply = ask(query(name, rdtype))

    assert reply.rcode() == dns.rcode.NOERROR
    assert reply.answer == []


@pytest.mark.parametrize(
    ("name", "rdtype", "rdclass"),
    [
        ("productpage", "SRV", "IN"),
        ("productpage", "HTTPS", "IN"),
        ("productpage", "ANY", "IN"),
        ("productpage", "A", "CH"),
        ("www.bing.com", "A", "IN"),
    ],
)
def test_all_else_is_forwarded(name: str, rdtype: str, rdclass: str) -> None:
    """T-D3, T-D19."""
    asked = query(name, rdtype, rdclass=rdclass)

    assert isinstance(answer(asked, NAMES, most_bytes=512), Forward)


def test_each_address_is_first_equally_often() -> None:
    """T-D9, R-19, N6d."""
    asked = query("details.ns2.svc.cluster.remote")
    reply = answer(asked, NAMES, most_bytes=512)

    orders = [tuple(addresses(parsed(asked, reply, CHANCE))) for _ in range(1000)]

    assert all(set(order) == set(DETAILS) for order in orders)
    assert Counter(order[0] for order in orders) == dict.fromkeys(DETAILS, 250)


def test_the_order_is_by_chance() -> None:
    asked = query("details.ns2.svc.cluster.remote")

    orders = Counter(
        tuple(addresses(parsed(asked, answer(asked, NAMES, most_bytes=512), CHANCE)))
        for _ in range(500)
    )

    assert len(orders) == 24


def test_an_address_is_given_once() -> None:
    table = names(external("a", "2001:db8::1", "2001:db8:0::1", "1.1.1.1"))

    assert addresses(ask(query("a", "AAAA"), table)) == ["2001:db8::1"]


@pytest.mark.parametrize(
    ("name", "records"), [("many", 30), ("many.ns1.svc.cluster.local", 28), ("x" * 60, 27)]
)
def test_what_does_not_fit_is_left_out(name: str, records: int) -> None:
    """N4d, R-18."""
    table = names(external("many", *SIXTY), external("x" * 60, *SIXTY))
    asked = query(name)
    reply = answer(asked, table, most_bytes=512)

    message = parsed(asked, reply)
    others = {ip for _ in range(60) for ip in addresses(parsed(asked, reply))}

    assert message.flags & dns.flags.TC
    assert len(addresses(message)) == records
    assert len(asked.wire[:2] + reply.deal(chance)) <= 512  # type: ignore[union-attr]  # a Reply
    assert others == set(SIXTY)


@pytest.mark.parametrize("most_bytes", [1232, 4096, 65535])
def test_what_fits_is_not_truncated(most_bytes: int) -> None:
    reply = ask(query("many"), names(external("many", *SIXTY)), most_bytes=most_bytes)

    assert not reply.flags & dns.flags.TC
    assert len(addresses(reply)) == 60


def test_more_addresses_than_a_message_can_hold_are_cut() -> None:
    ips = [f"10.{n // 65536}.{n // 256 % 256}.{n % 256}" for n in range(5000)]

    reply = ask(query("many"), names(external("many", *ips)), most_bytes=65535)

    assert reply.flags & dns.flags.TC
    assert len(addresses(reply)) == 4094


def test_a_cname_that_does_not_fit_is_left_out_with_all_that_follows() -> None:
    label = "x" * 60
    host = f"{label}.{label}.{label}"
    table = names(external(host, "1.1.1.1"), search="search.example")
    asked = query(f"{host}.search.example", use_edns=0)

    reply = parsed(asked, answer(asked, table, most_bytes=300))

    assert reply.flags & dns.flags.TC
    assert reply.answer == []


def test_edns_is_answered_with_edns() -> None:
    """RFC 6891, section 6.1.1; RFC 3225."""
    reply = ask(query("productpage", use_edns=0, payload=1400, want_dnssec=True))

    assert (reply.edns, reply.payload) == (0, 4096)
    assert reply.ednsflags & dns.flags.DO
    assert reply.options == ()


def test_edns_of_the_future_is_refused() -> None:
    reply = ask(query("productpage", use_edns=1))

    assert (reply.rcode(), reply.edns) == (dns.rcode.BADVERS, 0)
    assert reply.answer == []


def test_an_error_repeats_the_question_and_nothing_else() -> None:
    asked = query("WWW.example.com")

    reply = parsed(asked, render(asked, dns.rcode.SERVFAIL, most_bytes=512))

    assert reply.rcode() == dns.rcode.SERVFAIL
    assert reply.flags & ~0xF == dns.flags.QR | dns.flags.RD
    assert reply.question[0].name.to_text() == "WWW.example.com."
    assert (reply.answer, reply.edns) == ([], -1)


@pytest.mark.parametrize(
    ("name", "rdtype", "expected"),
    [
        (
            "productpage.ns1.svc.cluster.local",
            "A",
            [f"name table: host of {PRODUCTPAGE}"],
        ),
        (
            "productpage.ns1.ns1.svc.cluster.local",
            "AAAA",
            [
                "'productpage.ns1' with the first search domain behind it",
                f"name table: alternate name of {PRODUCTPAGE}",
                "it has no IPv6 address: an empty answer, for a name that exists",
            ],
        ),
        (
            "a.wildcard",
            "A",
            [
                "matches the wildcard '*.wildcard'",
                "name table: host of *.wildcard (External service)",
            ],
        ),
        ("plain", "A", ["name table: host of plain (service without a registry)"]),
    ],
)
def test_an_answer_is_explained(name: str, rdtype: str, expected: list[str]) -> None:
    table = names(*TABLE, kubernetes("plain", "x", "1.1.1.1")._replace(host="plain", registry="",
                                                                         shortname=""))  # fmt: skip

    reply = ask(query(name, rdtype, use_edns=0, options=[EXPLAINED]), table, most_bytes=4096)

    assert reasons(reply) == expected
