"""What to do with the tables that are there: nothing, install, replace or remove.

All of it is one transaction. Other than with the iptables tools nothing has to be asked for to
replace what differs: the reference installs its tables anew on every run.

Source: traffic-capture.md sections 11.3, 17.9, 17.10 and 17.11.
"""

from collections.abc import Sequence
from typing import NamedTuple

from iptables.config import Actions
from iptables.netlink import Family
from iptables.nft.listing import Listing, Place, hook_and_rules
from iptables.nft.text import CHAINS, chain_name, removal, rule_text, transaction
from iptables.nft.values import planned_form, read_form
from iptables.normal import NO_NAMES, Names
from iptables.rules import Address, Rule, Table, TransparentProxy


class Change(NamedTuple):
    """Input of `nft -f -`, '' where nothing is to be done, and what it would do."""

    text: str
    notes: tuple[tuple[str, str], ...]  #: lines for the log, each with its level


def decide(
    planned: Sequence[Table], listing: Listing, actions: Actions, names: Names = NO_NAMES
) -> Change:
    """Return what makes our tables as planned, or with `cleanup_only` removes them.

    Args:
        planned: the rules of the captured families together.
        listing: what is there.
        actions: what the user asked for.
        names: numbers of the users and groups that rules name.
    """
    if actions.cleanup_only:
        return Change(removal() if listing.tables else "", ())
    if not listing.tables:
        return Change(
            transaction(planned), (("info", "no nftables rules of ours, new are needed"),)
        )
    drift = differences(planned, listing, names)
    if not drift and not actions.force_apply:
        return Change("", (("info", "nftables rules of ours are as asked for"),))
    notes = [("warn", line) for line in drift]
    notes.append(("info", "nftables rules of ours are replaced"))
    return Change(removal() + transaction(planned), tuple(notes))


def differences(planned: Sequence[Table], listing: Listing, names: Names = NO_NAMES) -> list[str]:
    """Return where what is installed differs from the plan, one line each; order counts."""
    wanted = {
        (str(table.name), chain_name(chain)): rules
        for table in planned
        for chain, rules in table.chains.items()
    }
    planned_tables = {table for table, _ in wanted}
    lines = [f"{table} is not planned" for table in listing.tables if table not in planned_tables]
    for table, chain in listing.chains:
        if table in planned_tables and (table, chain) not in wanted:
            lines.append(f"{table} {chain} is not planned")
    for place, rules in wanted.items():
        if place not in listing.chains:
            lines.append(f"{' '.join(place)} is missing")
        elif difference := _chain_difference(place, rules, listing.chains[place], names):
            lines.append(f"{' '.join(place)} {difference}")
    return lines


def marks(listing: Listing) -> list[tuple[Family, int]]:
    """Return the marks that our TPROXY rules give, by the address family of their packets."""
    forms = map(read_form, listing.chains.get(("mangle", "istio-tproxy"), ()))
    return [
        (6 if ":" in match.cidr else 4, form.target.mark)
        for form in forms
        if form and isinstance(form.target, TransparentProxy)
        for match in form.matches
        if isinstance(match, Address)
    ]


def put_back(listing: Listing) -> str:
    """Return the input of `nft -f -` that brings back what was there."""
    return removal() + listing.text


def _chain_difference(
    place: Place, wanted: Sequence[Rule], found: Sequence[str], names: Names
) -> str:
    hook, rules = hook_and_rules(found)
    table, chain = place
    expected_hook = f"{CHAINS[table][chain]}; policy accept;" if CHAINS[table][chain] else ""
    if hook != expected_hook:
        return f"expected {_shown(expected_hook)}, found {_shown(hook)}"
    for number in range(max(len(wanted), len(rules))):
        expected = wanted[number] if number < len(wanted) else None
        actual = rules[number] if number < len(rules) else ""
        if not expected or planned_form(expected, names) != read_form(actual):
            text = rule_text(expected) if expected else ""
            return f"rule {number + 1}: expected {_shown(text)}, found {_shown(actual)}"
    return ""


def _shown(text: str) -> str:
    return f"'{text}'" if text else "nothing"
