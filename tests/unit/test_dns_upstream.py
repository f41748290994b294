"""Replies of resolvers. Source: xds-identity-dns.md sections 8.6 and 8.7; RFC 2308."""

import dns.edns
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import dns.tsig
import pytest

from agent.dns.messages.query import HEADER, Query, read_query
from agent.dns.messages.upstream import aged, fit, judge, lifetime, records
from tests.fakes.dns_messages import addresses, query, reply_to

ASKED = query("www.bing.com")
ID = int.from_bytes(ASKED.wire[:2], "big")
GOOD = reply_to(ASKED.wire, "60 A 1.2.3.4").to_wire()
SIXTY = tuple(f"60 A 10.0.0.{number}" for number in range(60))
SOA = "SOA ns.zone. admin.zone. 1 2 3 4"


def test_an_answer_is_one() -> None:
    assert judge(ASKED, ID, GOOD) == "answer"
    assert judge(ASKED, ID, reply_to(ASKED.wire, rcode=dns.rcode.NXDOMAIN).to_wire()) == "answer"


def test_the_case_of_the_question_may_have_changed() -> None:
    changed = GOOD[:12] + GOOD[12:26].upper() + GOOD[26:]

    assert judge(ASKED, ID, changed) == "answer"


@pytest.mark.parametrize("rcode", [dns.rcode.SERVFAIL, dns.rcode.REFUSED])
def test_another_resolver_may_know_more(rcode: dns.rcode.Rcode) -> None:
    """D-14."""
    assert judge(ASKED, ID, reply_to(ASKED.wire, rcode=rcode).to_wire()) == "unhelpful"


@pytest.mark.parametrize(
    "wire",
    [
        b"",
        GOOD[:11],
        ASKED.wire,
        reply_to(query("www.bing.org").wire, "60 A 6.6.6.6").to_wire(),
        reply_to(query("www.bing.com", "AAAA").wire).to_wire(),
        reply_to(query("www.bing.com", rdclass="CH").wire).to_wire(),
        GOOD[:2] + bytes([GOOD[2] | 0x20]) + GOOD[3:],
        GOOD[:4] + b"\0\0" + GOOD[6:],
        GOOD[:4] + b"\0\2" + GOOD[6:],
    ],
    ids=["empty", "short", "query", "name", "type", "class", "opcode", "none", "two"],
)
def test_what_answers_another_question_is_foreign(wire: bytes) -> None:
    """D-15."""
    wire = ASKED.wire[:2] + wire[2:]

    assert judge(ASKED, ID, wire) == "foreign"


def test_a_wrong_id_is_foreign() -> None:
    assert judge(ASKED, ID ^ 1, GOOD) == "foreign"


@pytest.mark.parametrize(("rcode", "verdict"), [(1, "answer"), (2, "unhelpful"), (0, "foreign")])
def test_an_error_may_come_without_the_question(rcode: int, verdict: str) -> None:
    bare = HEADER.pack(ID, dns.flags.QR | rcode, 0, 0, 0, 0)

    assert judge(ASKED, ID, bare) == verdict


@pytest.mark.parametrize("cut", [1, 4, 15, 16])
def test_a_reply_that_ends_too_early_is_malformed(cut: int) -> None:
    assert judge(ASKED, ID, GOOD[:-cut]) == "malformed"


def test_a_pointer_that_leads_nowhere_is_malformed() -> None:
    assert judge(ASKED, ID, GOOD[:-16] + b"\xc0\xff" + GOOD[-14:]) == "malformed"


def test_bytes_behind_the_records_do_no_harm() -> None:
    assert judge(ASKED, ID, GOOD + b"more") == "answer"


def test_records_are_found() -> None:
    wire = reply_to(
        ASKED.wire, "60 CNAME www.example.com.", "30 A 1.2.3.4", authority=f"5 {SOA} 30"
    )

    found = list(records(wire.to_wire()))

    assert [(record.section, record.ttl) for record in found] == [(1, 60), (1, 30), (2, 5)]
    assert found[-1].end == len(wire.to_wire())


def test_what_fits_stays_as_it_is() -> None:
    assert fit(ASKED, GOOD, len(GOOD)) is GOOD


def test_names_are_compressed_before_anything_is_left_out() -> None:
    """R-18."""
    asked = query("a-rather-long-name.of-an-example.com")
    reply = reply_to(asked.wire, *SIXTY[:25])
    plain = reply.to_wire()[: asked.end] + b"".join(
        asked.wire[12:-4] + b"\0\1\0\1\0\0\0\x3c\0\4" + bytes([10, 0, 0, n]) for n in range(25)
    )
    assert len(plain) > 1024

    fitted = dns.message.from_wire(fit(asked, plain, 512))

    assert not fitted.flags & dns.flags.TC
    assert len(addresses(fitted)) == 25


