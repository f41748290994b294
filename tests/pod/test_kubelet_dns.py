"""The cluster's nameserver, asked by somebody else's library."""

import dns.message
import dns.rcode
import pytest

from tests.pod.cluster_dns import answer

NAMES = {
    "peer.peers.svc.cluster.local": ["10.96.0.10"],
    "both.peers.svc.cluster.local": ["10.96.0.11", "fd00:96::b", "fd00:96::c"],
}


@pytest.mark.parametrize(
    ("name", "kind", "code", "addresses"),
    [
        ("Peer.peers.svc.cluster.local.", "A", dns.rcode.NOERROR, ["10.96.0.10"]),
        ("peer.peers.svc.cluster.local.", "AAAA", dns.rcode.NOERROR, []),
        ("both.peers.svc.cluster.local.", "A", dns.rcode.NOERROR, ["10.96.0.11"]),
        ("both.peers.svc.cluster.local.", "AAAA", dns.rcode.NOERROR, ["fd00:96::b", "fd00:96::c"]),
        ("peer.", "A", dns.rcode.NXDOMAIN, []),
    ],
)
def test_known_names_have_addresses_and_others_are_not_there(
    name: str, kind: str, code: dns.rcode.Rcode, addresses: list[str]
) -> None:
    query = dns.message.make_query(name, kind, use_edns=True)

    reply = dns.message.from_wire(answer(query.to_wire(), NAMES))

    assert query.is_response(reply)
    assert reply.rcode() == code
    assert [item.to_text() for rrset in reply.answer for item in rrset] == addresses
