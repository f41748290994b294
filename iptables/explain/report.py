"""An explanation for people, and for programs."""

import json
from collections.abc import Iterator

from iptables.explain.flow import Flow
from iptables.explain.walk import Explanation, Fate, Hook, Step


def render(explanation: Explanation, rules: str) -> str:
    """Return lines for people.

    Args:
        explanation: what is to be shown.
        rules: which were walked, such as 'planned, for iptables'.
    """
    lines = [f"flow     {_flow(explanation.flow)}", f"rules    {rules}", ""]
    for hook in explanation.hooks:
        lines += _hook(hook)
    for step in explanation.unread:
        lines += [f"not understood, taken for no match: {_rule(step)}", ""]
    lines.append(f"verdict  {_fate(explanation.fate)}")
    return "".join(f"{line}\n" for line in lines)


def _hook(hook: Hook) -> Iterator[str]:
    note = hook.skipped or ("" if hook.steps else "no rule matches")
    again = ", coming in again by lo" if hook.again else ""
    yield f"{hook.table} {hook.chain}{again}{': ' if note else ''}{note}"
    for step in hook.steps:
        yield f"  {_rule(step)}"
        yield f"      {step.line.why}"
    yield ""


def _rule(step: Step) -> str:
    return f"{step.chain}: {step.line.text}"


def _flow(flow: Flow) -> str:
    sides = f"{flow.protocol} {flow.source.text} -> {flow.destination.text}"
    if flow.direction == "in":
        return f"{sides}, coming in by {flow.interface}"
    numbers = {"uid": flow.uid, "gid": flow.gid}
    known = [f"{kind} {number}" for kind, number in numbers.items() if number is not None]
    sender = " and ".join(known) or "no user or group that a rule names"
    return f"{sides}, sent here by {sender}, leaving by {flow.interface}"


def _fate(fate: Fate) -> str:
    to = "" if fate.port is None else f" to {fate.port}"
    return f"{fate.action}{to}: {fate.why}"


def as_json(explanation: Explanation, rules: str) -> str:
    """Return an object on one line.

    Its keys: `flow` (protocol, source, destination, direction, interface, uid, gid), `rules`,
    `hooks` (in the packet's order, each with table, chain, again, skipped and `steps` of chain,
    rule and why), `not_understood` (chain and rule), `verdict` (action, port or null, why).
    """
    flow, fate = explanation.flow, explanation.fate
    found = {
        "flow": {
            "protocol": flow.protocol,
            "source": flow.source.text,
            "destination": flow.destination.text,
            "direction": flow.direction,
            "interface": flow.interface,
            "uid": flow.uid,
            "gid": flow.gid,
        },
        "rules": rules,
        "hooks": [
            {
                "table": hook.table,
                "chain": hook.chain,
                "again": hook.again,
                "skipped": hook.skipped,
                "steps": [
                    {"chain": step.chain, "rule": step.line.text, "why": step.line.why}
                    for step in hook.steps
                ],
            }
            for hook in explanation.hooks
        ],
        "not_understood": [
            {"chain": step.chain, "rule": step.line.text} for step in explanation.unread
        ],
        "verdict": fate._asdict(),
    }
    return f"{json.dumps(found)}\n"