def test_as_many_records_are_kept_as_fit() -> None:
    """N4d, T-D14 as D-14 has it."""
    fitted = fit(ASKED, reply_to(ASKED.wire, *SIXTY).to_wire(), 512)

    message = dns.message.from_wire(fitted)
    assert message.flags & dns.flags.TC
    assert message.flags & dns.flags.RA
    assert len(addresses(message)) == 30
    assert 512 - 16 < len(fitted) <= 512


def test_edns_is_never_left_out() -> None:
    reply = reply_to(query("www.bing.com", use_edns=0).wire, *SIXTY)

    message = dns.message.from_wire(fit(ASKED, reply.to_wire(), 512))

    assert message.edns == 0
    assert message.flags & dns.flags.TC


def test_additional_records_may_go_unsaid() -> None:
    reply = reply_to(ASKED.wire, "60 A 1.2.3.4")
    reply.additional.append(
        dns.rrset.from_text("ns.example.", 1, "IN", "A", *(line.split()[2] for line in SIXTY))
    )

    message = dns.message.from_wire(fit(ASKED, reply.to_wire(), 512))

    assert not message.flags & dns.flags.TC
    assert addresses(message) == ["1.2.3.4"]


@pytest.mark.parametrize("questions", [0, 1])
def test_records_that_make_no_sense_are_cut_off(questions: int) -> None:
    """An address of five bytes is a record all the same, but not for dnspython."""
    head = HEADER.pack(ID, dns.flags.QR, questions, 100, 0, 0)
    question = ASKED.wire[12 : ASKED.end] if questions else b""
    record = b"\0\0\1\0\1\0\0\0\x3c\0\5" + bytes(5)

    fitted = fit(ASKED, head + question + record * 100, 512)

    message = dns.message.from_wire(fitted)
    assert message.flags & dns.flags.TC
    assert message.id == ID
    assert len(message.question) == questions
    assert message.answer == []


@pytest.mark.parametrize(
    ("answers", "authority", "rcode", "seconds"),
    [
        (["60 A 1.2.3.4"], "", 0, 60),
        (["60 CNAME a.", "5 A 1.2.3.4"], "", 0, 5),
        (["0 A 1.2.3.4"], "", 0, 0),
        (["4294967295 A 1.2.3.4"], "", 0, 0),
        (["86400 A 1.2.3.4"], "10 NS ns.", 0, 86400),
        ([], f"60 {SOA} 30", 3, 30),
        ([], f"10 {SOA} 30", 3, 10),
        ([], f"86400 {SOA} 86400", 3, 10800),
        ([], f"60 {SOA} 30", 0, 30),
        (["20 CNAME a."], f"60 {SOA} 30", 0, 20),
        (["60 CNAME a."], "", 0, 0),
        ([], "", 3, 0),
        ([], "60 NS ns.", 0, 0),
        (["60 A 1.2.3.4"], "", 2, 0),
    ],
)
def test_a_reply_lives_as_long_as_it_says(
    answers: list[str], authority: str, rcode: int, seconds: int
) -> None:
    wire = bytearray(
        reply_to(ASKED.wire, *(line for line in answers if not line.startswith("42")),
                 authority=authority, rcode=rcode).to_wire()
    )  # fmt: skip
    if answers[:1] == ["4294967295 A 1.2.3.4"]:  # dnspython would not write it
        wire = bytearray(GOOD[:-10] + b"\xff\xff\xff\xff" + GOOD[-6:])

    assert lifetime(ASKED, bytes(wire)) == seconds


def test_any_type_answers_any() -> None:
    asked = query("www.bing.com", "ANY")

    assert lifetime(asked, reply_to(asked.wire, "60 A 1.2.3.4").to_wire()) == 60


def test_edns_has_no_time_to_live() -> None:
    asked = query("www.bing.com", use_edns=0, want_dnssec=True)
    wire = reply_to(asked.wire, "60 A 1.2.3.4").to_wire()

    assert lifetime(asked, wire) == 60
    assert dns.message.from_wire(aged(asked, wire, 10)).opt == dns.message.from_wire(wire).opt


def test_what_was_cut_or_signed_is_not_kept() -> None:
    signed = dns.message.make_query("www.bing.com", "A")
    signed.use_tsig(dns.tsig.Key("key.", b"secret"))
    asked = read_query(signed.to_wire())
    assert isinstance(asked, Query)

    assert lifetime(asked, GOOD) == 0
    cut = reply_to(ASKED.wire, "60 A 1.2.3.4", flags=dns.flags.TC)
    assert lifetime(ASKED, cut.to_wire()) == 0


def test_a_kept_reply_ages() -> None:
    asked = query("WWW.bing.COM")
    wire = reply_to(ASKED.wire, "60 CNAME a.", "5 A 1.2.3.4").to_wire()

    reply = dns.message.from_wire(aged(asked, wire, 10))

    assert reply.question[0].name.to_text() == "WWW.bing.COM."
    assert [rrset.ttl for rrset in reply.answer] == [50, 0]
