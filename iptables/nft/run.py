"""Makes our nftables tables as planned: reads, decides, changes everything in one transaction.

Rules that the iptables tools have of us go once the new ones are there: what is captured by both
for a moment is captured.

Source: traffic-capture.md sections 11, 17.9, 17.10 and 17.11.
"""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from iptables import decide, run
from iptables.config import Actions, CaptureConfig
from iptables.decide import Change
from iptables.detached.process import see_through
from iptables.errors import CaptureError, SystemRefusedError
from iptables.log import Log
from iptables.netlink import FAMILIES, Family
from iptables.nft import state
from iptables.nft.listing import Listing, parse_listing
from iptables.nft.refusal import refusal
from iptables.nft.text import removal, transaction
from iptables.normal import Names
from iptables.plan import plan
from iptables.process import NOT_FOUND, Command, Result, lacks_net_admin, run_all
from iptables.record import Record
from iptables.refusal import cause
from iptables.rules import Table
from iptables.stores.client import PROC_NET, read_stores

LIST: Final = Command(("nft", "-s", "-n", "list", "ruleset"))
VERSION: Final = Command(("nft", "--version"))
OLDEST: Final = (1, 0, 1)  # traffic-capture.md section 11.1
NOTHING: Final = parse_listing("")
#: Where the kernel names the legacy tables that are in use, by family.
LEGACY_TABLES: Final = ("/proc/net/ip_tables_names", "/proc/net/ip6_tables_names")

ENABLED: Final = "native nftables is enabled (--native-nftables, values.global.nativeNftables)"
#: What surrounds a change of rules: given what changes of the iptables tools' rules, and marks that
#: nftables rules give until then.
Around = Callable[[Sequence[Change], Sequence[tuple[Family, int]]], AbstractContextManager[None]]


def apply(
    capture: CaptureConfig,
    actions: Actions,
    names: Names,
    log: Log,
    *,
    record: Record | None,
    around: Around,
) -> None:
    """Install the plan of the captured families, or with `cleanup_only` remove all of ours.

    Raises:
        SystemRefusedError: nft or the kernel cannot do it; everything is as it was.
        CaptureError: somebody else captures this namespace.
    """
    log.write("info", "native nftables enabled, using nft rules for traffic redirection.")
    planned = plan(capture, *capture.families.captured)
    listing = read()
    if listing.is_ambient:
        raise CaptureError(
            "this namespace is captured by ambient mode (nftables tables istio-ambient-...), "
            "whose node agent owns its rules: take it out of ambient mode first"
        )
    change = state.decide(planned, listing, actions, names)
    others = of_iptables(listing, capture, actions, log, record)
    for level, text in change.notes:
        log.write(level, text)

    def make() -> None:
        with around(others, state.marks(listing)):
            _commit(change.text, log)
            _take_over(others, listing, log, is_changed=bool(change.text))

    if change.text or others:
        see_through(make)  # the rules are one transaction, but routes change before them
    else:
        make()
    if actions.cleanup_only:
        log.write("info", "There are no nftables rules to log")
    elif change.text:
        _verify(planned, names, log)


def _take_over(others: Sequence[Change], listing: Listing, log: Log, *, is_changed: bool) -> None:
    """Remove rules of the iptables tools; if they refuse, put the nftables rules back."""
    try:
        run.commit(others, log)
    except SystemRefusedError:
        if is_changed:
            _commit(state.put_back(listing), log)
        raise


def marks() -> list[tuple[Family, int]]:
    """Return the marks that our rules give, by the address family of their packets.

    Raises:
        SystemRefusedError: nft, which is needed to remove the rules too, cannot be used.
    """
    return state.marks(read("nftables has rules of ours of an earlier configuration"))


def remove(log: Log) -> None:
    """Remove our tables, as another backend has taken over.

    Raises:
        SystemRefusedError: they are still there.
    """
    log.write("info", "removing nftables rules of an earlier configuration")
    _commit(removal(), log)


def read(reason: str = ENABLED) -> Listing:
    """Return what is installed.

    Args:
        reason: why nft is needed.

    Raises:
        SystemRefusedError: it cannot be told, or this nft cannot be used.
    """
    listed, version = run_all([LIST, VERSION])
    if listed.status == NOT_FOUND:
        raise SystemRefusedError(
            f"{reason}, but nft is missing in the sidecar container image, "
            "or in CNI mode on the host filesystem: install the package nftables"
        )
    number = re.search(r"v(\d+)\.(\d+)\.(\d+)", version.out)
    if number and tuple(map(int, number.groups())) < OLDEST:
        raise SystemRefusedError(f"nft {number[0]} is too old: expected v1.0.1 or later")
    return _parsed(listed)


def _parsed(listed: Result) -> Listing:
    if listed.status:
        raise _refused(listed, "")
    return parse_listing(listed.out)


def of_iptables(
    listing: Listing,
    capture: CaptureConfig,
    actions: Actions,
    log: Log,
    record: Record | None = None,
) -> tuple[Change, ...]:
    """Return what removes our rules of either variant of the iptables tools.

    Raises:
        SystemRefusedError: there are rules of ours, and no tools that would remove them.
    """
    may_use_legacy = any(map(_read_line, LEGACY_TABLES)) or not os.access(PROC_NET, os.F_OK)
    if not listing.has_iptables and not may_use_legacy:
        return ()
    stores = read_stores(actions._replace(forced_variant=None, backend=""))
    usable = {store.variant for store in stores if not store.problem}
    problems = "; ".join(store.problem for store in stores if store.problem)
    if listing.has_iptables and not usable & {"nft", "plain"}:
        raise SystemRefusedError(f"iptables-nft has rules of ours, but: {problems}")
    if may_use_legacy and not usable & {"legacy", "plain", "libiptc"}:
        log.write("warn", f"legacy iptables tables may have rules of ours: {problems}")
        if not listing.has_iptables:
            return ()
    plans = {family: plan(capture, family) for family in FAMILIES}
    removing = actions._replace(cleanup_only=True)
    decision = decide.decide(plans, stores, removing, capture.families, record=record)
    for note in decision.notes:
        log.write(note.level, note.text)
    return decision.changes


def _read_line(path: str) -> str:
    """Return the first line of a file, '' where there is none."""
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 - pathlib is slow
            return file.readline()
    except OSError:
        return ""


def _commit(text: str, log: Log) -> None:
    if not text:
        return
    log.write("debug", f"Running nft -f - with the following input:\n{text}")
    (result,) = run_all([Command(("nft", "-f", "-"), text)])
    if result.status:
        raise _refused(result, text)


def _refused(result: Result, text: str) -> SystemRefusedError:
    said = refusal(result.status, result.err, text)
    return SystemRefusedError(cause(said, has_net_admin=not lacks_net_admin()))


def _verify(planned: Sequence[Table], names: Names, log: Log) -> None:
    (listed,) = run_all([LIST])
    for line in state.differences(planned, _parsed(listed), names):
        log.write("warn", f"read back: {line}")
    text = transaction(planned)
    log.write("info", f"nftables rules programmed:\n{text}")
