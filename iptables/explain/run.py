"""Explains a flow on standard output: what the plan does with it, or what is installed."""

import sys
from typing import Final

from iptables import installed, ownership
from iptables.config import Actions, CaptureConfig, Settings
from iptables.decide import Store
from iptables.errors import CaptureError
from iptables.explain import chains, report
from iptables.explain.chains import Chains
from iptables.explain.flow import Flow, complete, local_addresses
from iptables.explain.walk import explain
from iptables.host import HostFacts
from iptables.netlink import IPV4, IPV6, Family
from iptables.nft import client as nftables
from iptables.nft import run as native
from iptables.normal import Names
from iptables.plan import plan
from iptables.stores.client import read_usable

NATIVE: Final = "nftables"
IPTABLES: Final = "iptables"


def show(
    flow: Flow,
    settings: Settings,
    facts: HostFacts,
    names: Names,
    *,
    live: bool,
    as_json: bool,
) -> None:
    """Write the explanation of a flow.

    Args:
        flow: what the user described.
        settings: what the plan is made from; it has the reasons of installed rules, too.
        facts: has the addresses of this network namespace.
        names: numbers of the users and groups that rules name.
        live: walk what is installed instead of the plan.
        as_json: write JSON.

    Raises:
        CaptureError: with `live`, nothing is installed, or it cannot be read.
    """
    family: Family = IPV6 if flow.source.address.version == IPV6 else IPV4
    if live:
        rules, found = _installed(settings.config, family, names)
    else:
        rules, found = _planned(settings, family, names)
    explanation = explain(complete(flow, facts.addresses), found, local_addresses(facts.addresses))
    render = report.as_json if as_json else report.render
    sys.stdout.write(render(explanation, rules))


def _planned(settings: Settings, family: Family, names: Names) -> tuple[str, Chains]:
    capture = settings.config
    captured = capture.families.captured
    if settings.actions.native_nftables:
        found = chains.planned_native_chains(plan(capture, *captured), names)
        return f"planned, for {NATIVE}", found
    if family not in captured:
        return f"planned, for {IPTABLES}: none, as IPv{family} is not captured", {}
    return f"planned, for {IPTABLES}", chains.planned_chains(plan(capture, family), names)


def _installed(capture: CaptureConfig, family: Family, names: Names) -> tuple[str, Chains]:
    """Return the rules of the backend that has rules of ours."""
    if nftables.has_tables():
        plans = chains.known_plans(capture, *capture.families.captured)
        return f"installed, by {NATIVE}", chains.listed_chains(native.read(), plans, names)
    plans = chains.known_plans(capture, family)
    stores = [store for store in read_usable(Actions()) if store.family == family]
    for store in stores:
        saved = installed.parse_saved(store.dump)
        if not store.problem and not ownership.find_own(saved, plans[0]).is_empty:
            rules = f"installed, by {store.name}"
            return rules, chains.saved_chains(saved, plans, names)
    raise CaptureError(f"no rules of ours are installed for IPv{family}{_problems(stores)}")


def _problems(stores: list[Store]) -> str:
    problems = "; ".join(store.problem for store in stores if store.problem)
    return f" ({problems})" if problems else ""
