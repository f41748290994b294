"""The name table of the specification's cases, and tables as istiod serialises them."""

from collections.abc import Iterable

from agent.dns.names import Entry, Names, make_place
from agent.protobuf.wire import message

NAMESPACE = "ns1"
DOMAIN = "ns1.svc.cluster.local"
SEARCH = "ns1.svc.cluster.local"
KUBERNETES = "Kubernetes"


def kubernetes(short: str, namespace: str, *ips: str, domain: str = "cluster.local") -> Entry:
    return Entry(f"{short}.{namespace}.svc.{domain}", ips, KUBERNETES, short, namespace)


def external(host: str, *ips: str) -> Entry:
    return Entry(host, ips, "External")


DETAILS = tuple(f"{number}.{number}.{number}.{number}" for number in (11, 12, 13, 14))
#: Source: xds-identity-dns.md section 11.4.
TABLE = (
    external("www.google.com", "1.1.1.1"),
    kubernetes("productpage", "ns1", "9.9.9.9"),
    kubernetes("example", "ns2", "10.10.10.10"),
    kubernetes("svc-with-alt", "ns1", "15.15.15.15"),
    kubernetes("details", "ns2", *DETAILS, domain="cluster.remote"),
    external("dual.localhost", "2.2.2.2", "2001:db8::ff00:42:8329"),
    external("ipv4.localhost", "2.2.2.2"),
    external("ipv6.localhost", "2001:db8::ff00:42:8329"),
    external("*.wildcard", "10.10.10.10"),
)


def serialised(entries: Iterable[Entry]) -> bytes:
    """Return a NameTable; proto3 leaves empty fields out."""
    return b"".join(message((1, _pair(entry))) for entry in entries)


def _pair(entry: Entry) -> bytes:
    texts = [(number, text) for number, text in enumerate(entry[2:5], 2) if text]
    info = message(*((1, ip) for ip in entry.ips), *texts, *((5, host) for host in entry.alt_hosts))
    return message((1, entry.host), (2, info))


def names(*entries: Entry, search: str = SEARCH, domain: str = DOMAIN) -> Names:
    """Return a table made of these entries, in a pod of ns1."""
    made = Names(make_place(NAMESPACE, domain), search)
    for entry in entries:
        made.add(entry)
    return made
