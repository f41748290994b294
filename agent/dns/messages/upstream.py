"""Replies of upstream resolvers: whether they answer the query, and how they fit the client.

A reply is passed on as it came, byte by byte, but for its id. Its records are only walked along:
what is in them is between the client and the resolver.

Source: xds-identity-dns.md sections 8.6 and 8.7, deviations D-14 and D-15; RFC 5452, section 9.1.
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import dns.exception
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.wire

from agent.dns.messages.query import HEADER, Query

#: Answers that another resolver may not give (D-14).
UNHELPFUL: Final = frozenset((dns.rcode.SERVFAIL, dns.rcode.REFUSED))
#: Answers that say something about the name, and are kept.
INFORMATIVE: Final = frozenset((dns.rcode.NOERROR, dns.rcode.NXDOMAIN))
ANSWER: Final = 1
AUTHORITY: Final = 2
#: Longer ones are taken for none. RFC 2181, section 8.
MAX_TTL: Final = 0x7FFFFFFF
#: That something does not exist is believed no longer. RFC 2308, section 5.
NEGATIVE_SECONDS: Final = 10800

#: Of a reply: it answers the query; so it does, but another resolver may know more; it is none.
Verdict = Literal["answer", "unhelpful", "foreign", "malformed"]


class Record(NamedTuple):
    """Where a record is in a message."""

    section: int  #: 1 answer, 2 authority, 3 additional
    rdtype: int
    ttl: int
    ttl_at: int  #: offset of the TTL
    end: int  #: offset behind the record


def judge(query: Query, number: int, wire: bytes) -> Verdict:
    """Return what a reply is worth.

    Args:
        query: the client's; upstream it has another id.
        number: the id that it has upstream.
        wire: the reply.
    """
    if len(wire) < HEADER.size:
        return "foreign"
    found, flags, questions, *_ = HEADER.unpack_from(wire)
    opcode, rcode = dns.opcode.from_flags(flags), flags & 0xF
    if found != number or not flags & dns.flags.QR or opcode != dns.opcode.from_flags(query.flags):
        return "foreign"
    # Some resolvers answer with a bare header what they cannot or will not read.
    if not (questions == 0 and rcode not in INFORMATIVE) and not _same_question(
        query, questions, wire
    ):
        return "foreign"
    try:
        for _ in records(wire):
            pass
    except (dns.exception.DNSException, ValueError):
        return "malformed"
    return "unhelpful" if rcode in UNHELPFUL else "answer"


def _same_question(query: Query, questions: int, wire: bytes) -> bool:
    """Return whether the reply repeats the question; resolvers may change the letters' case."""
    name, kind = slice(HEADER.size, query.end - 4), slice(query.end - 4, query.end)
    return (
        questions == 1
        and wire[kind] == query.wire[kind]
        and wire[name].lower() == query.wire[name].lower()
    )


def records(wire: bytes) -> Iterator[Record]:
    """Yield all records of a message.

    Raises:
        DNSException, ValueError: it is malformed; what was yielded before is right.
    """
    parser = dns.wire.Parser(wire)
    _, _, questions, *counts = parser.get_struct("!6H")
    for _ in range(questions):
        parser.get_name(decompress=True)
        parser.get_bytes(4)
    for section, count in enumerate(counts, ANSWER):
        for _ in range(count):
            parser.get_name(decompress=True)
            rdtype, _, ttl, length = parser.get_struct("!HHIH")
            parser.get_bytes(length)
            end = parser.current
            yield Record(section, rdtype, ttl, end - length - 6, end)


def fit(query: Query, wire: bytes, most_bytes: int) -> bytes:
    """Return a reply that is not larger than that.

    Names are compressed before anything is left out (R-18); then as many records as fit are kept,
    and TC is set if it was not one of the additional ones that had to go.
    """
    if len(wire) <= most_bytes:
        return wire
    try:
        message = dns.message.from_wire(
            wire, keyring=False, one_rr_per_rrset=True, ignore_trailing=True
        )
        return message.to_wire(max_size=most_bytes, prefer_truncation=True)
    except (dns.exception.DNSException, ValueError):
        return _cut_off(query, wire)


def _cut_off(query: Query, wire: bytes) -> bytes:
    """Return header and question alone, truncated: what is in the records makes no sense to us."""
    number, flags, questions, *_ = HEADER.unpack_from(wire)
    header = HEADER.pack(number, flags | dns.flags.TC, questions, 0, 0, 0)
    return header + (wire[HEADER.size : query.end] if questions else b"")


def lifetime(query: Query, wire: bytes) -> int:
    """Return for how many seconds a reply may be given again, 0 for not at all.

    An answer lives as long as the shortest TTL of its records. That there is none lives as long as
    the zone says, in its SOA; a reply without one is not kept.

    Source: RFC 2308, sections 2 and 5; RFC 2181, section 8.
    """
    _, flags, *_ = HEADER.unpack_from(wire)
    if query.signed or flags & dns.flags.TC or flags & 0xF not in INFORMATIVE:
        return 0
    found = [record for record in records(wire) if record.rdtype != dns.rdatatype.OPT]
    answers = [record for record in found if record.section == ANSWER]
    ttls = [record.ttl for record in answers]
    wanted = [record for record in answers if query.rdtype in (record.rdtype, dns.rdatatype.ANY)]
    if not wanted:
        zones = [
            record
            for record in found
            if record.section == AUTHORITY and record.rdtype == dns.rdatatype.SOA
        ]
        # The last field of the SOA is the TTL of what does not exist.
        ttls += [
            min(zone.ttl, int.from_bytes(wire[zone.end - 4 : zone.end], "big"), NEGATIVE_SECONDS)
            for zone in zones
        ] or [0]
    return min((ttl if ttl <= MAX_TTL else 0) for ttl in ttls)


def aged(query: Query, wire: bytes, seconds: int) -> bytes:
    """Return a kept reply for a query: with its question, letter by letter, and TTLs as of now."""
    reply = bytearray(wire)
    reply[HEADER.size : query.end] = query.wire[HEADER.size : query.end]
    for record in records(wire):
        if record.rdtype != dns.rdatatype.OPT:
            left = max(record.ttl - seconds, 0)
            reply[record.ttl_at : record.ttl_at + 4] = left.to_bytes(4, "big")
    return bytes(reply)
