"""The rules that a capture configuration yields, for one address family or for both together.

Each function below yields the rules of one concern, in the reference's order: the text of the
whole is the reference's to the letter, which the golden files hold. A rule that names an address
comes once for each family, the others come once.

Outbound, a packet meets in nat/ISTIO_OUTPUT: excluded ports, Envoy's own loopback traffic, the
application's, the rest of the proxy's, exempt groups, DNS, localhost, excluded and included
destinations. Inbound it meets ISTIO_INBOUND in nat (REDIRECT) or mangle (TPROXY).

Source: traffic-capture.md sections 5 and 6.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from iptables import dns, rules
from iptables.config import CaptureConfig
from iptables.lists import Ranges
from iptables.netlink import IPV4, PASSTHROUGH_IPV6, Family
from iptables.rules import (
    ACCEPT,
    DROP,
    RETURN,
    TCP,
    UDP,
    Address,
    ConnectionState,
    CopyMark,
    Interface,
    Jump,
    Mark,
    Match,
    Owner,
    Port,
    Ports,
    Redirect,
    Rule,
    SetMark,
    Table,
    TableName,
    TransparentProxy,
)

PASSTHROUGH_IPV4: Final = "127.0.0.6/32"  # where Envoy's inbound passthrough cluster binds
OUTBOUND_MARK: Final = 1338  # the proxy's own loopback traffic in TPROXY mode
ESTABLISHED: Final = ConnectionState(("RELATED", "ESTABLISHED"))
LOOPBACK_OUT: Final = Interface("out", "lo")


class Scope(NamedTuple):
    """A configuration, seen from the address families that rules are for."""

    config: CaptureConfig
    families: tuple[Family, ...]

    @property
    def localhost(self) -> list[str]:
        """Return the destinations that are this host, never captured, by family."""
        ipv4 = self.config.outbound.loopback_ipv4
        return [ipv4 if family == IPV4 else "::1/128" for family in self.families]

    @property
    def elsewhere(self) -> list[Address]:
        """Return, by family, what matches destinations that are not this host."""
        return [Address("destination", block, inverted=True) for block in self.localhost]

    @property
    def passthrough(self) -> list[Address]:
        """Return, by family, what matches Envoy's inbound passthrough connections."""
        ipv6 = f"{PASSTHROUGH_IPV6}/128"
        blocks = [PASSTHROUGH_IPV4 if family == IPV4 else ipv6 for family in self.families]
        return [Address("source", block) for block in blocks]

    def destinations(self, ranges: Ranges) -> list[Address]:
        """Return what matches the destinations in ranges, by family."""
        blocks = (block for family in self.families for block in ranges.of(family))
        return [Address("destination", block) for block in blocks]

    @property
    def is_transparent(self) -> bool:
        """Return whether inbound connections keep their destination."""
        return self.config.inbound.mode == "TPROXY"

    @property
    def owners(self) -> list[Owner]:
        """Return the proxy's identities, users first."""
        proxy = self.config.proxy
        return [
            *(Owner("uid", uid) for uid in proxy.uids),
            *(Owner("gid", gid) for gid in proxy.gids),
        ]


def plan(config: CaptureConfig, *families: Family) -> tuple[Table, ...]:
    """Return the tables of rules for a family, or for both; by name, none in mode NONE."""
    if config.inbound.mode == "NONE":
        return ()
    scope = Scope(config, families)
    return rules.tables(
        [
            *interface_rules(config),
            *_invalid(scope),
            *_listeners(scope),
            *_inbound(scope),
            *_excluded_ports(scope),
            *_identities(scope),
            *_groups(scope),
            *_dns(scope),
            *_destinations(scope),
            *_transparent_tail(scope),
        ]
    )


def interface_rules(config: CaptureConfig) -> Iterator[Rule]:
    """Yield the rules of excluded and virtual interfaces, the same in both families.

    Source: section 5.2 steps 1 to 3.
    """
    tables: list[TableName] = ["nat", "mangle"] if config.inbound.mode == "TPROXY" else ["nat"]
    for table in tables:
        for name in config.exclude_interfaces:
            why = f"traffic of {name} is excluded from capture"
            yield Rule(table, "PREROUTING", (Interface("in", name),), RETURN, why)
            yield Rule(table, "OUTPUT", (Interface("out", name),), RETURN, why)
    for name in config.virtual_interfaces:
        why = f"what comes in by {name} is outbound, not inbound"
        yield Rule("nat", "PREROUTING", (Interface("in", name),), RETURN, why, position=1)


