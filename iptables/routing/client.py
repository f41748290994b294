"""Reads and changes policy routing, and Envoy's ::6 on `lo`.

Policy routing is TPROXY's alone. Its messages are pyroute2's, which nothing here imports unless a
mark is wanted or stale; our own netlink socket carries them.
"""

# ruff: noqa: ANN401 - pyroute2 has no types

import errno
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from iptables import client, netlink, record
from iptables.config import WELL_KNOWN_TABLES
from iptables.errors import SystemRefusedError
from iptables.host import HostFacts
from iptables.log import Log
from iptables.netlink import (
    ACKNOWLEDGE,
    CREATE,
    DUMP,
    EXCLUSIVE,
    FAMILY_NUMBERS,
    LOOPBACK_INDEX,
    Family,
)
from iptables.normal import ALL_BITS
from iptables.record import Record
from iptables.routing.changes import (
    Found,
    LocalRoute,
    MarkRule,
    Marks,
    PassthroughAddress,
    RoutingChange,
)

#: The kernel has no IPv6, so nothing of ours is there.
NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EOPNOTSUPP)
ALREADY_ADDED: Final = (errno.EEXIST,)
ALREADY_REMOVED: Final = (errno.ENOENT, errno.ESRCH)  # for rules, for routes
UNNOTED: Final = "which interfaces have rules of this command cannot be noted"
#: Of linux/rtnetlink.h and linux/fib_rules.h.
NEW_ROUTE, DELETE_ROUTE, GET_ROUTE = 24, 25, 26
NEW_RULE, DELETE_RULE, GET_RULE = 32, 33, 34
RULE_TO_TABLE: Final = 1  # FR_ACT_TO_TBL
ROUTE_LOCAL: Final = 2  # RTN_LOCAL
SCOPE_HOST: Final = 254  # RT_SCOPE_HOST
STATIC: Final = 4  # RTPROT_STATIC: an administrator's, no daemon's


class Library(NamedTuple):
    """pyroute2's messages."""

    rule: Any
    route: Any


#: Loaded once: see `_library`.
LOADED: Final[list[Library]] = []


def find(marks: Marks) -> Found:
    """Return the policy rules that match a mark alone, and the routes to this host.

    Raises:
        SystemRefusedError: the kernel could not be asked.
    """
    rules: list[MarkRule] = []
    routes: list[LocalRoute] = []
    for family in sorted(
        {rule.family for rule in marks.wanted} | {each[0] for each in marks.stale}
    ):
        rules += _mark_rules(family, _listed(_library().rule, GET_RULE, family))
        tables = {rule.table for rule in (*rules, *marks.wanted) if rule.family == family}
        local = [
            route for route in _listed(_library().route, GET_ROUTE, family) if _is_local(route)
        ]
        found = {route.get_attr("RTA_TABLE") for route in local}
        routes += [LocalRoute(family, table) for table in sorted(tables & found)]
    return Found(tuple(rules), tuple(routes))


def _library() -> Library:
    """Return pyroute2's messages, without the rest of it.

    Its package imports all that it has, in 80 ms and 25 MB; these two modules take 10 ms and 4 MB.
    So they are given a package that is empty for as long as they are loaded.
    """
    if LOADED:
        return LOADED[0]
    whole = sys.modules.get("pyroute2")
    if not whole:
        import importlib.util  # noqa: PLC0415 - as pyroute2

        spec = importlib.util.find_spec("pyroute2")
        if not spec:
            raise SystemRefusedError("pyroute2, which TPROXY's routes need, is not installed")
        sys.modules["pyroute2"] = importlib.util.module_from_spec(spec)
    try:
        from pyroute2.netlink.rtnl.fibmsg import fibmsg  # noqa: PLC0415 - see above
        from pyroute2.netlink.rtnl.rtmsg import rtmsg  # noqa: PLC0415 - see above
    finally:
        if not whole:
            del sys.modules["pyroute2"]
    LOADED.append(Library(fibmsg, rtmsg))
    return LOADED[0]


def _listed(message: Any, kind: int, family: Family) -> list[Any]:
    """Return the messages of a dump, decoded."""
    asked = message()
    asked["family"] = FAMILY_NUMBERS[family]
    try:
        answers = client.dump(netlink.encode(kind, DUMP, _body(asked)))
    except OSError as error:
        if error.errno in NO_SUCH_FAMILY:
            return []
        text = f"failed to read policy rules and routes: {client.reason(error.errno or 0)}"
        raise SystemRefusedError(text) from error
    decoded = [message(netlink.encode(each.kind, each.flags, each.body)) for each in answers]
    for each in decoded:
        each.decode()
    return decoded


