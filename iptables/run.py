"""Makes the installed rules as planned: reads, decides, changes everything or nothing.

A change is several commits, one for each table of each family, and is seen through by a process
that outlives this one: see iptables/detached.

Reads run at once, changes one after the other: two nft tools that commit at the same time make
one of them start over, and then 1.8.9 loses the chains that its input both deletes and makes.

Source: traffic-capture.md sections 8, 9 and 17.22.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Final, NamedTuple

from iptables import decide, installed, ownership
from iptables.config import Actions, Variant
from iptables.decide import Change, Decision, Plans, Store
from iptables.detached.process import see_through
from iptables.errors import SystemRefusedError
from iptables.host import Families
from iptables.lock.client import xtables_holder
from iptables.log import Log
from iptables.netlink import Family
from iptables.normal import Names
from iptables.process import CANNOT_RUN, NOT_FOUND, Command, Result, run_all
from iptables.record import Record
from iptables.refusal import NEEDS_RIGHTS, cause, refusal, summary
from iptables.rules import Table

FAMILIES: Final[tuple[Family, ...]] = (4, 6)
VARIANTS: Final[tuple[Variant, ...]] = ("legacy", "nft")
RESOURCE_PROBLEM: Final = 4  # the tools' exit status when a lock or the kernel is busy
#: Seconds before each attempt at a change; only a busy kernel or lock is tried again.
PAUSES: Final = (0.0, 0.05, 0.2)
LOCK_SECONDS: Final = 30
#: How often rules that others change at the same time are read again.
REREADINGS: Final = 3
FIRST_WAITING: Final = (1, 6, 2)  # the release since which the legacy tools know --wait
CAP_NET_ADMIN: Final = 12
LOCKLESS: Final = "can't open lock file"
FINE: Final = Result(0, "", "")
REMOVING: Final = "Performing cleanup of existing iptables"
INSTALLING: Final = "Applying iptables chains and rules"
TABLE_MODULES: Final[Mapping[tuple[Variant, Family], str]] = {
    ("legacy", 4): "iptable_{}",
    ("legacy", 6): "ip6table_{}",
    ("libiptc", 4): "iptable_{}",
    ("libiptc", 6): "ip6table_{}",
}


class Beside(NamedTuple):
    """What changes together with the rules, or not at all."""

    #: Takes the changes to be made; what it returns holds while they are made.
    around: Callable[[Sequence[Change]], AbstractContextManager[None]] = lambda _: nullcontext()
    #: To be done once they are made; if it cannot be, they are undone.
    afterwards: Callable[[], None] = lambda: None


ALONE: Final = Beside()


class RefusedError(SystemRefusedError):
    """A tool refused a change, and all of it was undone; `trouble` says where that failed."""

    def __init__(self, change: Change, reason: str, trouble: Sequence[str]) -> None:
        super().__init__(change, reason, trouble)
        self.change = change
        self.reason = reason
        self.trouble = trouble

    def __str__(self) -> str:
        """Return the reason, and what went wrong after it, in one line."""
        return "; ".join([self.reason, *self.trouble])


def apply(
    plans: Plans,
    actions: Actions,
    families: Families,
    names: Names,
    log: Log,
    *,
    record: Record | None = None,
    beside: Beside = ALONE,
) -> None:
    """Install the plans of the captured families, or with `cleanup_only` remove all of ours.

    Args:
        plans: the rules of both families, captured or not.
        actions: what the user asked for.
        families: which are captured.
        names: numbers of the users and groups that rules name.
        log: where to say what is done.
        record: which interfaces have rules of ours, if that was noted.
        beside: what else changes together with the rules.

    Raises:
        SystemRefusedError: no variant of the tools can do it.
        CaptureError: rules of ours differ from the plan and are not to be replaced.
    """

    def choose(stores: Sequence[Store]) -> Decision:
        return decide.decide(plans, stores, actions, families, names, record=record)

    try:
        decision = _apply(choose, actions, log, beside)
    except SystemRefusedError as error:
        text = cause(str(error), has_net_admin=not lacks_net_admin())
        raise SystemRefusedError(text) from error
    stores = _read(decision.chosen) if decision.changes else decision.chosen
    for store in stores:
        log.write("info", f"Final iptables state (IPv{store.family}):\n{store.dump}")
        if not actions.cleanup_only:
            _verify(store, plans[store.family], names, log)


def _apply(
    choose: Callable[[Sequence[Store]], Decision], actions: Actions, log: Log, beside: Beside
) -> Decision:
    """Try one variant after the other until a change is accepted.

    The change itself is the test of a variant: a probe proves little about every table, match
    and target that the rules need. What a variant refuses is undone before the next is tried.

    Source: traffic-capture.md section 8.1, which probes the nat table.
    """
    stores = read_usable(actions)
    rereadings = REREADINGS
    while True:
        decision = choose(stores)
        for note in decision.notes:
            log.write(note.level, note.text)
        if decision.changes:
            log.write("info", REMOVING if actions.cleanup_only else INSTALLING)
        try:
            _make(decision.changes, log, beside)
        except RefusedError as error:
            now = read_stores(actions) if rereadings else stores
            if not error.trouble and _differ(stores, now):
                stores, rereadings = now, rereadings - 1
                log.write("warn", f"{error}; the rules have changed meanwhile: looking again")
            else:
                stores = _without(stores, error, actions)
                log.write("warn", f"{error}; looking for another variant")
        else:
            return decision


def _make(changes: Sequence[Change], log: Log, beside: Beside) -> None:
    """Make all changes and what goes with them, or nothing of it, also if this run is killed."""

    def make() -> None:
        with beside.around(changes):
            commit(changes, log)
            try:
                beside.afterwards()
            except SystemRefusedError as error:
                trouble = _undo(changes)
                raise SystemRefusedError("; ".join([str(error), *trouble])) from error

    if changes:
        see_through(make)
    else:
        make()


def _differ(before: Sequence[Store], now: Sequence[Store]) -> bool:
    """Return whether somebody else has changed rules between two readings."""
    return [installed.parse_rules(store.dump) for store in before] != [
        installed.parse_rules(store.dump) for store in now
    ]


def _without(stores: Sequence[Store], error: RefusedError, actions: Actions) -> list[Store]:
    """Return the stores, one unusable as it refused; raise where another one cannot help."""
    refused = error.change
    is_only = actions.forced_variant is not None
    if not refused.before.is_empty or error.trouble or is_only or lacks_net_admin():
        raise error
    return [
        store._replace(problem=error.reason) if store == refused.store else store
        for store in stores
    ]


def _verify(store: Store, planned: Sequence[Table], names: Names, log: Log) -> None:
    own = ownership.find_own(installed.parse_saved(store.dump), planned)
    for line in installed.differences(planned, own, names):
        log.write("warn", f"read back, IPv{store.family}: {line}")


def commit(changes: Sequence[Change], log: Log) -> None:
    """Make all changes, or none.

    Raises:
        RefusedError: a tool refused; what the others changed is undone.
    """
    for change in changes:
        name = tool(change.store, "restore")
        log.write(
            "info", f"Running iptables restore with: {name} and the following input:\n{change.text}"
        )
    deadline = time.monotonic() + LOCK_SECONDS
    for pause in PAUSES:
        time.sleep(pause)
        refused = _first_refused(changes)
        if not refused:
            return
        change, result = refused
        trouble = _undo(_touched(changes, change))
        is_last = pause == PAUSES[-1] or time.monotonic() > deadline
        if trouble or result.status != RESOURCE_PROBLEM or is_last:
            raise RefusedError(change, _refusal(change.store, change.text, result), trouble)


def _first_refused(changes: Sequence[Change]) -> tuple[Change, Result] | None:
    """Make changes until one is refused; return that one."""
    for change in changes:
        result = _restore(change.store, change.text)
        if result.status:
            return change, result
    return None


def _touched(changes: Sequence[Change], refused: Change) -> Sequence[Change]:
    """Return what must be undone: what was made, and the refused one if a part of it may be.

    A table changes whole or not at all. Had nothing changed, what is there now would be another
    run's, and undoing would remove that.
    """
    number = changes.index(refused)
    is_partial = refused.text.count("COMMIT\n") > 1
    return changes[: number + 1] if is_partial else changes[:number]


def _undo(changes: Sequence[Change]) -> list[str]:
    """Bring back what was there of ours; return what went wrong, one line each."""
    trouble = []
    for change, store in zip(changes, _read([change.store for change in changes]), strict=True):
        if store.problem:
            trouble.append(f"its rules cannot be put back: {store.problem}")
            continue
        text = decide.undoing(change, store.dump)
        result = _restore(store, text) if text else FINE
        if result.status:
            trouble.append(f"putting its rules back failed: {_refusal(store, text, result)}")
    return trouble


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

    Source: traffic-capture.md section 8.1.
    """
    if actions.backend == "libiptc":
        return _read([Store(family, kind) for family in FAMILIES for kind in ("libiptc", "nft")])
    stores = _read([Store(family, variant) for family in FAMILIES for variant in VARIANTS])
    usable = {store.family for store in stores if not store.problem}
    if actions.forced_variant is None and len(usable) < len(FAMILIES):
        plain = [Store(family, "plain") for family in FAMILIES if family not in usable]
        stores += _knowing_lock(_read(plain))
    if actions.forced_variant is None and not actions.backend:
        present = {store.family for store in stores if not store.is_absent}
        stores += _read([Store(family, "libiptc") for family in FAMILIES if family not in present])
    return stores


