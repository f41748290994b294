"""DNS messages for tests, made and read by dnspython."""

from typing import Any

import dns.edns
import dns.flags
import dns.message
import dns.rdatatype
import dns.rrset

from agent.dns.messages.query import EXPLAIN, Query, read_query

EXPLAINED = dns.edns.GenericOption(dns.edns.OptionType.make(EXPLAIN), b"")


def query_wire(name: str, rdtype: str = "A", **options: Any) -> bytes:  # noqa: ANN401 - dnspython's
    """Return a query; `options` are those of dns.message.make_query."""
    return dns.message.make_query(name, rdtype, **options).to_wire(max_size=65535)


def query(name: str, rdtype: str = "A", **options: Any) -> Query:  # noqa: ANN401 - dnspython's
    """Return a query as the agent reads it."""
    made = read_query(query_wire(name, rdtype, **options))
    assert isinstance(made, Query)
    return made


def reply_to(
    wire: bytes, *answers: str, authority: str = "", rcode: int = 0, flags: int = 0
) -> dns.message.Message:
    """Return the reply of a resolver; answers are 'ttl type data' lines about the queried name."""
    asked = dns.message.from_wire(wire, keyring=False)
    reply = dns.message.make_response(asked, recursion_available=True)
    reply.set_rcode(dns.rcode.Rcode.make(rcode))
    reply.flags |= flags
    name = asked.question[0].name
    for line in answers:
        ttl, rdtype, data = line.split(maxsplit=2)
        reply.answer.append(dns.rrset.from_text(name, int(ttl), "IN", rdtype, data))
    if authority:
        ttl, rdtype, data = authority.split(maxsplit=2)
        reply.authority.append(dns.rrset.from_text("zone.", int(ttl), "IN", rdtype, data))
    return reply


def addresses(message: dns.message.Message) -> list[str]:
    """Return the addresses of all answers, in order."""
    kinds = (dns.rdatatype.A, dns.rdatatype.AAAA)
    return [item.to_text() for rrset in message.answer if rrset.rdtype in kinds for item in rrset]


def reasons(message: dns.message.Message) -> list[str]:
    """Return the texts of extended errors."""
    found = (option for option in message.options if isinstance(option, dns.edns.EDEOption))
    return [option.text or "" for option in found]
