"""The difference between two lists of rules, chain by chain: added, removed, moved.

Rules are compared by a key, so that two texts that mean the same are no difference. Moved is what
stands on both sides of a difference of the same chain.
"""

from collections.abc import Hashable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

from iptables.installed import Own, Place
from iptables.normal import Names, normal_form
from iptables.rules import Table

#: ANSI colours by sign: green, red, yellow.
COLOURS: Final = {"+": "\x1b[32m", "-": "\x1b[31m", "~": "\x1b[33m"}
PLAIN: Final = "\x1b[0m"
BOLD: Final = "\x1b[1m"


class Entry(NamedTuple):
    """A rule on one side."""

    key: Hashable  #: equal for rules that mean the same
    text: str
    why: str = ""


#: Chains of a table, each with its rules in order.
Side = Mapping[Place, Sequence[Entry]]


class Step(NamedTuple):
    """What happens to a rule."""

    sign: Literal["+", "-", "~"]
    position: int  #: counted from 1: in the plan, or where it is now for what goes; 0 for none
    text: str
    why: str = ""
    earlier: int = 0  #: where it is now, for what moves


class Section(NamedTuple):
    """What happens in one place, such as a chain."""

    title: str
    steps: tuple[Step, ...]


def planned_side(planned: Sequence[Table], names: Names) -> Side:
    """Return the rules of a plan."""
    return {
        (table.name, chain): [
            Entry(normal_form(rule.spec, names), rule.spec, rule.why) for rule in chain_rules
        ]
        for table in planned
        for chain, chain_rules in table.chains.items()
    }


def installed_side(own: Own, names: Names) -> Side:
    """Return what is ours of the installed rules."""
    found: dict[Place, list[Entry]] = {
        place: [Entry(normal_form(spec, names), spec) for spec in specs]
        for place, specs in own.chains.items()
    }
    for hook in own.hooks:
        entry = Entry(normal_form(hook.spec, names), hook.spec)
        found.setdefault((hook.table, hook.chain), []).append(entry)
    return found


def sections(label: str, wanted: Side, found: Side) -> list[Section]:
    """Return the chains that differ, those of the plan first.

    Args:
        label: whose rules these are, such as 'iptables-nft'.
        wanted: the plan.
        found: what is installed.
    """
    differing = []
    for place in dict.fromkeys([*wanted, *found]):
        steps = chain_steps(wanted.get(place, ()), found.get(place, ()))
        title = f"{label} {' '.join(place)}"
        if place not in found:
            differing.append(Section(f"{title}, new", steps))
        elif place not in wanted:
            differing.append(Section(f"{title}, not planned", steps))
        elif steps:
            differing.append(Section(title, steps))
    return differing


def chain_steps(wanted: Sequence[Entry], found: Sequence[Entry]) -> tuple[Step, ...]:
    """Return what turns the rules that are found into those that are wanted, in their order."""
    matcher = SequenceMatcher(
        None, [entry.key for entry in found], [entry.key for entry in wanted], autojunk=False
    )
    removed: dict[int, Entry] = {}
    added: dict[int, Entry] = {}
    for tag, first, last, to, until in matcher.get_opcodes():
        if tag != "equal":
            removed.update((number, found[number]) for number in range(first, last))
            added.update((number, wanted[number]) for number in range(to, until))
    steps = []
    for number, entry in added.items():
        earlier = next((at for at, each in removed.items() if each.key == entry.key), None)
        if earlier is None:
            steps.append(Step("+", number + 1, entry.text, entry.why))
        else:
            del removed[earlier]
            steps.append(Step("~", number + 1, entry.text, entry.why, earlier + 1))
    steps += [Step("-", number + 1, entry.text) for number, entry in removed.items()]
    return tuple(sorted(steps, key=lambda step: (step.position, step.sign != "-")))


def render(differing: Sequence[Section], *, coloured: bool = False) -> str:
    """Return the text to show, with the reason of each rule that is added or moved."""
    if not differing:
        return "nothing differs from the plan\n"
    lines = []
    for section in differing:
        lines.append(f"{BOLD}{section.title}{PLAIN}" if coloured else section.title)
        for step in section.steps:
            line = _line(step)
            lines.append(f"{COLOURS[step.sign]}{line}{PLAIN}" if coloured else line)
    return "".join(f"{line}\n" for line in lines)


def _line(step: Step) -> str:
    where = f"{step.earlier} -> {step.position}: " if step.earlier else f"{step.position}: "
    why = f"  # {step.why}" if step.why else ""
    return f"  {step.sign} {where if step.position else ''}{step.text}{why}"
