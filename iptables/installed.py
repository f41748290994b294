"""What is installed, read from iptables-save: how it differs from a plan, and how it is changed.

Foreign rules are never compared and never touched, wherever they stand. What to delete is derived
from what was read, never from the configuration: a rule of an older configuration goes too, and
a deletion that matches nothing would fail its whole table.

Source: traffic-capture.md sections 9, 17.4 and 17.20.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from iptables import rules
from iptables.normal import NO_NAMES, Names, normal_form
from iptables.rules import BUILT_IN_CHAINS, Table

TABLES: Final = ("mangle", "nat", "raw")

#: A chain of a table.
Place = tuple[str, str]
#: Chains of a table, each with its rules in order, without '-A CHAIN'.
Saved = Mapping[Place, Sequence[str]]


class Hook(NamedTuple):
    """A rule of ours in a chain that is not."""

    table: str
    chain: str
    position: int  #: counted from 1
    spec: str
    has_twin: bool = False  #: another rule of the chain is the same


class Own(NamedTuple):
    """What is ours in the tables of one family."""

    chains: Saved
    hooks: tuple[Hook, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether nothing of ours is installed."""
        return not self.chains and not self.hooks

    def of(self, tables: Collection[str]) -> "Own":
        """Return what of it is in some tables."""
        hooks = (hook for hook in self.hooks if hook.table in tables)
        return Own(of_tables(self.chains, tables), tuple(hooks))


NOTHING: Final = Own({}, ())


def parse_saved(text: str) -> Saved:
    """Return the chains of the tables we use, from the output of iptables-save.

    Other tables, comments and counters are skipped.
    """
    found: dict[Place, list[str]] = {}
    table = ""
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif table not in TABLES:
            continue
        elif line.startswith(":"):
            found.setdefault((table, line[1:].partition(" ")[0]), [])
        elif line.startswith("-A "):
            _, chain, spec = f"{line} ".split(" ", 2)
            found.setdefault((table, chain), []).append(spec.strip())
    return found


def parse_rules(text: str) -> Saved:
    """Return what `parse_saved` does without empty built-in chains, which a table's use makes."""
    saved = parse_saved(text)
    return {
        place: saved[place] for place in saved if saved[place] or place[1] not in BUILT_IN_CHAINS
    }


def of_tables(saved: Saved, tables: Collection[str]) -> Saved:
    """Return the chains of some tables."""
    return {place: specs for place, specs in saved.items() if place[0] in tables}


def has_rules(text: str) -> bool:
    """Return whether any table has a rule; empty built-in chains are none. Source: 17.1."""
    return any(line.startswith("-A ") for line in text.splitlines())


def as_saved(planned: Sequence[Table]) -> Saved:
    """Return a plan as if it had been read back."""
    return {
        (table.name, chain): [rule.spec for rule in chain_rules]
        for table in planned
        for chain, chain_rules in table.chains.items()
    }


def differences(planned: Sequence[Table], own: Own, names: Names = NO_NAMES) -> list[str]:
    """Return where what is installed differs from the plan, one line each; order counts.

    Source: traffic-capture.md sections 9.2 and 17.20.
    """
    wanted = as_saved(planned)
    found = {place: list(specs) for place, specs in own.chains.items()}
    for hook in own.hooks:
        found.setdefault((hook.table, hook.chain), []).append(hook.spec)
    lines = [f"{' '.join(place)} is not planned" for place in found if place not in wanted]
    for place, specs in wanted.items():
        if place not in found:
            lines.append(f"{' '.join(place)} has nothing of ours")
        elif difference := _first_difference(specs, found[place], names):
            lines.append(f"{' '.join(place)} {difference}")
    return lines


def is_unfinished(planned: Sequence[Table], own: Own, names: Names = NO_NAMES) -> bool:
    """Return whether what is installed is as planned but for tables that have nothing of ours.

    The tools commit one table after the other: this is what a run leaves that is killed between.
    """
    touched = {table for table, _ in own.chains} | {hook.table for hook in own.hooks}
    return not differences([table for table in planned if table.name in touched], own, names)


def _first_difference(wanted: Sequence[str], found: Sequence[str], names: Names) -> str:
    for number in range(max(len(wanted), len(found))):
        expected = wanted[number] if number < len(wanted) else ""
        actual = found[number] if number < len(found) else ""
        if not expected or not actual or normal_form(expected, names) != normal_form(actual, names):
            return f"rule {number + 1}: expected {_shown(expected)}, found {_shown(actual)}"
    return ""


def _shown(spec: str) -> str:
    return f"'{spec}'" if spec else "nothing"


def removal(own: Own) -> dict[str, list[str]]:
    """Return the lines that remove what is ours, by table: hooks first, then flushed chains.

    A rule is named by its text, so that no other goes if the chain has changed since it was read;
    by its number only where its text fits another rule too. The last in a chain goes first:
    numbers before it stay what they are.
    """
    found: dict[str, list[str]] = {}
    for hook in reversed(own.hooks):
        which = hook.position if hook.has_twin else hook.spec
        found.setdefault(hook.table, []).append(f"-D {hook.chain} {which}")
    for option in ("-F", "-X"):
        for table, chain in own.chains:
            found.setdefault(table, []).append(f"{option} {chain}")
    return found


def creation(own: Own) -> dict[str, list[str]]:
    """Return the lines that make again what was ours, each hook at its old place."""
    found: dict[str, list[str]] = {}
    for table, chain in own.chains:
        found.setdefault(table, []).append(f"-N {chain}")
    for (table, chain), specs in own.chains.items():
        found[table] += [f"-A {chain} {spec}".strip() for spec in specs]
    for hook in own.hooks:
        line = f"-I {hook.chain} {hook.position} {hook.spec}"
        found.setdefault(hook.table, []).append(line)
    return found


def replace(own: Own, planned: Sequence[Table]) -> str:
    """Return restore input that removes what is ours and installs a plan.

    Each table changes in one step, so there is no moment without rules.

    Source: traffic-capture.md section 9.3, IMPROVE.
    """
    return _joined(removal(own), {table.name: rules.lines(table) for table in planned})


def put_back(now: Own, before: Own) -> str:
    """Return restore input that brings back what was ours before a change."""
    return "" if now == before else _joined(removal(now), creation(before))


def _joined(first: Mapping[str, list[str]], second: Mapping[str, list[str]]) -> str:
    names = {*first, *second}
    return rules.render({name: [*first.get(name, ()), *second.get(name, ())] for name in names})
