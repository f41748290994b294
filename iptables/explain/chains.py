"""Rules to walk through, whatever they come from: the plan, iptables-save, or nft's listing.

What is installed gets the reasons of rules that are planned just so. A rule with a part that we
never write is not understood.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from iptables.config import CaptureConfig, DnsCapture
from iptables.explain import specs
from iptables.installed import Saved
from iptables.lists import Ranges, Selection
from iptables.netlink import Family
from iptables.nft import values
from iptables.nft.listing import Listing, hook_and_rules
from iptables.nft.text import chain_name, rule_text
from iptables.nft.values import normal_match, planned_form, read_form
from iptables.normal import Form, Names, normal_form
from iptables.ownership import PREFIX
from iptables.plan import plan
from iptables.rules import Match, Rule, Table, Target

OF_ANOTHER: Final = "of a configuration that is not the one asked about"
OF_OTHERS: Final = "not ours"


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


def known_plans(config: CaptureConfig, *families: Family) -> list[Sequence[Table]]:
    """Return plans whose reasons installed rules may have: the configuration's, and usual ones.

    Who looks at what is installed seldom knows the flags that it was installed with.
    """
    everything = config._replace(
        inbound=config.inbound._replace(ports=Selection(is_all=True)),
        outbound=config.outbound._replace(ranges=Ranges(is_all=True)),
        drop_invalid=True,
    )
    transparent = everything._replace(inbound=everything.inbound._replace(mode="TPROXY"))
    any_dns = DnsCapture(is_all=True)
    found = [config]
    for usual in (everything, transparent):
        found += [usual._replace(dns=None), usual._replace(dns=any_dns)]
    return [plan(each, *families) for each in found]


def saved_chains(saved: Saved, plans: Sequence[Sequence[Table]], names: Names) -> Chains:
    """Return what iptables-save prints of one family; the first plan that fits has the reason."""
    reasons: dict[tuple[str, str, Form], str] = {}
    for table, chain, rule in _rules(plans):
        reasons.setdefault((table, chain, normal_form(rule.spec, names)), rule.why)
    found: dict[tuple[str, str], list[Line]] = {}
    for (table, chain), texts in saved.items():
        siblings = {name for at, name in saved if at == table}
        lines = found.setdefault((table, chain), [])
        for text in texts:
            form = normal_form(text)
            why = reasons.get((table, chain, form)) or _unknown(chain)
            read = specs.read_form(form, siblings)
            lines.append(Line(text, why, *read) if read else Line(text, why))
    return found


def listed_chains(listing: Listing, plans: Sequence[Sequence[Table]], names: Names) -> Chains:
    """Return what nft lists; the first plan that fits has the reason."""
    reasons: dict[tuple[str, str, values.Form], str] = {}
    for table, chain, rule in _rules(plans):
        reasons.setdefault((table, chain_name(chain), planned_form(rule, names)), rule.why)
    found: dict[tuple[str, str], list[Line]] = {}
    for (table, chain), lines in listing.chains.items():
        for text in hook_and_rules(lines)[1]:
            form = read_form(text)
            line = Line(text, OF_ANOTHER)
            if form:
                why = reasons.get((table, chain, form), OF_ANOTHER)
                line = Line(text, why, tuple(form.matches), form.target)
            found.setdefault((table, chain), []).append(line)
    return found


def _rules(plans: Sequence[Sequence[Table]]) -> Iterator[tuple[str, str, Rule]]:
    """Yield each rule with its place, in the order in which a packet meets them."""
    for planned in plans:
        for table in planned:
            for chain, rules in table.chains.items():
                for rule in rules:
                    yield table.name, chain, rule


def _unknown(chain: str) -> str:
    return OF_ANOTHER if chain.startswith(PREFIX) else OF_OTHERS
