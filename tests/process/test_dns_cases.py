"""The cases of the specification, over UDP and TCP. Source: xds-identity-dns.md section 11.4."""

from collections.abc import AsyncIterator

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import pytest

from tests.fakes.dns_messages import addresses
from tests.fakes.dns_resolver import KNOWN, KNOWN_IP, Client, Over, dns_proxy, resolver
from tests.fakes.dns_table import DETAILS


@pytest.fixture(params=["series", "parallel"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with (
        resolver() as first,
        resolver() as second,
        dns_proxy(first.server, second.server, parallel=request.param == "parallel") as made,
    ):
        yield made


OVER = pytest.mark.parametrize("over", ["udp", "tcp"])


@OVER
@pytest.mark.parametrize(
    ("name", "ip"),
    [
        ("www.google.com.", "1.1.1.1"),
        ("productpage.ns1.svc.cluster.local.", "9.9.9.9"),
        ("productpage.ns1.", "9.9.9.9"),
        ("productpage.", "9.9.9.9"),
        ("example.ns2.", "10.10.10.10"),
        ("example.ns2.svc.", "10.10.10.10"),
        ("example.ns2.svc.cluster.local.", "10.10.10.10"),
        ("svc-with-alt.", "15.15.15.15"),
        ("svc-with-alt.ns1.", "15.15.15.15"),
        ("svc-with-alt.ns1.svc.", "15.15.15.15"),
        ("dual.localhost.", "2.2.2.2"),
        ("foo.wildcard.", "10.10.10.10"),
    ],
)
async def test_a_name_of_the_table(client: Client, name: str, ip: str, over: Over) -> None:
    """T-D1, T-D4, T-D7, T-D8, T-D10, T-D12."""
    reply = await client.ask(name, over=over)

    assert [rrset.to_text() for rrset in reply.answer] == [f"{name} 30 IN A {ip}"]
    assert reply.flags & dns.flags.AA


@OVER
@pytest.mark.parametrize(
    ("name", "target", "ip"),
    [
        ("www.google.com.ns1.svc.cluster.local.", "www.google.com.", "1.1.1.1"),
        ("productpage.ns1.ns1.svc.cluster.local.", "productpage.ns1.", "9.9.9.9"),
        ("foo.wildcard.ns1.svc.cluster.local.", "*.wildcard.", "10.10.10.10"),
    ],
)
async def test_a_name_with_the_search_domain(
    client: Client, name: str, target: str, ip: str, over: Over
) -> None:
    """T-D2, T-D6, T-D13."""
    reply = await client.ask(name, over=over)

    assert [rrset.to_text() for rrset in reply.answer] == [
        f"{name} 30 IN CNAME {target}",
        f"{target} 30 IN A {ip}",
    ]


@OVER
async def test_a_name_that_upstream_knows(client: Client, over: Over) -> None:
    """T-D3."""
    reply = await client.ask(KNOWN, over=over)

    assert addresses(reply) == [KNOWN_IP]
    assert not reply.flags & dns.flags.AA


@OVER
@pytest.mark.parametrize(
    ("name", "rdtype"),
    [
        ("productpage.ns1.svc.cluster.local.ns1.svc.cluster.local.", "A"),
        ("details.ns2.", "A"),
        ("productpage.ns1.", "SRV"),
        ("productpage.ns1.", "HTTPS"),
    ],
)
async def test_a_name_that_nobody_knows(client: Client, name: str, rdtype: str, over: Over) -> None:
    """T-D5, T-D19, R-20."""
    assert (await client.ask(name, rdtype, over)).rcode() == dns.rcode.NXDOMAIN


@OVER
async def test_all_addresses_in_changing_order(client: Client, over: Over) -> None:
    """T-D9, R-19."""
    orders = {
        tuple(addresses(await client.ask("details.ns2.svc.cluster.remote.", over=over)))
        for _ in range(20)
    }

    assert all(sorted(order) == list(DETAILS) for order in orders)
    assert len({order[0] for order in orders}) > 1


@OVER
async def test_only_the_family_asked_for(client: Client, over: Over) -> None:
    """T-D10, T-D11, R-17."""
    both = addresses(await client.ask("dual.localhost.", "AAAA", over))
    none = await client.ask("ipv6.localhost.", "A", over)
    neither = await client.ask("ipv4.localhost.", "AAAA", over)

    assert both == ["2001:db8::ff00:42:8329"]
    assert [(reply.rcode(), reply.answer) for reply in (none, neither)] == [(0, []), (0, [])]


@OVER
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_both_families_are_served(client: Client, host: str, over: Over) -> None:
    assert addresses(await client.ask("productpage.", over=over, host=host)) == ["9.9.9.9"]


@OVER
async def test_the_case_of_the_question_is_kept(client: Client, over: Over) -> None:
    """N10d."""
    local = await client.ask("pRoductPAGE.ns1.", over=over)
    upstream = await client.ask("wWW.bing.COM.", over=over)

    assert local.question[0].name.to_text() == "pRoductPAGE.ns1."
    assert addresses(local) == ["9.9.9.9"]
    assert upstream.question[0].name.to_text() == "wWW.bing.COM."
    assert addresses(upstream) == [KNOWN_IP]


@OVER
@pytest.mark.parametrize(
    ("is_resolver", "rcode"), [(False, dns.rcode.SERVFAIL), (True, dns.rcode.NOERROR)]
)
async def test_before_the_first_table(
    is_resolver: bool,  # noqa: FBT001 - a parameter
    rcode: int,
    over: Over,
) -> None:
    """T-D17."""
    async with (
        resolver() as upstream,
        dns_proxy(upstream.server, table=None, is_resolver=is_resolver) as client,
    ):
        reply = await client.ask(KNOWN, over=over)

        assert reply.rcode() == rcode
        assert client.proxy.problem() == (
            "istio DNS capture is turned ON and DNS lookup table is not ready yet"
        )
