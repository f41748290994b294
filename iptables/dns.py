"""The rules that capture DNS to the agent, and keep its two conversations apart.

The application asks the agent, and the agent asks the real server, perhaps from the same source
port: one tuple for two flows, of which connection tracking would drop one. So the first is
tracked in zone 2 and the second in zone 1. The first assignment wins, which is why those of the
proxy's identities come first. A query that is left alone goes to the server like the agent's, so
it is tracked in that zone too, where the answer will be.

Source: traffic-capture.md sections 5.3, 6.4 and 17.17.
"""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_interface
from typing import Final, Literal, NamedTuple

from iptables.config import DnsCapture
from iptables.netlink import Family
from iptables.rules import TCP, UDP, Address, Jump, Match, Owner, Port, Redirect, Rule, TrackInZone

PORT: Final = "53"
AGENT_PORT: Final = 15053  # on localhost: that is where REDIRECT sends what leaves this host
UPSTREAM_ZONE: Final = TrackInZone(1)
APPLICATION_ZONE: Final = TrackInZone(2)
LENGTHS: Final = {4: 32, 6: 128}


class Spared(NamedTuple):
    """Queries that are not captured, though their server is."""

    matches: tuple[tuple[Match, ...], ...] = ()  #: by whom they are sent, or where they leave
    blocks: tuple[str, ...] = ()  #: to whom they are sent
    is_everything: bool = False

    def has(self, block: str) -> bool:
        """Return whether all queries to a server, such as '10.0.0.7/32', are spared."""
        server = ip_address(block.partition("/")[0])
        return self.is_everything or any(
            server in ip_interface(each).network for each in self.blocks
        )


NOTHING: Final = Spared()


def is_of(ports: str) -> bool:
    """Return whether a port, or a range such as '50:60', is DNS's."""
    first, _, last = ports.partition(":")
    return int(first) <= int(PORT) <= int(last or first)


def rules(
    capture: DnsCapture, families: Sequence[Family], owners: Sequence[Owner], spared: Spared
) -> Iterator[Rule]:
    """Yield the rules of some families together; owners are the proxy's identities."""
    blocks = [
        f"{server}/{LENGTHS[family]}"
        for family in families
        for server in capture.servers.of(family)
    ]
    has_targets = capture.is_all or bool(blocks)
    yield Rule("raw", "OUTPUT", (), Jump("ISTIO_OUTPUT_DNS"), "DNS flows are told apart here")
    if has_targets:
        why = "DNS queries are selected in ISTIO_OUTPUT_DNS"
        yield Rule("nat", "ISTIO_OUTPUT", (), Jump("ISTIO_OUTPUT_DNS"), why)
    yield from _redirects(capture, blocks)
    for owner in owners:
        query = (UDP, Port("destination", PORT), owner)
        why = "the agent asks a server"
        yield Rule("raw", "ISTIO_OUTPUT_DNS", query, UPSTREAM_ZONE, why)
        answer = (UDP, Port("source", str(AGENT_PORT)), owner)
        why = "the agent answers the application"
        yield Rule("raw", "ISTIO_OUTPUT_DNS", answer, APPLICATION_ZONE, why)
    if has_targets:
        yield from _zones(capture, blocks, spared)


def _redirects(capture: DnsCapture, blocks: Sequence[str]) -> Iterator[Rule]:
    targets = [()] if capture.is_all else [(Address("destination", block),) for block in blocks]
    for protocol, redirect in (
        (TCP, Redirect(AGENT_PORT)),
        (UDP, Redirect(AGENT_PORT, "--to-port")),
    ):
        for target in targets:
            matches = (protocol, Port("destination", PORT), *target)
            why = f"DNS over {protocol.name.upper()} goes to the agent"
            yield Rule("nat", "ISTIO_OUTPUT_DNS", matches, redirect, why)


def _zones(capture: DnsCapture, blocks: Sequence[str], spared: Spared) -> Iterator[Rule]:
    why = "answers are told apart here"
    yield Rule("raw", "PREROUTING", (), Jump("ISTIO_INBOUND"), why)
    for block in [""] if capture.is_all else blocks:
        query = (UDP, Port("destination", PORT), *_address("destination", block))
        yield from _queries(query, block, spared)
        answer = (UDP, Port("source", PORT), *_address("source", block))
        why = "a server answers the agent"
        yield Rule("raw", "ISTIO_INBOUND", answer, UPSTREAM_ZONE, why)


def _queries(query: tuple[Match, ...], block: str, spared: Spared) -> Iterator[Rule]:
    """Yield where queries to a server, '' for any, are tracked."""
    left_alone = "this query is excluded from capture and goes to the server, as the agent's do"
    if spared.has(block) if block else spared.is_everything:
        yield Rule("raw", "ISTIO_OUTPUT_DNS", query, UPSTREAM_ZONE, left_alone)
        return
    matches = list(spared.matches)
    if not block:
        matches += [(Address("destination", each),) for each in spared.blocks]
    for match in matches:
        yield Rule("raw", "ISTIO_OUTPUT_DNS", (*query, *match), UPSTREAM_ZONE, left_alone)
    why = "the application asks a server, or rather the agent"
    yield Rule("raw", "ISTIO_OUTPUT_DNS", query, APPLICATION_ZONE, why)


def _address(side: Literal["source", "destination"], block: str) -> tuple[Match, ...]:
    return (Address(side, block),) if block else ()
