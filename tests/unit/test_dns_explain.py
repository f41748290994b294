"""Answers that say where they come from."""

import dns.edns
import dns.message
import pytest

from agent.dns.messages.explain import annotated, as_sent, explanation, make_query
from agent.dns.messages.query import Query, read_query
from tests.fakes.dns_messages import EXPLAINED, query, reasons, reply_to


def test_a_query_asks_for_its_explanation() -> None:
    asked = read_query(make_query("a.B", "https").to_wire())

    assert isinstance(asked, Query)
    assert (asked.about, asked.explain, asked.payload) == ("a.b HTTPS", True, 4096)


@pytest.mark.parametrize(("name", "rdtype"), [("a", "NOTYPE"), ("a..b", "A"), ("x" * 64, "A")])
def test_what_cannot_be_asked_is_refused(name: str, rdtype: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' '{rdtype}': "):
        make_query(name, rdtype)


def test_a_reply_is_told_to_people() -> None:
    reply = reply_to(query("a", use_edns=0).wire, "60 CNAME b.", "5 A 1.2.3.4")
    message = dns.message.from_wire(annotated(reply.to_wire(), ["one", "two"]))

    assert explanation(message) == [
        "a. A: NOERROR, 2 records",
        "  a. 60 IN CNAME b.",
        "  a. 5 IN A 1.2.3.4",
        "why",
        "  one",
        "  two",
    ]


def test_a_reply_without_a_reason_says_so() -> None:
    message = reply_to(query("a").wire, rcode=3)

    assert explanation(message) == [
        "a. A: NXDOMAIN, 0 records",
        "why",
        "  none given: whoever answered is not this agent's DNS proxy",
    ]


def test_our_option_is_not_sent_upstream() -> None:
    other = dns.edns.GenericOption(dns.edns.OptionType.make(65054), b"x")
    asked = query("a", use_edns=0, payload=1400, options=[EXPLAINED, other], want_dnssec=True)

    sent = as_sent(asked)

    message = dns.message.from_wire(sent.wire)
    assert [option.otype for option in message.options] == [65054]
    assert (message.payload, message.ednsflags) == (1400, 0x8000)
    assert sent.wire[:2] == asked.wire[:2]
    assert sent.wire[: sent.end] == asked.wire[: asked.end]


def test_a_reply_is_annotated() -> None:
    wire = reply_to(query("a", use_edns=0).wire, "60 A 1.2.3.4").to_wire()

    message = dns.message.from_wire(annotated(wire, ["one", "two"]))

    assert reasons(message) == ["one", "two"]
    assert message.answer[0][0].to_text() == "1.2.3.4"


def test_long_messages_are_no_obstacle() -> None:
    padding = dns.edns.GenericOption(dns.edns.OptionType.PADDING, bytes(2000))
    asked = query("a", use_edns=0, payload=512, options=[EXPLAINED, padding])
    reply = reply_to(asked.wire, *(f"60 A 10.0.{n // 256}.{n % 256}" for n in range(400)))

    wire = annotated(reply.to_wire(max_size=65535), ["one"])

    assert len(as_sent(asked).wire) > 2000
    assert len(dns.message.from_wire(wire).answer[0]) == 400


def test_a_reply_without_room_stays_as_it_is() -> None:
    asked = query("a")
    wire = reply_to(asked.wire, *(f"60 A 10.0.{n // 256}.{n % 256}" for n in range(4090)))
    full = wire.to_wire(max_size=65535)

    assert annotated(full, ["x" * 1000]) == full


def test_a_reply_that_makes_no_sense_stays_as_it_is() -> None:
    assert annotated(b"nonsense", ["one"]) == b"nonsense"
