"""Where an answer comes from, told in the answer itself.

A query with an option of ours is answered with the reasons, each as an extended DNS error, which
other tools show too: `dig -p 15053 @127.0.0.1 NAME +ednsopt=65053`. So what is explained is this
very answer. Answers from the table are explained by answer.py.

Source: RFC 8914.
"""

from collections.abc import Sequence
from typing import Final

import dns.edns
import dns.exception
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype

from agent.dns.messages.query import EXPLAIN, MOST_BYTES, OWN_PAYLOAD, Query

NO_REASON: Final = "none given: whoever answered is not this agent's DNS proxy"


def make_query(name: str, rdtype: str) -> dns.message.QueryMessage:
    """Return a query that asks for an explanation.

    Args:
        name: with or without its final dot; it is never relative.
        rdtype: such as 'A' or 'TYPE65'.

    Raises:
        ValueError: there is no such type, or the name is none.
    """
    option = dns.edns.GenericOption(dns.edns.OptionType.make(EXPLAIN), b"")
    try:
        kind = dns.rdatatype.from_text(rdtype)
        return dns.message.make_query(
            dns.name.from_text(name), kind, use_edns=0, payload=OWN_PAYLOAD, options=[option]
        )
    except dns.exception.DNSException as error:
        raise ValueError(f"{name!r} {rdtype!r}: {str(error).lower().rstrip('.')}") from error


def explanation(reply: dns.message.Message) -> list[str]:
    """Return a reply and its reasons, as lines for people."""
    count = sum(len(rrset) for rrset in reply.answer)
    question = reply.question[0]
    kind = dns.rdatatype.to_text(question.rdtype)
    rcode = dns.rcode.to_text(reply.rcode())
    lines = [f"{question.name} {kind}: {rcode}, {count} record{'' if count == 1 else 's'}"]
    lines += [f"  {line}" for rrset in reply.answer for line in rrset.to_text().splitlines()]
    reasons = [option.text for option in reply.options if isinstance(option, dns.edns.EDEOption)]
    return [*lines, "why", *(f"  {reason}" for reason in reasons or [NO_REASON])]


def as_sent(query: Query) -> Query:
    """Return the query as it goes upstream: our option is nobody else's business."""
    message = dns.message.from_wire(query.wire, keyring=False)
    options = [option for option in message.options if option.otype != EXPLAIN]
    message.use_edns(message.edns, message.ednsflags, message.payload, options=options)
    return query._replace(wire=message.to_wire(max_size=MOST_BYTES))


def annotated(wire: bytes, notes: Sequence[str]) -> bytes:
    """Return an upstream reply with the notes in it; without, if it makes no sense or is full."""
    try:
        message = dns.message.from_wire(wire, keyring=False, ignore_trailing=True)
        options = [*message.options]
        options += [dns.edns.EDEOption(dns.edns.EDECode.OTHER, note) for note in notes]
        message.use_edns(0, message.ednsflags, OWN_PAYLOAD, options=options)
        return message.to_wire(max_size=MOST_BYTES)
    except (dns.exception.DNSException, ValueError):
        return wire
