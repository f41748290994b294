"""Reads what is installed and finds where it differs from what is asked for; changes nothing."""

from collections.abc import Sequence

from iptables import decide, record
from iptables.compare.difference import (
    Entry,
    Section,
    Side,
    Step,
    installed_side,
    planned_side,
    sections,
)
from iptables.config import Actions, CaptureConfig
from iptables.decide import Change, Plans
from iptables.host import HostFacts
from iptables.installed import Place
from iptables.log import Log
from iptables.nft import client as nftables
from iptables.nft import run as native
from iptables.nft import state
from iptables.nft.listing import Listing, hook_and_rules
from iptables.nft.text import CHAINS, chain_name, rule_text
from iptables.nft.values import planned_form, read_form
from iptables.normal import Names
from iptables.plan import plan
from iptables.routing import changes
from iptables.routing import client as routing
from iptables.rules import Table
from iptables.stores.client import read_usable


def compare(
    plans: Plans,
    capture: CaptureConfig,
    actions: Actions,
    facts: HostFacts,
    *,
    names: Names,
    log: Log,
) -> list[Section]:
    """Return what a run with --reconcile would change.

    Raises:
        CaptureError: what is installed cannot be read, or is not ours to change.
    """
    noted = record.parse(facts.loopback_alias)
    asked = actions._replace(reconcile=True, force_apply=False)
    if actions.native_nftables:
        listing = native.read()
        planned = () if actions.cleanup_only else plan(capture, *capture.families.captured)
        made: Sequence[Change] = native.of_iptables(listing, capture, asked, log, noted)
        found = sections("nftables", _native_plan(planned, names), _native(listing))
    else:
        stores = read_usable(asked)
        made = decide.decide(plans, stores, asked, capture.families, names, record=noted).changes
        listing = native.read() if nftables.has_tables() else native.NOTHING
        found = sections("nftables", {}, _native(listing))
    for change in made:
        label = f"IPv{change.store.family} {change.store.name}"
        wanted = planned_side(change.planned, names)
        found += sections(label, wanted, installed_side(change.before, names))
    return [*_routing(made, listing, capture, actions, facts), *found]


def _routing(
    made: Sequence[Change],
    listing: Listing,
    capture: CaptureConfig,
    actions: Actions,
    facts: HostFacts,
) -> list[Section]:
    installed = [(change.store.family, change.before) for change in made]
    marks = changes.marks(capture, installed, actions, state.marks(listing))
    found = [
        *changes.address_changes(capture, facts, actions),
        *changes.mark_changes(marks, routing.find(marks)),
    ]
    steps = tuple(Step("+" if each.is_addition else "-", 0, each.item.text) for each in found)
    return [Section("addresses and routes", steps)] if steps else []


def _native_plan(planned: Sequence[Table], names: Names) -> Side:
    wanted: dict[Place, list[Entry]] = {}
    for table in planned:
        for chain, rules in table.chains.items():
            name = chain_name(chain)
            hook = CHAINS[table.name][name]
            entries = [_hook(f"{hook}; policy accept;")] if hook else []
            entries += [
                Entry(planned_form(rule, names), rule_text(rule), rule.why) for rule in rules
            ]
            wanted[table.name, name] = entries
    return wanted


def _native(listing: Listing) -> Side:
    found = {}
    for place, lines in listing.chains.items():
        hook, rules = hook_and_rules(lines)
        entries = [_hook(hook)] if hook else []
        found[place] = entries + [Entry(read_form(rule) or rule, rule) for rule in rules]
    return found


def _hook(text: str) -> Entry:
    return Entry(text, text)
