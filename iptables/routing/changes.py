"""What rules need from the network beside them: Envoy's ::6, and routes for marked packets.

Envoy's inbound passthrough cluster binds ::6, which `lo` must have. In TPROXY mode packets carry
a mark, and a policy rule sends what is marked to a routing table whose only route leads to this
host, whatever the destination.

Everything is added before the packet filter's rules and removed before them: should the run be
killed in between, the rules or the configuration still tell the next run what to finish.

Source: traffic-capture.md sections 6.5, 10, 17.2 and 17.3.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from iptables.config import Actions, CaptureConfig
from iptables.host import HostFacts
from iptables.installed import Own
from iptables.netlink import FAMILIES, PASSTHROUGH_IPV6, Family
from iptables.normal import mark_of

#: What the kernel gives the first rule of a namespace: just before table main.
PRIORITY: Final = 32765


class PassthroughAddress(NamedTuple):
    """::6/128 on `lo`."""

    @property
    def text(self) -> str:
        """Return what the log calls it."""
        return f"{PASSTHROUGH_IPV6} address on the loopback iface"


class MarkRule(NamedTuple):
    """A policy rule: packets with a mark are routed by a table."""

    family: Family
    mark: int
    table: int
    priority: int = PRIORITY

    @property
    def text(self) -> str:
        """Return what the log calls it."""
        return f"IPv{self.family} policy rule: fwmark {self.mark} lookup {self.table}"


class LocalRoute(NamedTuple):
    """A route in a table: every destination is this host."""

    family: Family
    table: int

    @property
    def text(self) -> str:
        """Return what the log calls it."""
        return f"IPv{self.family} route: local default dev lo table {self.table}"


Item = PassthroughAddress | MarkRule | LocalRoute


class Found(NamedTuple):
    """Policy rules that match a mark and nothing else, and routes such as ours."""

    rules: tuple[MarkRule, ...] = ()
    routes: tuple[LocalRoute, ...] = ()


class RoutingChange(NamedTuple):
    """An item to add or to remove."""

    item: Item
    is_addition: bool

    @property
    def reverse(self) -> "RoutingChange":
        """Return what undoes it."""
        return RoutingChange(self.item, is_addition=not self.is_addition)


class Marks(NamedTuple):
    """Marks whose packets are, or no longer are, to be routed to this host."""

    wanted: tuple[MarkRule, ...] = ()  #: of the configuration
    stale: frozenset[tuple[Family, int]] = frozenset()  #: of rules that go


def marks(
    config: CaptureConfig,
    installed: Iterable[tuple[Family, Own]],
    actions: Actions,
    others: Iterable[tuple[Family, int]] = (),
) -> Marks:
    """Return the marks of the configuration and of rules that are installed.

    Args:
        config: where its mode is not TPROXY, nothing is wanted.
        installed: what is ours, by family.
        actions: a cleanup wants nothing, and finds what the configuration would have added.
        others: marks that rules of another backend give until now.
    """
    inbound = config.inbound
    wanted: tuple[MarkRule, ...] = ()
    if inbound.mode == "TPROXY" and not inbound.ports.is_empty:
        families = FAMILIES if actions.cleanup_only else config.families.captured
        wanted = tuple(MarkRule(family, inbound.mark, inbound.route_table) for family in families)
    stale = set(others) | {
        (family, mark)
        for family, own in installed
        for spec in own.chains.get(("mangle", "ISTIO_TPROXY"), ())
        if (mark := mark_of(spec)) is not None
    }
    if actions.cleanup_only:
        return Marks((), frozenset(stale | {(rule.family, rule.mark) for rule in wanted}))
    return Marks(wanted, frozenset(stale - {(rule.family, rule.mark) for rule in wanted}))


def mark_changes(marks: Marks, found: Found) -> list[RoutingChange]:
    """Return what makes policy routing as wanted: each rule once, none that is stale."""
    routes = [LocalRoute(rule.family, rule.table) for rule in marks.wanted]
    added: list[Item] = [route for route in routes if route not in found.routes]
    removed: list[Item] = []
    for wanted in marks.wanted:
        same = [rule for rule in found.rules if rule[:3] == wanted[:3]]
        added += [wanted] if not same else []
        removed += same[1:]
    stale = [rule for rule in found.rules if (rule.family, rule.mark) in marks.stale]
    removed += stale
    for family, table in dict.fromkeys((rule.family, rule.table) for rule in stale):
        route = LocalRoute(family, table)
        if route in found.routes and route not in routes:
            removed.append(route)
    return [
        *(RoutingChange(item, is_addition=True) for item in added),
        *(RoutingChange(item, is_addition=False) for item in removed),
    ]


def address_changes(
    config: CaptureConfig, facts: HostFacts, actions: Actions
) -> list[RoutingChange]:
    """Return what makes ::6 be there exactly where IPv6 is captured; a cleanup removes it."""
    is_there = any(item.address == PASSTHROUGH_IPV6 for item in facts.addresses)
    is_wanted = config.families.ipv6 and not actions.cleanup_only
    if is_there == is_wanted or (is_there and not actions.cleanup_only):
        return []
    return [RoutingChange(PassthroughAddress(), is_addition=is_wanted)]
