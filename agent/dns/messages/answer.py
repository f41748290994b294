"""Replies of our own: from the name table, or an error.

A reply is rendered once and then given out many times, each time with its addresses in another
order: the addresses of a name are shuffled, dealt out in rotation, and shuffled anew when each has
been first once. So clients that take the first one spread evenly (R-19).

Source: xds-identity-dns.md sections 8.5 and 8.7; RFC 6891, RFC 8914.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Literal, NamedTuple

import dns.edns
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from agent.dns.messages.query import COPIED, HEADER, MOST_BYTES, OWN_PAYLOAD, Query
from agent.dns.names import Match, Names

TTL_SECONDS: Final = 30
#: A record up to its data: pointer to the owner, type, class, TTL, length. RFC 1035, section 4.1.
RECORD: Final = struct.Struct("!HHHIH")
POINTER: Final = 0xC000
#: What Python adds to some bytes.
OBJECT_BYTES: Final = 41
IN: Final = dns.rdataclass.IN
FAMILIES: Final[dict[int, Literal[4, 6]]] = {dns.rdatatype.A: 4, dns.rdatatype.AAAA: 6}


class Forward(NamedTuple):
    """The query is for the upstream resolvers."""

    why: str  #: for people


class Reply:
    """A reply without its id; its addresses change places."""

    def __init__(self, head: bytes, records: Sequence[bytes], tail: bytes, *, room: int) -> None:
        """Make a reply.

        Args:
            head: header but for the id, question and CNAME.
            records: the addresses, as records of one size.
            tail: the OPT record; empty without EDNS.
            room: how many addresses go into one reply.
        """
        self._head = head
        self._records = list(records)
        self._tail = tail
        self._room = room
        self._dealt = 0
        #: What it takes in memory, about.
        self.size_bytes = sum(len(part) + OBJECT_BYTES for part in (head, tail, *records))

    def deal(self, rng: Callable[[], float]) -> bytes:
        """Return the reply in its next order; `rng` is chance, in [0, 1)."""
        if len(self._records) < 2:  # noqa: PLR2004 - nothing to shuffle
            return b"".join((self._head, *self._records, self._tail))
        if self._dealt == 0:
            _shuffle(self._records, rng)
            self._dealt = len(self._records)
        self._dealt -= 1
        self._records.append(self._records.pop(0))
        return b"".join((self._head, *self._records[: self._room], self._tail))


def _shuffle(records: list[bytes], rng: Callable[[], float]) -> None:
    for last in range(len(records) - 1, 0, -1):
        other = int(rng() * (last + 1))
        records[last], records[other] = records[other], records[last]


def answer(query: Query, names: Names, *, most_bytes: int) -> Reply | Forward:
    """Return the reply from the table, or why there is none.

    Args:
        query: of the client.
        names: the table.
        most_bytes: the largest reply that the transport and the client take.
    """
    version = FAMILIES.get(query.rdtype)
    if version is None or query.rdclass != IN:
        return Forward("only addresses (A, AAAA of class IN) are answered from the name table")
    match = names.find(query.name)
    if match is None:
        return Forward("not in the name table")
    if query.edns > 0:
        return render(query, dns.rcode.BADVERS, most_bytes=most_bytes)
    addresses = match.addresses(version)
    notes = explain(match, version, addresses) if query.explain else ()
    return render(query, dns.rcode.NOERROR, match, addresses, most_bytes=most_bytes, notes=notes)


def explain(match: Match, version: int, addresses: Sequence[str]) -> list[str]:
    """Return where an answer from the table comes from, as lines."""
    lines = []
    if match.has_search:
        lines.append(f"{match.name!r} with the first search domain behind it")
    if match.name.startswith("*."):
        lines.append(f"matches the wildcard {match.name!r}")
    for entry in match.entries:
        what = f"{entry.registry} service" if entry.registry else "service without a registry"
        where = f", {entry.shortname} in {entry.namespace}" if entry.shortname else ""
        lines.append(f"name table: {match.kind} of {entry.host} ({what}{where})")
    if not addresses:
        lines.append(f"it has no IPv{version} address: an empty answer, for a name that exists")
    return lines


def render(
    query: Query,
    rcode: int,
    match: Match | None = None,
    addresses: Sequence[str] = (),
    *,
    most_bytes: int,
    notes: Sequence[str] = (),
) -> Reply:
    """Return a reply of our own.

    Args:
        query: what it answers.
        rcode: the response code; one above 15 needs EDNS.
        match: what the name means; none in an error.
        addresses: of the asked family.
        most_bytes: the largest reply. What does not fit is left out, and TC says so.
        notes: lines that say where the answer comes from; they need EDNS.
    """
    tail = _opt(rcode, tuple(notes), dnssec=query.dnssec) if query.edns >= 0 else b""
    alias, records = _answer_section(query, match, addresses) if match and addresses else (b"", [])
    free = most_bytes - query.end - len(tail)
    is_cut = len(alias) + sum(map(len, records)) > free
    if len(alias) > free:
        alias, records = b"", []
    room = (free - len(alias)) // len(records[0]) if records else 0
    flags = query.flags & COPIED | dns.flags.QR | rcode & 0xF
    flags |= dns.flags.AA if match else 0
    flags |= dns.flags.TC if is_cut else 0
    answers = min(room, len(records)) + bool(alias)
    header = HEADER.pack(0, flags, 1, answers, 0, bool(tail))
    head = header[2:] + query.wire[HEADER.size : query.end] + alias
    return Reply(head, records, tail, room=room)


def _answer_section(
    query: Query, match: Match, addresses: Sequence[str]
) -> tuple[bytes, list[bytes]]:
    """Return the CNAME, empty without, and the addresses, as records.

    Owners are pointers: to the question, or to the target of the CNAME behind it.
    """
    packed = dict.fromkeys(ip_address(address).packed for address in addresses)
    alias, owner_at = b"", HEADER.size
    if match.has_search:
        alias = _alias(query, dns.name.from_text(match.name))
        owner_at = query.end + RECORD.size
    return alias, [
        RECORD.pack(POINTER | owner_at, query.rdtype, IN, TTL_SECONDS, len(data)) + data
        for data in packed
    ]


def _alias(query: Query, target: dns.name.Name) -> bytes:
    message = dns.message.QueryMessage(id=0)
    message.question.append(dns.rrset.RRset(query.qname, IN, dns.rdatatype.A))
    data = target.to_digestable()
    rdata = dns.rdata.from_wire(IN, dns.rdatatype.CNAME, data, 0, len(data))
    message.answer.append(dns.rrset.from_rdata(query.qname, TTL_SECONDS, rdata))
    return message.to_wire()[query.end :]


@lru_cache(maxsize=16)
def _opt(rcode: int, notes: Sequence[str], *, dnssec: bool) -> bytes:
    """Return the OPT record, which every answer to a query with EDNS has."""
    message = dns.message.QueryMessage(id=0)
    flags = (rcode >> 4) << 24 | (dns.flags.DO if dnssec else 0)
    options: list[dns.edns.Option] = [
        dns.edns.EDEOption(dns.edns.EDECode.OTHER, note) for note in notes
    ]
    message.use_edns(0, flags, OWN_PAYLOAD, options=options)
    return message.to_wire(max_size=MOST_BYTES)[HEADER.size :]
