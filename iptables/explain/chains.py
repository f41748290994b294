"""Rules to walk through, whatever they come from: the plan, iptables-save, or nft's listing.

What is installed gets the reasons of the rules that are planned just so; others are not of the
configuration at hand. A rule with a part that we never write is not understood.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from iptables.explain import specs
from iptables.installed import Saved
from iptables.nft.listing import Listing, hook_and_rules
from iptables.nft.text import chain_name, rule_text
from iptables.nft.values import normal_match, planned_form, read_form
from iptables.normal import Names, normal_form
from iptables.rules import Match, Rule, Table, Target

NOT_PLANNED: Final = "not of this configuration"


class Line(NamedTuple):
    """A rule."""

    text: str  #: without its place
    why: str
    matches: tuple[Match, ...] = ()
    target: Target | None = None  #: None: it is not understood


#: The rules of each chain of each table, in order.
Chains = Mapping[tuple[str, str], Sequence[Line]]


def planned_chains(planned: Sequence[Table], names: Names) -> Chains:
    """Return the plan of one family, in the words of the iptables tools."""
    return {
        (table.name, chain): [
            Line(rule.spec, rule.why, _numbered(rule, names), rule.target) for rule in rules
        ]
        for table in planned
        for chain, rules in table.chains.items()
    }


def _numbered(rule: Rule, names: Names) -> tuple[Match, ...]:
    return tuple(normal_match(match, names) for match in rule.matches)


def planned_native_chains(planned: Sequence[Table], names: Names) -> Chains:
    """Return the plan of the captured families together, in nft's words."""
    found = {}
    for table in planned:
        for chain, rules in table.chains.items():
            forms = [planned_form(rule, names) for rule in rules]
            found[str(table.name), chain_name(chain)] = [
                Line(rule_text(rule), rule.why, tuple(form.matches), form.target)
                for rule, form in zip(rules, forms, strict=True)
            ]
    return found


def saved_chains(saved: Saved, planned: Sequence[Table], names: Names) -> Chains:
    """Return what iptables-save prints of one family; the plan of that family has the reasons."""
    reasons = {
        (str(table.name), chain, normal_form(rule.spec, names)): rule.why
        for table in planned
        for chain, rules in table.chains.items()
        for rule in reversed(rules)  # of two that are the same the first matters
    }
    found: dict[tuple[str, str], list[Line]] = {}
    for (table, chain), texts in saved.items():
        siblings = {name for at, name in saved if at == table}
        lines = found.setdefault((table, chain), [])
        for text in texts:
            form = normal_form(text)
            why = reasons.get((table, chain, form), NOT_PLANNED)
            read = specs.read_form(form, siblings)
            lines.append(Line(text, why, *read) if read else Line(text, why))
    return found


def listed_chains(listing: Listing, planned: Sequence[Table], names: Names) -> Chains:
    """Return what nft lists; the plan of the captured families together has the reasons."""
    reasons = {
        (str(table.name), chain_name(chain), planned_form(rule, names)): rule.why
        for table in planned
        for chain, rules in table.chains.items()
        for rule in reversed(rules)
    }
    found: dict[tuple[str, str], list[Line]] = {}
    for (table, chain), lines in listing.chains.items():
        for text in hook_and_rules(lines)[1]:
            form = read_form(text)
            line = Line(text, NOT_PLANNED)
            if form:
                why = reasons.get((table, chain, form), NOT_PLANNED)
                line = Line(text, why, tuple(form.matches), form.target)
            found.setdefault((table, chain), []).append(line)
    return found
