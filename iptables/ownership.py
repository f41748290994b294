"""Which of the installed rules are ours.

All chains named ISTIO_... are, and every jump to one. In built-in chains so are the planned rules
without a jump, if anything else in their table is; and what looks like TPROXY's rules where that
was installed, whatever the configuration was. What an older configuration put there for an
interface cannot be told from a foreign rule, and is left: see `look_alikes`.

Source: traffic-capture.md sections 9.5, 15 and 17.4.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from iptables.config import CaptureConfig, Inbound
from iptables.installed import Hook, Own, Place, Saved
from iptables.normal import NO_NAMES, Form, Names, Shape, normal_form, shape, target
from iptables.plan import IPV4, plan
from iptables.rules import BUILT_IN_CHAINS, Jump, Rule, Table

PREFIX: Final = "ISTIO_"
#: Where interfaces have rules, and by which option. Source: traffic-capture.md section 5.2.
INTERFACE_RULES: Final = (("PREROUTING", "-i"), ("OUTPUT", "-o"))
AMBIENT_CHAIN: Final = "ISTIO_PRERT"  # of the node agent, which owns ISTIO_OUTPUT beside it


def is_ambient(saved: Saved) -> bool:
    """Return whether the node agent captures this namespace in ambient mode."""
    return any(chain == AMBIENT_CHAIN for _, chain in saved)


def find_own(saved: Saved, planned: Sequence[Table], names: Names = NO_NAMES) -> Own:
    """Return what is ours.

    Args:
        saved: everything that is installed in one family.
        planned: what is to be installed, or was.
        names: see `normal_form`.
    """
    chains = {place: specs for place, specs in saved.items() if place[1].startswith(PREFIX)}
    foreign = {place: specs for place, specs in saved.items() if place not in chains}
    touched = {table for table, _ in chains}
    touched |= {table for (table, _), specs in foreign.items() if any(map(_is_jump, specs))}
    wanted: dict[Place, list[Rule]] = {
        (table.name, chain): found for table in planned for chain, found in table.chains.items()
    }
    shapes = _tproxy_shapes() if ("mangle", "ISTIO_INBOUND") in chains else {}
    hooks: list[Hook] = []
    for place, specs in foreign.items():
        if place[0] not in touched:
            continue  # a rule like one of ours is foreign then: each table changes as a whole
        hooks += _hooks(place, specs, wanted.get(place, ()), shapes.get(place, set()), names)
    return Own(chains, tuple(hooks))


def look_alikes(saved: Saved, own: Own) -> list[Hook]:
    """Return rules that are not known to be ours, but look like those of an excluded interface.

    Source: traffic-capture.md section 9.5: such rules cannot be attributed and are left.
    """
    ours = {(hook.table, hook.chain, hook.position) for hook in own.hooks}
    return [
        Hook(table, chain, number, spec)
        for (table, chain), specs in saved.items()
        for number, spec in enumerate(specs, 1)
        if (table, chain, number) not in ours and is_of_interface(chain, spec)
    ]


def is_of_interface(chain: str, spec: str) -> bool:
    """Return whether a rule lets an interface's traffic go: '-i eth1 -j RETURN'."""
    match spec.split():
        case [option, _, "-j", "RETURN"]:
            return (chain, option) in INTERFACE_RULES
    return False


def _hooks(
    place: Place, specs: Sequence[str], wanted: Sequence[Rule], shapes: set[Shape], names: Names
) -> list[Hook]:
    """Return the rules of ours in a chain that is not, in its order."""
    numbers = {number for number, spec in enumerate(specs) if _is_jump(spec)}
    forms: Sequence[Form] = ()
    if shapes or not all(isinstance(rule.target, Jump) for rule in wanted):
        forms = [normal_form(spec, names) for spec in specs]
        numbers |= {number for number, form in enumerate(forms) if shape(form) in shapes}
        numbers |= _where(wanted, forms, names)
    texts = forms or specs
    copies = Counter(texts)
    return [
        Hook(*place, number + 1, specs[number], has_twin=copies[texts[number]] > 1)
        for number in sorted(numbers)
    ]


def _is_jump(spec: str) -> bool:
    return PREFIX in spec and target(spec).startswith(PREFIX)


def _where(wanted: Sequence[Rule], forms: Sequence[Form], names: Names) -> set[int]:
    """Return where planned rules are, each taken once: another copy is somebody else's.

    Those that were inserted are looked for from the front, those appended from the end, in their
    order; what is not found so is taken wherever it is.
    """
    found: set[int] = set()
    missing = []
    inserted = [normal_form(rule.spec, names) for rule in wanted if rule.position]
    appended = [normal_form(rule.spec, names) for rule in wanted if not rule.position]
    for group, order in (
        (inserted, list(range(len(forms)))),
        (appended[::-1], list(range(len(forms)))[::-1]),
    ):
        left = order
        for form in group:
            at = next((number for number in left if forms[number] == form), None)
            if at is None:
                missing.append(form)
            else:
                found.add(at)
                left = left[left.index(at) + 1 :]
    for form in missing:
        left = [number for number, each in enumerate(forms) if each == form and number not in found]
        found.update(left[:1])
    return found


def _tproxy_shapes() -> dict[Place, set[Shape]]:
    """Return what the TPROXY rules in built-in chains look like, whatever their numbers."""
    tproxy = plan(CaptureConfig(inbound=Inbound(mode="TPROXY")), IPV4)
    found: dict[Place, set[Shape]] = {}
    for table in tproxy:
        for rule in table.rules:
            if rule.chain in BUILT_IN_CHAINS and not isinstance(rule.target, Jump):
                form = normal_form(rule.spec)
                found.setdefault((table.name, rule.chain), set()).add(shape(form))
    return found