def _body(message: Any) -> bytes:
    """Return a message without the header, which is ours."""
    message.encode()
    return bytes(message.data[netlink.HEADER.size :])


def _mark_rules(family: Family, found: Sequence[Any]) -> Iterator[MarkRule]:
    for rule in found:
        mark, table = rule.get_attr("FRA_FWMARK"), rule.get_attr("FRA_TABLE")
        is_plain = rule["action"] == RULE_TO_TABLE and not rule["src_len"] and not rule["dst_len"]
        is_whole = rule.get_attr("FRA_FWMASK") == ALL_BITS
        if is_plain and is_whole and mark and table not in WELL_KNOWN_TABLES:
            yield MarkRule(family, mark, table, rule.get_attr("FRA_PRIORITY") or 0)


def _is_local(route: Any) -> bool:
    is_default = route["dst_len"] == 0 and route["type"] == ROUTE_LOCAL
    return is_default and bool(route.get_attr("RTA_OIF") == LOOPBACK_INDEX)


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


@contextmanager
def noted(
    before: Record | None, after: Record | None, facts: HostFacts, log: Log
) -> Iterator[None]:
    """Note during the block whose the rules of interfaces may be, and after it whose they are.

    Where that cannot be noted, it is said: a later run then warns of rules that it leaves.
    """
    alias = facts.loopback_alias
    if not record.is_free(alias):
        if after:
            log.write("warn", f"{UNNOTED}: lo has the alias '{alias}'")
        yield
        return
    during, final = record.render(record.merged(before, after)), record.render(after)
    if after and not final:
        log.write("warn", f"{UNNOTED}: there are too many for an alias of lo")
    _note(alias, during, log)
    try:
        yield
    except BaseException:
        _note(during, alias, log)
        raise
    _note(during, final, log)


def _note(old: str, new: str, log: Log) -> None:
    if new == old:
        return
    try:
        client.set_loopback_alias(new)
    except SystemRefusedError as error:
        log.write("warn", f"{UNNOTED}: {error}")


def _make(change: RoutingChange) -> bool:
    """Make a change; return False where another run has made it already."""
    if not isinstance(change.item, PassthroughAddress):
        return _change_routing(change.item, is_addition=change.is_addition)
    if change.is_addition:
        return client.add_passthrough_address()
    return client.remove_passthrough_address()


def _change_routing(item: MarkRule | LocalRoute, *, is_addition: bool) -> bool:
    if isinstance(item, MarkRule):
        kind, body = NEW_RULE if is_addition else DELETE_RULE, _body(_rule(item))
    else:
        kind = NEW_ROUTE if is_addition else DELETE_ROUTE
        body = _body(_route(item, protocol=STATIC if is_addition else 0))
    flags = ACKNOWLEDGE | (CREATE | EXCLUSIVE if is_addition else 0)
    number = client.change(netlink.encode(kind, flags, body))
    if number in (ALREADY_ADDED if is_addition else ALREADY_REMOVED):
        return False
    if number:
        text = f"failed to configure routes: {item.text}: {client.reason(number)}"
        raise SystemRefusedError(text)
    return True


def _rule(item: MarkRule) -> Any:
    rule = _library().rule()
    rule["family"] = FAMILY_NUMBERS[item.family]
    rule["action"] = RULE_TO_TABLE
    rule["attrs"] = [
        ("FRA_TABLE", item.table),
        ("FRA_FWMARK", item.mark),
        ("FRA_FWMASK", ALL_BITS),
        ("FRA_PRIORITY", item.priority),
    ]
    return rule


def _route(item: LocalRoute, *, protocol: int) -> Any:
    """Return the message of a route; one that is to go may be of any protocol, 0."""
    route = _library().route()
    route["family"] = FAMILY_NUMBERS[item.family]
    route["type"] = ROUTE_LOCAL
    route["scope"] = SCOPE_HOST
    route["proto"] = protocol
    route["attrs"] = [("RTA_TABLE", item.table), ("RTA_OIF", LOOPBACK_INDEX)]
    return route