def _invalid(scope: Scope) -> Iterator[Rule]:
    """Source: section 5.2 step 4."""
    if scope.config.drop_invalid:
        invalid = ConnectionState(("INVALID",))
        why = "an invalid packet would reset a live connection"
        yield Rule("mangle", "PREROUTING", (invalid,), Jump("ISTIO_DROP"), why)
        yield Rule("mangle", "ISTIO_DROP", (), DROP, why)


def _listeners(scope: Scope) -> Iterator[Rule]:
    """Source: section 5.2 steps 5 to 7."""
    listeners = scope.config.listeners
    tunnel = Port("destination", str(listeners.tunnel_port))
    yield Rule(
        "nat",
        "ISTIO_INBOUND",
        (TCP, tunnel),
        RETURN,
        "tunnelled connections reach Envoy's own listener",
    )
    yield Rule(
        "nat",
        "ISTIO_REDIRECT",
        (TCP,),
        Redirect(listeners.outbound_port),
        "to Envoy's outbound listener",
    )
    yield Rule(
        "nat",
        "ISTIO_IN_REDIRECT",
        (TCP,),
        Redirect(listeners.inbound_port),
        "to Envoy's inbound listener",
    )


def _inbound(scope: Scope) -> Iterator[Rule]:
    """Source: section 5.2 steps 8 to 12."""
    inbound = scope.config.inbound
    if inbound.ports.is_empty:
        return
    if scope.is_transparent:
        yield from _transparent_chains(scope)
    table: TableName = "mangle" if scope.is_transparent else "nat"
    capture = _capture_transparently if scope.is_transparent else _capture_by_redirect
    why = "inbound connections are selected in ISTIO_INBOUND"
    yield Rule(table, "PREROUTING", (TCP,), Jump("ISTIO_INBOUND"), why)
    for ports in inbound.exclude_ports:
        excluded = (TCP, Port("destination", ports))
        why = f"inbound port {ports} is excluded from capture"
        yield Rule(table, "ISTIO_INBOUND", excluded, RETURN, why)
    if inbound.ports.is_all:
        yield from capture((TCP,), "every other inbound port is captured")
    for ports in inbound.ports.items:
        yield from capture((TCP, Port("destination", ports)), f"inbound port {ports} is captured")


def _capture_by_redirect(matches: tuple[Match, ...], why: str) -> Iterator[Rule]:
    yield Rule("nat", "ISTIO_INBOUND", matches, Jump("ISTIO_IN_REDIRECT"), why)


def _capture_transparently(matches: tuple[Match, ...], why: str) -> Iterator[Rule]:
    known = "a connection Envoy holds goes to its socket, whatever the packet's address"
    yield Rule("mangle", "ISTIO_INBOUND", (*matches, ESTABLISHED), Jump("ISTIO_DIVERT"), known)
    yield Rule("mangle", "ISTIO_INBOUND", matches, Jump("ISTIO_TPROXY"), why)


def _transparent_chains(scope: Scope) -> Iterator[Rule]:
    mark = scope.config.inbound.mark
    yield Rule(
        "mangle", "ISTIO_DIVERT", (), SetMark(mark), "the mark routes the packet to this host"
    )
    yield Rule("mangle", "ISTIO_DIVERT", (), ACCEPT, "it is Envoy's already")
    proxy = TransparentProxy(mark, scope.config.listeners.inbound_port)
    why = "to Envoy's inbound listener, destination kept"
    for elsewhere in scope.elsewhere:
        yield Rule("mangle", "ISTIO_TPROXY", (elsewhere, TCP), proxy, why)


