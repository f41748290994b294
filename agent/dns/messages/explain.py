"""Where an answer comes from, told in the answer itself.

A query with an option of ours is answered with the reasons, each as an extended DNS error, which
other tools show too: `dig -p 15053 @127.0.0.1 NAME +ednsopt=65053`. So what is explained is this
very answer. Answers from the table are explained by answer.py.

Source: RFC 8914.
"""

from collections.abc import Sequence

import dns.edns
import dns.exception
import dns.message

from agent.dns.messages.query import EXPLAIN, MOST_BYTES, OWN_PAYLOAD, Query


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
