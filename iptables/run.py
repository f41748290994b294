"""Makes the installed rules as planned: reads, decides, changes everything or nothing.

A change is several commits, one for each table of each family, and is seen through by a process
that outlives this one: see iptables/detached.

Reads run at once, changes one after the other: two nft tools that commit at the same time make
one of them start over, and then 1.8.9 loses the chains that its input both deletes and makes.

Source: traffic-capture.md sections 8, 9 and 17.22.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple

from iptables import decide, installed, ownership
from iptables.config import Actions
from iptables.decide import Change, Decision, Plans, Store
from iptables.detached.process import see_through
from iptables.errors import SystemRefusedError
from iptables.host import Families
from iptables.log import Log
from iptables.normal import Names
from iptables.process import EXHAUSTED, Result, lacks_net_admin
from iptables.record import Record
from iptables.refusal import cause
from iptables.rules import Table
from iptables.stores.client import (
    LOCK_SECONDS,
    RESOURCE_PROBLEM,
    is_busy,
    read,
    read_stores,
    read_usable,
    refusal_of,
    restore,
    tool,
)

#: Seconds before each attempt at a change; only a busy kernel or lock is tried again.
PAUSES: Final = (0.0, 0.05, 0.2)
#: How often rules that others change at the same time are read again.
REREADINGS: Final = 3
FINE: Final = Result(0, "", "")
REMOVING: Final = "Performing cleanup of existing iptables"
INSTALLING: Final = "Applying iptables chains and rules"


class Beside(NamedTuple):
    """What changes together with the rules, or not at all."""

    #: Takes the changes to be made; what it returns holds while they are made.
    around: Callable[[Sequence[Change]], AbstractContextManager[None]] = lambda _: nullcontext()
    #: To be done once they are made; if it cannot be, they are undone.
    afterwards: Callable[[], None] = lambda: None


ALONE: Final = Beside()


class RefusedError(SystemRefusedError):
    """A tool refused a change, and all of it was undone; `trouble` says where that failed.

    It may accept it at another time if it was busy, or had no room.
    """

    def __init__(
        self, change: Change, reason: str, trouble: Sequence[str], *, is_busy: bool = False
    ) -> None:
        super().__init__(change, reason, trouble)
        self.change = change
        self.reason = reason
        self.trouble = trouble
        self.is_busy = is_busy

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
    stores = read(decision.chosen) if decision.changes else decision.chosen
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
    if error.is_busy:  # another variant now, and this one on the next run: both would capture
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
        if trouble or result.status not in (RESOURCE_PROBLEM, EXHAUSTED) or is_last:
            reason = refusal_of(change.store, change.text, result)
            raise RefusedError(change, reason, trouble, is_busy=is_busy(change.store, result))


def _first_refused(changes: Sequence[Change]) -> tuple[Change, Result] | None:
    """Make changes until one is refused; return that one."""
    for change in changes:
        result = restore(change.store, change.text)
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
    for change, store in zip(changes, read([change.store for change in changes]), strict=True):
        if store.problem:
            trouble.append(f"its rules cannot be put back: {store.problem}")
            continue
        text = decide.undoing(change, store.dump)
        result = restore(store, text) if text else FINE
        if result.status:
            trouble.append(f"putting its rules back failed: {refusal_of(store, text, result)}")
    return trouble