def _excluded_ports(scope: Scope) -> Iterator[Rule]:
    """Source: section 5.2 steps 13 to 15."""
    why = "outbound traffic is selected in ISTIO_OUTPUT, any protocol for DNS's sake"
    yield Rule("nat", "OUTPUT", (), Jump("ISTIO_OUTPUT"), why)
    for ports in scope.config.outbound.exclude_ports:
        port = Port("destination", ports)
        why = f"outbound port {ports} is excluded from capture"
        yield Rule("nat", "ISTIO_OUTPUT", (TCP, port), RETURN, why)
        yield Rule("nat", "ISTIO_OUTPUT", (UDP, port), RETURN, why)
    why = "Envoy delivers to the application; back to Envoy it would loop for ever"
    for passthrough in scope.passthrough:
        yield Rule("nat", "ISTIO_OUTPUT", (LOOPBACK_OUT, passthrough), RETURN, why)


def _identities(scope: Scope) -> Iterator[Rule]:
    """Yield what the proxy's own traffic meets; see section 6.2 for each rule.

    Source: section 5.2 steps 16 to 21, 17.6 and 17.7.
    """
    if scope.config.proxy.all_identities:
        for owner in scope.owners:
            yield from _calls_of_itself(scope, owner, spares_dns=scope.config.dns is not None)
        yield from _application_loopback(scope, scope.owners)
        for owner in scope.owners:
            yield _proxy_traffic(owner)
        return
    for owner in scope.owners:
        is_user = owner.kind == "uid"  # the reference spares DNS for users only
        spares_dns = is_user and scope.config.dns is not None
        yield from _calls_of_itself(scope, owner, spares_dns=spares_dns)
        yield from _application_loopback(scope, [owner])
        yield _proxy_traffic(owner)


def _calls_of_itself(scope: Scope, owner: Owner, *, spares_dns: bool) -> Iterator[Rule]:
    tunnel = str(scope.config.listeners.tunnel_port)
    spared: Match = Port("destination", tunnel, inverted=True)
    if spares_dns:
        spared = Ports((dns.PORT, tunnel), inverted=True)
    why = "Envoy calls this pod's own service: over lo it would miss the inbound listener"
    for elsewhere in scope.elsewhere:
        call = (LOOPBACK_OUT, elsewhere, TCP, spared, owner)
        yield Rule("nat", "ISTIO_OUTPUT", call, Jump("ISTIO_IN_REDIRECT"), why)


def _application_loopback(scope: Scope, owners: list[Owner]) -> Iterator[Rule]:
    if scope.config.outbound.has_loopback:
        return  # the user wants loopback captured
    others = [owner._replace(inverted=True) for owner in owners]
    not_dns: list[Match] = [TCP, Port("destination", dns.PORT, inverted=True)]
    yield Rule(
        "nat",
        "ISTIO_OUTPUT",
        (LOOPBACK_OUT, *(not_dns if scope.config.dns else ()), *others),
        RETURN,
        "the application talks to itself or its pod: left alone",
    )


def _proxy_traffic(owner: Owner) -> Rule:
    why = f"traffic of the proxy ({owner.kind} {owner.owner}) must not be captured again"
    return Rule("nat", "ISTIO_OUTPUT", (owner,), RETURN, why)


def _groups(scope: Scope) -> Iterator[Rule]:
    """Source: section 5.2 step 22."""
    outbound = scope.config.outbound
    for group in outbound.exclude_groups:
        why = f"outbound traffic of group {group} is excluded from capture"
        yield Rule("nat", "ISTIO_OUTPUT", (Owner("gid", group),), RETURN, why)
    if not outbound.groups.is_all:
        why = "only outbound traffic of the groups named is captured"
        yield Rule("nat", "ISTIO_OUTPUT", _other_groups(scope), RETURN, why)


def _other_groups(scope: Scope) -> tuple[Match, ...]:
    groups = scope.config.outbound.groups.items
    return tuple(Owner("gid", group, inverted=True) for group in groups)


def _dns(scope: Scope) -> Iterator[Rule]:
    """Source: section 5.2 step 23, 17.17."""
    capture = scope.config.dns
    if not capture:
        return
    spared = dns.NOTHING
    if capture.has_exclusions:
        yield from _excluded_ranges(scope)
        spared = _spared(scope)
    yield from dns.rules(capture, scope.families, scope.owners, spared)


