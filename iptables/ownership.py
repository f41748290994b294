"""Which of the installed rules are ours.

All chains named ISTIO_... are, and every jump to one. In built-in chains so are TPROXY's rules
where that was installed, with the marks of then, and the rules of the interfaces that the record
names. Without a record these are the planned ones: see `iptables.record`. A rule that only looks
so is foreign: see `look_alikes`.

Source: traffic-capture.md sections 9.5, 15 and 17.4.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from iptables.config import CaptureConfig, Inbound
from iptables.installed import Hook, Own, Place, Saved
from iptables.netlink import IPV4
from iptables.normal import Clause, Form, normal_form, target
from iptables.plan import plan
from iptables.record import Record
from iptables.rules import BUILT_IN_CHAINS, Jump, Rule, Table

PREFIX: Final = "ISTIO_"
#: Where interfaces have rules, and by which option. Source: traffic-capture.md section 5.2.
INTERFACE_RULES: Final = (("PREROUTING", "-i"), ("OUTPUT", "-o"))
#: Where rules of virtual interfaces lead that stand before those that let their traffic go.
VIRTUAL_TARGET: Final = "ISTIO_REDIRECT"
#: Options of TPROXY's rules whose values are the proxy's and localhost's.
WHO: Final = ("-d", "--uid-owner", "--gid-owner")
MARK_OPTIONS: Final = ("--mark", "--set-xmark", "--tproxy-mark")
AMBIENT_CHAIN: Final = "ISTIO_PRERT"  # of the node agent, which owns ISTIO_OUTPUT beside it


def is_ambient(saved: Saved) -> bool:
    """Return whether the node agent captures this namespace in ambient mode."""
    return any(chain == AMBIENT_CHAIN for _, chain in saved)


def find_own(saved: Saved, planned: Sequence[Table], record: Record | None = None) -> Own:
    """Return what is ours.

    Args:
        saved: everything that is installed in one family.
        planned: what is to be installed, or was.
        record: which interfaces have rules of ours; None if nobody noted it.
    """
    chains = {place: specs for place, specs in saved.items() if place[1].startswith(PREFIX)}
    foreign = {place: specs for place, specs in saved.items() if place not in chains}
    touched = {table for table, _ in chains}
    touched |= {table for (table, _), specs in foreign.items() if any(map(_is_jump, specs))}
    rules = record.rules if record else [rule for table in planned for rule in table.rules]
    of_interfaces: dict[Place, list[Rule]] = {}
    for rule in rules:
        if is_of_interface(rule.chain, rule.spec):
            of_interfaces.setdefault((rule.table, rule.chain), []).append(rule)
    shapes = _tproxy_shapes(chains, planned)
    hooks: list[Hook] = []
    for place, specs in foreign.items():
        if place[0] not in touched:
            continue  # a rule like one of ours is foreign then: each table changes as a whole
        hooks += _hooks(place, specs, of_interfaces.get(place, ()), shapes.get(place, set()))
    return Own(chains, tuple(hooks))


def look_alikes(saved: Saved, own: Own) -> list[Hook]:
    """Return rules that are not ours, but look like those of an interface.

    Source: traffic-capture.md section 9.5: without a record they cannot be attributed.
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
    place: Place, specs: Sequence[str], of_interfaces: Sequence[Rule], shapes: set[Form]
) -> list[Hook]:
    """Return the rules of ours in a chain that is not, in its order."""
    numbers = {number for number, spec in enumerate(specs) if _is_jump(spec)}
    forms: Sequence[Form] = ()
    if shapes or of_interfaces:
        forms = [normal_form(spec) for spec in specs]
        numbers |= {number for number, form in enumerate(forms) if _shape(form) in shapes}
        heads = {number for number in numbers if target(specs[number]) == VIRTUAL_TARGET}
        numbers |= _where(of_interfaces, forms, heads, numbers - heads)
    texts = forms or specs
    copies = Counter(texts)
    return [
        Hook(*place, number + 1, specs[number], has_twin=copies[texts[number]] > 1)
        for number in sorted(numbers)
    ]


def _is_jump(spec: str) -> bool:
    return PREFIX in spec and target(spec).startswith(PREFIX)


def _where(
    of_interfaces: Sequence[Rule], forms: Sequence[Form], heads: set[int], tails: set[int]
) -> set[int]:
    """Return where the rules of interfaces are, each taken once: another copy is somebody else's.

    Inserted ones come after the jumps of virtual interfaces, the last inserted first; appended ones
    before all other rules of ours, the last one nearest. What is not found so is taken wherever it
    is.
    """
    after, before = max(heads, default=-1) + 1, min(tails, default=len(forms))
    everywhere = range(len(forms))
    found: set[int] = set()
    missing = []
    for is_inserted, order in (
        (True, [*everywhere[after:], *everywhere[:after]]),
        (False, [*everywhere[:before][::-1], *everywhere[before:][::-1]]),
    ):
        left = order
        for rule in reversed(of_interfaces):
            if bool(rule.position) != is_inserted:
                continue
            form = normal_form(rule.spec)
            at = next((number for number in left if forms[number] == form), None)
            if at is None:
                missing.append(form)
            else:
                found.add(at)
                left = left[left.index(at) + 1 :]
    for form in missing:
        rest = [number for number, each in enumerate(forms) if each == form and number not in found]
        found.update(rest[:1])
    return found


def _tproxy_shapes(chains: Saved, planned: Sequence[Table]) -> dict[Place, set[Form]]:
    """Return the shapes of TPROXY's rules in built-in chains, whoever the proxy is.

    Their mark is what chains of ours say, or the plan if those are damaged.
    """
    if ("mangle", "ISTIO_INBOUND") not in chains:
        return {}
    specs = [spec for (table, _), specs in chains.items() if table == "mangle" for spec in specs]
    specs += [
        rule.spec
        for table in planned
        for rule in table.rules
        if table.name == "mangle" and rule.chain.startswith(PREFIX)
    ]
    found: dict[Place, set[Form]] = {}
    for mark in _marks(specs):
        for table in plan(CaptureConfig(inbound=Inbound(mode="TPROXY", mark=mark)), IPV4):
            for rule in table.rules:
                if rule.chain in BUILT_IN_CHAINS and not isinstance(rule.target, Jump):
                    place = (table.name, rule.chain)
                    found.setdefault(place, set()).add(_shape(normal_form(rule.spec)))
    return found


def _marks(specs: Iterable[str]) -> set[int]:
    """Return the marks that rules give or look for."""
    values = {
        clause.value.partition("/")[0]
        for spec in specs
        for clause in normal_form(spec)
        if clause.option in MARK_OPTIONS and not clause.inverted
    }
    return {int(value, 16) for value in values if value.startswith("0x")}


def _shape(form: Form) -> Form:
    """Return what is left of a form without addresses and owners."""
    return tuple(_without_who(clause) for clause in form)


def _without_who(clause: Clause) -> Clause:
    return clause._replace(value="") if clause.option in WHO else clause
