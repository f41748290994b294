"""Reads what each variant of the tools has installed, and gives it the input that changes it.

The legacy tools wait for their lock; the nft tools have none.

Source: traffic-capture.md section 8.
"""

import os
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Final

from iptables.config import Actions, Variant
from iptables.decide import Store
from iptables.errors import SystemRefusedError
from iptables.lock.client import xtables_holder
from iptables.netlink import FAMILIES, IPV6, Family
from iptables.process import (
    CANNOT_RUN,
    EXHAUSTED,
    KILL,
    NOT_FOUND,
    Command,
    Result,
    lacks_net_admin,
    run_all,
)
from iptables.refusal import NEEDS_RIGHTS, refusal, summary

VARIANTS: Final[tuple[Variant, ...]] = ("legacy", "nft")
RESOURCE_PROBLEM: Final = 4  # the tools' exit status when a lock or the kernel is busy
LOCK_SECONDS: Final = 30
FIRST_WAITING: Final = (1, 6, 2)  # the release since which the legacy tools know --wait
LOCKLESS: Final = "can't open lock file"
#: Where the legacy tools see which tables there are.
PROC_NET: Final = "/proc/net"
UNTOLD: Final = "it prints the tables that /proc lists, which is not there"
UNRUN: Final = (NOT_FOUND, CANNOT_RUN, EXHAUSTED)
TABLE_MODULES: Final[Mapping[tuple[Variant, Family], str]] = {
    ("legacy", 4): "iptable_{}",
    ("legacy", 6): "ip6table_{}",
    ("libiptc", 4): "iptable_{}",
    ("libiptc", 6): "ip6table_{}",
}


def read_usable(actions: Actions) -> list[Store]:
    """Return what `read_stores` does, if this process may look at all.

    Raises:
        SystemRefusedError: it may not. The legacy tools then read nothing and say so to nobody:
            that must not count as clean.
    """
    stores = read_stores(actions)
    if any(store.problem for store in stores) and lacks_net_admin():
        raise SystemRefusedError(NEEDS_RIGHTS)
    return stores


def read_stores(actions: Actions) -> list[Store]:
    """Return what each variant of the tools has installed, of both families.

    The tools without a variant in their name are asked only where no other can be used, and
    libiptc, which has the tables of the legacy tools, where there is no tool at all.

    Raises:
        SystemRefusedError: one cannot be read now, though it could at another time. Rules of ours
            may be there, and another variant must not be taken for that.

    Source: traffic-capture.md section 8.1.
    """
    stores = _read_all(actions)
    if unread := [store.problem for store in stores if store.is_unread]:
        raise SystemRefusedError(f"{'; '.join(unread)}: what is installed cannot be read")
    return stores


def _read_all(actions: Actions) -> list[Store]:
    if actions.backend == "libiptc":
        return read([Store(family, kind) for family in FAMILIES for kind in ("libiptc", "nft")])
    stores = read([Store(family, variant) for family in FAMILIES for variant in VARIANTS])
    usable = {store.family for store in stores if not store.problem}
    if actions.forced_variant is None and len(usable) < len(FAMILIES):
        plain = [Store(family, "plain") for family in FAMILIES if family not in usable]
        stores += _knowing_lock(read(plain))
    if actions.forced_variant is None and not actions.backend:
        present = {store.family for store in stores if not store.is_absent}
        stores += read([Store(family, "libiptc") for family in FAMILIES if family not in present])
    return stores


def read(stores: Sequence[Store]) -> list[Store]:
    """Return the stores with their dump, or the reason why there is none.

    A dump that cannot be read is a problem and never an empty one: rules of ours may be there.
    """
    by_tool = [store for store in stores if store.variant != "libiptc"]
    results = dict(zip(by_tool, run_all([_save(store) for store in by_tool]), strict=True))
    found = []
    for store in stores:
        result = results.get(store) or _libiptc().save(store.family)
        reason = _reason(store, result) if result.status else _unlisted(store)
        problem = f"{tool(store, 'save')}: {reason}" if reason else ""
        found.append(
            store._replace(
                dump=result.out,
                problem=problem,
                is_absent=result.status == NOT_FOUND,
                is_unread=result.status in (EXHAUSTED, -KILL),
                is_untold=reason == UNTOLD,
                waits=store.waits or store.variant in ("legacy", "libiptc"),
            )
        )
    return found


def _unlisted(store: Store) -> str:
    """Return why a dump that was printed is not all: the legacy tools print what /proc lists."""
    return UNTOLD if store.variant == "legacy" and not os.access(PROC_NET, os.F_OK) else ""


def _save(store: Store) -> Command:
    return Command((tool(store, "save"),))


def _libiptc() -> ModuleType:
    from iptables.libiptc import client  # noqa: PLC0415 - where there are tools it is not needed

    return client


def _knowing_lock(stores: Sequence[Store]) -> list[Store]:
    """Return stores of unnamed variant, knowing whether their tools take a lock.

    Source: traffic-capture.md section 8.2.
    """
    found = []
    results = run_all([Command((tool(store), "--version")) for store in stores])
    for store, result in zip(stores, results, strict=True):
        version = re.search(r"v(\d+)\.(\d+)\.(\d+)", result.out)
        number = tuple(map(int, version.groups())) if version else (0,)
        waits = number >= FIRST_WAITING and "nf_tables" not in result.out
        found.append(store._replace(waits=waits))
    return found


def tool(store: Store, purpose: str = "") -> str:
    """Return the name of a store's tool, such as 'ip6tables-nft-save'; libiptc has none."""
    if store.variant == "libiptc":
        return store.variant
    base = "ip6tables" if store.family == IPV6 else "iptables"
    variant = "" if store.variant == "plain" else store.variant
    return "-".join(filter(None, (base, variant, purpose)))


def restore(store: Store, text: str) -> Result:
    """Change the rules of a store: each table of the input whole or not at all."""
    if store.variant == "libiptc":
        result: Result = _libiptc().restore(store.family, text)
        return result
    wait = (f"--wait={LOCK_SECONDS}",) if store.waits else ()
    (result,) = run_all([Command((tool(store, "restore"), "--noflush", *wait), text)])
    return result


def is_busy(store: Store, result: Result) -> bool:
    """Return whether a change may be accepted at another time: the lock was held, or no room."""
    is_locked = store.waits and result.status == RESOURCE_PROBLEM and LOCKLESS not in result.err
    return is_locked or result.status == EXHAUSTED


def refusal_of(store: Store, text: str, result: Result) -> str:
    """Return one line: what refused an input, and why."""
    name = tool(store, "restore")
    if result.status in UNRUN:
        return f"{name}: {result.err}"
    module = TABLE_MODULES.get((store.variant, store.family), "nft_compat")
    said = refusal(name, result.status, result.err, text, module)
    if result.status != RESOURCE_PROBLEM or not store.waits:
        return said
    if LOCKLESS in said:
        return f"{said} (XTABLES_LOCKFILE may name another that can be written)"
    return f"{said} ({xtables_holder()})"


def _reason(store: Store, result: Result) -> str:
    if result.status in UNRUN or store.variant == "libiptc":
        return result.err
    return ": ".join(filter(None, (f"exit status {result.status}", summary(result.err))))
