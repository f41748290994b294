"""Reads and changes policy routing, and Envoy's ::6 on `lo`.

Policy routing is TPROXY's alone and goes through pyroute2, whose import takes 100 ms and 25 MB:
nothing here imports it unless a mark is wanted or stale.
"""

# ruff: noqa: PLC0415 - see above
# ruff: noqa: ANN401 - pyroute2 has no types

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from iptables import client
from iptables.errors import SystemRefusedError
from iptables.log import Log
from iptables.netlink import LOOPBACK_INDEX, Family
from iptables.normal import ALL_BITS
from iptables.routing.changes import (
    WELL_KNOWN_TABLES,
    Found,
    LocalRoute,
    MarkRule,
    Marks,
    PassthroughAddress,
    RoutingChange,
)

FAMILY_NUMBERS: Final = {4: 2, 6: 10}  # AF_INET, AF_INET6
#: The kernel has no IPv6, so nothing of ours is there.
NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EOPNOTSUPP)
ALREADY_ADDED: Final = (errno.EEXIST,)
ALREADY_REMOVED: Final = (errno.ENOENT, errno.ESRCH)  # for rules, for routes
RULE_TO_TABLE: Final = 1  # FR_ACT_TO_TBL
ROUTE_LOCAL: Final = 2  # RTN_LOCAL
EVERYTHING: Final = {4: "0.0.0.0/0", 6: "::/0"}


def find(marks: Marks) -> Found:
    """Return the policy rules that match a mark alone, and the routes to this host.

    Raises:
        SystemRefusedError: the kernel could not be asked.
    """
    if marks.is_empty:
        return Found()
    from pyroute2 import IPRoute

    rules: list[MarkRule] = []
    routes: list[LocalRoute] = []
    with IPRoute() as kernel:
        for family in sorted(
            {rule.family for rule in marks.wanted} | {each[0] for each in marks.stale}
        ):
            number = FAMILY_NUMBERS[family]
            rules += _mark_rules(family, _listed(kernel.get_rules, family=number))
            tables = {rule.table for rule in (*rules, *marks.wanted) if rule.family == family}
            routes += [
                LocalRoute(family, table)
                for table in sorted(tables)
                if any(map(_is_local, _listed(kernel.get_routes, family=number, table=table)))
            ]
    return Found(tuple(rules), tuple(routes))


def _listed(dump: Any, **which: int) -> list[Any]:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        return list(dump(**which))
    except NetlinkError as error:
        if error.code in NO_SUCH_FAMILY:
            return []
        text = f"failed to read policy rules and routes: {client.reason(error.code)}"
        raise SystemRefusedError(text) from error


def _mark_rules(family: Family, found: Sequence[Any]) -> Iterator[MarkRule]:
    for rule in found:
        mark, table = rule.get("fwmark"), rule.get("table")
        is_plain = rule["action"] == RULE_TO_TABLE and not rule["src_len"] and not rule["dst_len"]
        if is_plain and mark and rule.get("fwmask") == ALL_BITS and table not in WELL_KNOWN_TABLES:
            yield MarkRule(family, mark, table, rule.get("priority") or 0)


def _is_local(route: Any) -> bool:
    is_default = route["dst_len"] == 0 and route["type"] == ROUTE_LOCAL
    return is_default and bool(route.get("oif") == LOOPBACK_INDEX)


@contextmanager
def changed(changes: Sequence[RoutingChange], log: Log) -> Iterator[None]:
    """Make changes for the block, and undo them should it fail.

    Raises:
        SystemRefusedError: the kernel refused one; those before it are undone.
    """
    made: list[RoutingChange] = []
    try:
        for change in changes:
            if _make(change):
                made.append(change)
                done = "Added" if change.is_addition else "Removed"
                log.write("info", f"{done} {change.item.text}")
        yield
    except BaseException:
        for change in reversed(made):
            _make(change.reverse)
        raise


def _make(change: RoutingChange) -> bool:
    """Make a change; return False where another run has made it already."""
    if not isinstance(change.item, PassthroughAddress):
        return _change_routing(change.item, is_addition=change.is_addition)
    if change.is_addition:
        return client.add_passthrough_address()
    return client.remove_passthrough_address()


def _change_routing(item: MarkRule | LocalRoute, *, is_addition: bool) -> bool:
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    command = "add" if is_addition else "del"
    family = FAMILY_NUMBERS[item.family]
    try:
        with IPRoute() as kernel:
            if isinstance(item, MarkRule):
                kernel.rule(
                    command,
                    family=family,
                    fwmark=item.mark,
                    fwmask=ALL_BITS,
                    table=item.table,
                    priority=item.priority,
                )
            else:
                kernel.route(
                    command,
                    family=family,
                    type="local",
                    dst=EVERYTHING[item.family],
                    oif=LOOPBACK_INDEX,
                    scope="host",
                    table=item.table,
                )
    except NetlinkError as error:
        if error.code in (ALREADY_ADDED if is_addition else ALREADY_REMOVED):
            return False
        text = f"failed to configure routes: {item.text}: {client.reason(error.code)}"
        raise SystemRefusedError(text) from error
    return True