def _spared(scope: Scope) -> dns.Spared:
    """Return whose DNS meets a rule before that one which captures it."""
    config, outbound = scope.config, scope.config.outbound
    matches: list[tuple[Match, ...]] = [
        (Interface("out", name),) for name in config.exclude_interfaces
    ]
    matches += [(Owner("gid", group),) for group in outbound.exclude_groups]
    if not outbound.groups.is_all:
        matches.append(_other_groups(scope))
    return dns.Spared(
        matches=tuple(matches),
        blocks=tuple(each.cidr for each in scope.destinations(outbound.exclude_ranges)),
        is_everything=any(dns.is_of(ports) for ports in outbound.exclude_ports),
    )


def _excluded_ranges(scope: Scope) -> Iterator[Rule]:
    """Source: section 5.2 step 25."""
    for excluded in scope.destinations(scope.config.outbound.exclude_ranges):
        why = f"destination {excluded.cidr} is excluded from capture"
        yield Rule("nat", "ISTIO_OUTPUT", (excluded,), RETURN, why)


def _destinations(scope: Scope) -> Iterator[Rule]:
    """Source: section 5.2 steps 24 to 27."""
    outbound = scope.config.outbound
    why = "traffic to localhost is not captured"
    for block in scope.localhost:
        yield Rule("nat", "ISTIO_OUTPUT", (Address("destination", block),), RETURN, why)
    if not (scope.config.dns and scope.config.dns.has_exclusions):  # else they precede DNS
        yield from _excluded_ranges(scope)
    for ports in outbound.ports:
        why = f"outbound port {ports} is captured"
        to_port = (TCP, Port("destination", ports))
        yield Rule("nat", "ISTIO_OUTPUT", to_port, Jump("ISTIO_REDIRECT"), why)
    if outbound.ranges.is_all:
        why = "every other destination is captured"
        yield Rule("nat", "ISTIO_OUTPUT", (), Jump("ISTIO_REDIRECT"), why)
        yield from _virtual_interfaces(scope, ())
    for included in scope.destinations(outbound.ranges):
        yield from _virtual_interfaces(scope, (included,))
        why = f"destination {included.cidr} is captured"
        yield Rule("nat", "ISTIO_OUTPUT", (included,), Jump("ISTIO_REDIRECT"), why)


def _virtual_interfaces(scope: Scope, matches: tuple[Match, ...]) -> Iterator[Rule]:
    for name in scope.config.virtual_interfaces:
        came_in = (Interface("in", name), *matches)
        why = f"what comes in by {name} is captured as outbound"
        yield Rule("nat", "PREROUTING", came_in, Jump("ISTIO_REDIRECT"), why, position=1)


def _transparent_tail(scope: Scope) -> Iterator[Rule]:
    """Yield the rules that keep marks on the right packets; see section 6.5.

    Source: section 5.4.
    """
    if not scope.is_transparent:
        return
    mark = scope.config.inbound.mark
    marked = Mark("packet", mark)
    why = "replies on this connection must find their way back to Envoy"
    yield Rule("mangle", "PREROUTING", (TCP, marked), CopyMark("save"), why)
    why = "Envoy's delivery to the application keeps its mark"
    yield Rule("mangle", "OUTPUT", (TCP, LOOPBACK_OUT, marked), RETURN, why)
    why = "the proxy's call of its own pod is told apart from the application's"
    for owner in scope.owners:
        for elsewhere in scope.elsewhere:
            call = (elsewhere, TCP, LOOPBACK_OUT, owner)
            yield Rule("mangle", "OUTPUT", call, SetMark(OUTBOUND_MARK), why)
    on_connection = (TCP, Mark("connection", mark))
    why = "the application's reply is routed to Envoy, not out"
    yield Rule("mangle", "OUTPUT", on_connection, CopyMark("restore"), why)
    why = "Envoy's delivery is not captured again"
    yield Rule("mangle", "ISTIO_INBOUND", (TCP, marked), RETURN, why, position=1)
    loopback_in = Interface("in", "lo")
    for passthrough in scope.passthrough:
        delivery = (TCP, passthrough, loopback_in)
        yield Rule("mangle", "ISTIO_INBOUND", delivery, RETURN, why, position=2)
    unmarked = (TCP, loopback_in, Mark("packet", OUTBOUND_MARK, inverted=True))
    why = "the application calls its own pod: left alone"
    yield Rule("mangle", "ISTIO_INBOUND", unmarked, RETURN, why, position=3)
