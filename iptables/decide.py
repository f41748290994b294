"""What to do with the rules that are there: nothing, install, replace, remove, or refuse.

Everything is decided per family from what the tools' variants (legacy and nft each keep rules of
their own) have installed, so every run in a namespace chooses the same variant.

Source: traffic-capture.md sections 8.1 and 9, with 17.1, 17.11, 17.12, 17.23, 17.26 and 17.27.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from iptables import installed, ownership
from iptables.config import Actions, Variant
from iptables.errors import CaptureError, SystemRefusedError
from iptables.host import Families
from iptables.installed import Hook, Own
from iptables.netlink import IPV6, Family
from iptables.normal import NO_NAMES, Names
from iptables.record import Record
from iptables.rules import Table

Plans = Mapping[Family, Sequence[Table]]

CLEAN: Final = "Clean-state detected, new iptables are needed"
SAME: Final = "Found compatible residues of old iptables rules/chains, reconciliation not needed"
DRIFTED: Final = "Found residues of old iptables rules/chains, reconciliation is recommended"


UNCERTAIN: Final = (
    "IPv{}: {} {} keeps '{}', which others may have put there, as no run of this command noted "
    "whose it is: if it is of an interface that was excluded or virtual before, --cleanup-only "
    "with that interface removes it too"
)
UNTOLD: Final = "{}: what it may have of ours is left as it is"
INSTALL: Final = (
    ": install the package iptables, or python-iptables (mesh-agent[libiptc]), "
    "or nftables for --native-nftables"
)


class Store(NamedTuple):
    """The rules of one family as one variant of the tools keeps them."""

    family: Family
    variant: Variant
    dump: str = ""  #: what its iptables-save prints
    problem: str = ""  #: why it cannot be used
    is_absent: bool = False  #: there is no such tool
    is_unread: bool = False  #: it cannot be used now, but could at another time
    is_untold: bool = False  #: it may have rules of ours that its tool does not print
    waits: bool = False  #: its tools take a lock, and must be told to wait for it

    @property
    def name(self) -> str:
        """Return what the user knows it by."""
        return f"iptables-{self.variant}" if self.has_tools else self.variant

    @property
    def has_tools(self) -> bool:
        """Return whether programs keep it, which may be absent."""
        return self.variant != "libiptc"


class Change(NamedTuple):
    """Restore input for one store."""

    store: Store
    text: str
    planned: tuple[Table, ...]  #: what is there afterwards; empty after a cleanup
    before: Own  #: what was there of ours, to be put back should anything fail


class Note(NamedTuple):
    """A line for the log."""

    level: str
    text: str


class Decision(NamedTuple):
    """What is to be changed, all of it or nothing."""

    changes: tuple[Change, ...] = ()
    notes: tuple[Note, ...] = ()
    chosen: tuple[Store, ...] = ()  #: one for each family that is captured


class Holding(NamedTuple):
    """A store and what is ours in it."""

    store: Store
    own: Own


class _Found(NamedTuple):
    """One captured family, looked at."""

    planned: tuple[Table, ...]
    chosen: Store
    holdings: tuple[Holding, ...]
    drift: tuple[str, ...]  #: how what is ours differs from the plan, one line each
    is_unfinished: bool = False  #: as planned, but whole tables are missing: a run was killed

    @property
    def is_clean(self) -> bool:
        return all(holding.own.is_empty for holding in self.holdings)


def decide(
    plans: Plans,
    stores: Sequence[Store],
    actions: Actions,
    families: Families,
    names: Names = NO_NAMES,
    *,
    record: Record | None = None,
) -> Decision:
    """Return what to change so that the captured families are as planned, or all free of us.

    Args:
        plans: the rules of both families, captured or not.
        stores: what each variant has, of both families.
        actions: what the user asked for.
        families: whether IPv6 is captured, and whether IPv4 tools may fail.
        names: numbers of the users and groups that rules name.
        record: which interfaces have rules of ours, if that was noted.

    Raises:
        SystemRefusedError: no variant can be used.
        CaptureError: rules of ours differ from the plan and are not to be replaced.
    """
    if any(ownership.is_ambient(installed.parse_saved(store.dump)) for store in stores):
        raise CaptureError(
            f"this namespace is captured by ambient mode (chain {ownership.AMBIENT_CHAIN}), "
            "whose node agent owns its rules: take it out of ambient mode first"
        )
    notes = [Note("warn", UNTOLD.format(store.problem)) for store in stores if store.is_untold]
    found = []
    aside: list[Holding] = []
    for family, planned in plans.items():
        mine = [store for store in stores if store.family == family]
        if family not in families.captured:
            aside = _holdings(mine, planned, record)
            continue
        try:
            holdings = _holdings(mine, planned, record)
            forced = actions.forced_variant
            looked = _look(family, tuple(planned), mine, holdings, forced=forced, names=names)
            found.append(looked)
        except SystemRefusedError as error:
            if family == IPV6 or families.has_ipv4:
                raise
            notes.append(Note("warn", f"{error}; going on, as the host has no IPv4 address"))
    if actions.cleanup_only:
        changes = _removals([*(held for each in found for held in each.holdings), *aside])
    else:
        notes += [_left_alone(held.store) for held in aside if not held.own.is_empty]
        changes = _installations(found, actions, notes)
    if record is None:
        notes += _uncertain(changes)
    return Decision(tuple(changes), tuple(notes), tuple(each.chosen for each in found))


def _look(
    family: Family,
    planned: tuple[Table, ...],
    stores: Sequence[Store],
    holdings: Sequence[Holding],
    *,
    forced: Variant | None,
    names: Names,
) -> _Found:
    """Return what is ours in a family, and the store to use."""
    candidates = [held for held in holdings if forced in (None, held.store.variant)]
    if not candidates:
        tried = [store for store in stores if forced in (None, store.variant)]
        problems = "; ".join(store.problem for store in tried if store.problem)
        advice = INSTALL if all(store.is_absent for store in tried if store.has_tools) else ""
        raise SystemRefusedError(f"no iptables for IPv{family} can be used: {problems}{advice}")
    chosen = min(candidates, key=_rank)
    drift = []
    if not chosen.own.is_empty:
        drift = installed.differences(planned, chosen.own, names)
    is_unfinished = bool(drift) and installed.is_unfinished(planned, chosen.own, names)
    for held in holdings:
        if held != chosen and not held.own.is_empty:
            drift.append(f"{held.store.name} has rules of ours too")
            is_unfinished = False
    lines = tuple(f"IPv{family}: {line}" for line in drift)
    return _Found(planned, chosen.store, tuple(holdings), lines, is_unfinished)


def _holdings(
    stores: Sequence[Store], planned: Sequence[Table], record: Record | None
) -> list[Holding]:
    return [
        Holding(store, ownership.find_own(installed.parse_saved(store.dump), planned, record))
        for store in stores
        if not store.problem
    ]


def _rank(held: Holding) -> int:
    """Return how little a store is wanted: ours first, then legacy in use, nft, legacy, plain."""
    if not held.own.is_empty:
        return 0
    if held.store.variant in ("legacy", "libiptc"):
        return 1 if installed.has_rules(held.store.dump) else 3
    return 2 if held.store.variant == "nft" else 4


def _installations(found: Sequence[_Found], actions: Actions, notes: list[Note]) -> list[Change]:
    """Return what makes each family as planned, noting its state."""
    drift = [line for each in found for line in each.drift]
    notes += [Note("warn", line) for line in drift]
    if all(each.is_clean for each in found):
        notes.append(Note("info", CLEAN))
    else:
        notes.append(Note("info", DRIFTED if drift else SAME))
    is_foreseen = actions.reconcile or actions.force_apply
    if not is_foreseen and any(each.drift and not each.is_unfinished for each in found):
        raise CaptureError(
            f"rules of ours differ from what is asked for, and --reconcile, which would replace "
            f"them, is not set: {'; '.join(drift)}"
        )
    return [
        change
        for each in found
        if each.is_clean or each.drift or actions.force_apply
        for change in _replacements(each)
    ]


def _replacements(each: _Found) -> list[Change]:
    """Return what makes the chosen store as planned, and the others free of us."""
    changes = []
    for store, own in each.holdings:
        planned = each.planned if store == each.chosen else ()
        if text := installed.replace(own, planned):
            changes.append(Change(store, text, planned, own))
    return changes


def _removals(holdings: Sequence[Holding]) -> list[Change]:
    return [
        Change(store, installed.replace(own, ()), (), own)
        for store, own in holdings
        if not own.is_empty
    ]


def _uncertain(changes: Sequence[Change]) -> list[Note]:
    """Return warnings of rules that stay where others of ours go, and may be ours as well."""
    return [
        Note("warn", UNCERTAIN.format(change.store.family, *hook[:2], hook.spec))
        for change in changes
        if not change.before.is_empty
        for hook in look_alikes_of(change)
    ]


def look_alikes_of(change: Change) -> list[Hook]:
    """Return rules where a change is made that are not ours, but look like those of interfaces."""
    return ownership.look_alikes(installed.parse_saved(change.store.dump), change.before)


def _left_alone(store: Store) -> Note:
    text = f"IPv{store.family} is not captured, but {store.name} has rules of ours"
    return Note("warn", f"{text}: left alone, --cleanup-only removes them")


def undoing(change: Change, dump: str) -> str:
    """Return restore input that brings back what was there of ours, '' where nothing is to be done.

    A table that is as it was has not been changed: a rule like a planned one in it is foreign.

    Args:
        change: what was tried, of which any number of tables may be made.
        dump: what its store has now.
    """
    before, now = installed.parse_rules(change.store.dump), installed.parse_rules(dump)
    changed = {
        table
        for table in installed.TABLES
        if installed.of_tables(before, {table}) != installed.of_tables(now, {table})
    }
    own = ownership.find_own(installed.of_tables(now, changed), change.planned)
    return installed.put_back(own, change.before.of(changed))
