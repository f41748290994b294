"""What is a query, and what is not. Source: xds-identity-dns.md section 8.2."""

import dns.edns
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rrset
import dns.tsig
import dns.update
import pytest

from agent.dns.messages.query import Query, read_query
from tests.fakes.dns_messages import EXPLAINED, query, query_wire


def refused(wire: bytes) -> dns.message.Message:
    reply = read_query(wire)
    assert isinstance(reply, bytes)
    assert len(reply) == 12
    return dns.message.from_wire(reply)


def test_a_plain_query_is_read() -> None:
    found = query("WWW.Example.com", "AAAA")

    assert found.name == "www.example.com"
    assert found.qname.to_text() == "WWW.Example.com."
    assert found.about == "www.example.com AAAA"
    assert found.end == len(found.wire)
    assert (found.edns, found.payload, found.dnssec, found.explain) == (-1, 512, False, False)
    assert found.tail == found.wire[2:]


def test_the_root_is_a_name() -> None:
    assert query(".", "NS").about == ". NS"


@pytest.mark.parametrize(("payload", "usable"), [(0, 512), (100, 512), (1232, 1232)])
def test_what_edns_says_is_read(payload: int, usable: int) -> None:
    found = query("a", use_edns=0, payload=payload, want_dnssec=True)

    assert (found.edns, found.payload, found.dnssec) == (0, usable, True)


def test_an_explanation_is_asked_for_by_an_option() -> None:
    other = dns.edns.GenericOption(dns.edns.OptionType.make(65054), b"")

    assert query("a", use_edns=0, options=[other, EXPLAINED]).explain
    assert not query("a", use_edns=0, options=[other]).explain


def test_a_long_query_is_read() -> None:
    """N11d."""
    padding = dns.edns.GenericOption(dns.edns.OptionType.PADDING, bytes(900))

    assert query("a", use_edns=0, options=[padding]).name == "a"


def test_a_notification_is_a_query() -> None:
    message = dns.message.make_query("a", "SOA")
    message.set_opcode(dns.opcode.NOTIFY)

    assert isinstance(read_query(message.to_wire()), Query)


def test_a_signed_query_is_read_unchecked() -> None:
    message = dns.message.make_query("a", "A")
    message.use_tsig(dns.tsig.Key("key.", b"secret"))

    found = read_query(message.to_wire())

    assert isinstance(found, Query)
    assert found.signed


@pytest.mark.parametrize(
    "wire", [b"", bytes(11), query_wire("a")[:11]], ids=["nothing", "zeros", "too short"]
)
def test_what_has_no_header_is_ignored(wire: bytes) -> None:
    assert read_query(wire) is None


def test_a_response_is_ignored() -> None:
    message = dns.message.make_response(dns.message.make_query("a", "A"))

    assert read_query(message.to_wire()) is None


@pytest.mark.parametrize("opcode", [1, 2, 5, 15])
def test_other_operations_are_not_implemented(opcode: int) -> None:
    wire = bytearray(query_wire("a"))
    wire[2] |= opcode << 3

    reply = refused(bytes(wire))

    assert reply.rcode() == dns.rcode.NOTIMP
    assert reply.opcode() == opcode
    assert reply.id == int.from_bytes(wire[:2], "big")
    assert reply.flags & dns.flags.RD


@pytest.mark.parametrize(
    "counts", [(0, 0, 0, 0), (2, 0, 0, 0), (1, 2, 0, 0), (1, 0, 2, 0), (1, 0, 0, 3)]
)
def test_other_numbers_of_records_are_a_format_error(counts: tuple[int, ...]) -> None:
    wire = query_wire("a")
    numbers = b"".join(count.to_bytes(2, "big") for count in counts)

    reply = refused(wire[:4] + numbers + wire[12:])

    assert reply.rcode() == dns.rcode.FORMERR
    assert reply.question == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x01a\x00\x00\x01",
        b"\x01a\x00\x00\x01\x00\x01more",
        b"\x40a\x00\x00\x01\x00\x01",
        b"\xc0\x0c\x00\x01\x00\x01",
        b"\xc0\x0a\x00\x01\x00\x01",  # a pointer to two bytes that are zero: the root
    ],
)
def test_what_cannot_be_read_is_a_format_error(body: bytes) -> None:
    header = bytes.fromhex("1234 0100 0001 0000 0000 0000")

    assert refused(header + body).rcode() == dns.rcode.FORMERR


def test_an_extended_error_that_is_no_text_is_a_format_error() -> None:
    option = dns.edns.GenericOption(dns.edns.OptionType.EDE, b"\0\0\xff")

    reply = refused(query_wire("a", use_edns=0, options=[option]))

    assert reply.rcode() == dns.rcode.FORMERR
