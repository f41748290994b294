"""A client's query: whether it is answered at all, and what it asks.

Source: xds-identity-dns.md section 8.2; RFC 1035, RFC 6891.
"""

import struct
from typing import Final, NamedTuple

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdatatype

HEADER: Final = struct.Struct("!6H")
#: What UDP carries for a client that says nothing. RFC 1035, section 4.2.1.
PLAIN_BYTES: Final = 512
#: What we take over UDP. RFC 6891, section 6.2.5.
OWN_PAYLOAD: Final = 4096
#: What any message may have.
MOST_BYTES: Final = 65535
#: Bits that a reply has from its query.
COPIED: Final = dns.flags.RD | dns.flags.CD | 0x7800
#: An option of ours, from the range for local use: "say where the answer comes from". RFC 6891.
EXPLAIN: Final = 65053
#: At most this many questions, answers, authorities and additional records.
MOST_RECORDS: Final = (1, 1, 1, 2)


class Query(NamedTuple):
    """A query that makes sense."""

    wire: bytes
    #: Where the question ends in it.
    end: int
    qname: dns.name.Name
    #: The queried name, lower case, without the final dot.
    name: str
    rdtype: int
    rdclass: int
    #: Flags of the header.
    flags: int
    #: EDNS version, -1 without EDNS.
    edns: int
    #: The largest reply that the client takes over UDP.
    payload: int
    #: Whether the client wants the DNSSEC records: a bit that its reply has, too.
    dnssec: bool
    #: Whether it asks where the answer comes from.
    explain: bool
    #: Signed, so that its answer is of use to nobody else.
    signed: bool

    @property
    def tail(self) -> bytes:
        """Return all but the id: another query that is the same has the same answer."""
        return self.wire[2:]

    @property
    def about(self) -> str:
        """Return name and type, for people."""
        return (
            f"{self.name or '.'} {dns.rdatatype.to_text(dns.rdatatype.RdataType.make(self.rdtype))}"
        )


def read_query(wire: bytes) -> Query | bytes | None:
    """Return a query, the reply that refuses it, or None where there is to be no reply at all.

    A refusal is a header alone, so it is never longer than what it answers.
    """
    if len(wire) < HEADER.size:
        return None
    _, flags, *counts = HEADER.unpack_from(wire)
    if flags & dns.flags.QR:
        return None
    if dns.opcode.from_flags(flags) not in (dns.opcode.QUERY, dns.opcode.NOTIFY):
        return _refusal(wire, dns.rcode.NOTIMP)
    if counts[0] != 1 or any(map(int.__gt__, counts, MOST_RECORDS)):
        return _refusal(wire, dns.rcode.FORMERR)
    try:
        message = dns.message.from_wire(wire, keyring=False)
    except (dns.exception.DNSException, ValueError):
        return _refusal(wire, dns.rcode.FORMERR)
    return _query(wire, message) or _refusal(wire, dns.rcode.FORMERR)


def _query(wire: bytes, message: dns.message.Message) -> Query | None:
    question = message.question[0]
    end = HEADER.size + sum(len(label) + 1 for label in question.name.labels) + 4
    if wire[HEADER.size : end - 4] != question.name.to_wire():
        return None  # a pointer, where there is nothing yet to point at
    return Query(
        wire=wire,
        end=end,
        qname=question.name,
        name=question.name.to_text(omit_final_dot=True).lower(),
        rdtype=question.rdtype,
        rdclass=question.rdclass,
        flags=int(message.flags),
        edns=message.edns,
        payload=max(int(message.payload), PLAIN_BYTES),
        dnssec=bool(message.ednsflags & dns.flags.DO),
        explain=any(option.otype == EXPLAIN for option in message.options),
        signed=message.had_tsig,
    )


def _refusal(wire: bytes, rcode: int) -> bytes:
    number, flags, *_ = HEADER.unpack_from(wire)
    return HEADER.pack(number, flags & COPIED | dns.flags.QR | rcode, 0, 0, 0, 0)