def _read(stores: Sequence[Store]) -> list[Store]:
    """Return the stores with their dump, or the reason why there is none.

    A dump that cannot be read is a problem and never an empty one: rules of ours may be there.
    """
    by_tool = [store for store in stores if store.variant != "libiptc"]
    results = dict(zip(by_tool, run_all([_save(store) for store in by_tool]), strict=True))
    found = []
    for store in stores:
        result = results.get(store) or _libiptc().save(store.family)
        problem = f"{tool(store, 'save')}: {_reason(store, result)}" if result.status else ""
        found.append(
            store._replace(
                dump=result.out,
                problem=problem,
                is_absent=result.status == NOT_FOUND,
                waits=store.waits or store.variant in ("legacy", "libiptc"),
            )
        )
    return found


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


def lacks_net_admin() -> bool:
    """Return whether this process may not change packet filter rules; False if that is unknown."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123 - pathlib is slow
            (capabilities,) = (line.split()[1] for line in status if line.startswith("CapEff:"))
    except OSError:
        return False
    return not int(capabilities, 16) >> CAP_NET_ADMIN & 1


def tool(store: Store, purpose: str = "") -> str:
    """Return the name of a store's tool, such as 'ip6tables-nft-save'; libiptc has none."""
    if store.variant == "libiptc":
        return store.variant
    base = "ip6tables" if store.family == 6 else "iptables"  # noqa: PLR2004 - IPv6
    variant = "" if store.variant == "plain" else store.variant
    return "-".join(filter(None, (base, variant, purpose)))


def _restore(store: Store, text: str) -> Result:
    if store.variant == "libiptc":
        result: Result = _libiptc().restore(store.family, text)
        return result
    wait = (f"--wait={LOCK_SECONDS}",) if store.waits else ()
    (result,) = run_all([Command((tool(store, "restore"), "--noflush", *wait), text)])
    return result


def _refusal(store: Store, text: str, result: Result) -> str:
    name = tool(store, "restore")
    if result.status in (NOT_FOUND, CANNOT_RUN):
        return f"{name}: {result.err}"
    module = TABLE_MODULES.get((store.variant, store.family), "nft_compat")
    said = refusal(name, result.status, result.err, text, module)
    if result.status != RESOURCE_PROBLEM or not store.waits:
        return said
    if LOCKLESS in said:
        return f"{said} (XTABLES_LOCKFILE may name another that can be written)"
    return f"{said} ({xtables_holder()})"


def _reason(store: Store, result: Result) -> str:
    if result.status in (NOT_FOUND, CANNOT_RUN) or store.variant == "libiptc":
        return result.err
    return ": ".join(filter(None, (f"exit status {result.status}", summary(result.err))))
