"""A plan as one nftables transaction, over both address families.

Tables and chains have names of their own. The rules are those that the iptables tools get, in
other words, in the reference's order and to its letter, which the golden files hold.

Source: traffic-capture.md section 11.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, assert_never

from iptables.nft.keywords import KEYWORDS
from iptables.rules import (
    TCP,
    UDP,
    Address,
    ConnectionState,
    CopyMark,
    Interface,
    Jump,
    Mark,
    Match,
    Owner,
    Port,
    Ports,
    Protocol,
    Redirect,
    Rule,
    SetMark,
    Table,
    Target,
    TrackInZone,
    TransparentProxy,
    Verdict,
    one_or_range,
)

#: Every table of ours and its chains, in the order in which they are made; base chains, which the
#: kernel calls, have a hook. Priorities are numbers, as older releases know the names on few hooks.
CHAINS: Final[Mapping[str, Mapping[str, str]]] = {
    "nat": {
        "prerouting": "type nat hook prerouting priority -100",
        "output": "type nat hook output priority -100",
        "istio-inbound": "",
        "istio-redirect": "",
        "istio-in-redirect": "",
        "istio-output": "",
        "istio-output-dns": "",
    },
    "mangle": {
        "prerouting": "type filter hook prerouting priority -150",
        "output": "type route hook output priority -150",
        "istio-divert": "",
        "istio-tproxy": "",
        "istio-inbound": "",
        "istio-drop": "",
    },
    "raw": {
        "prerouting": "type filter hook prerouting priority -300",
        "output": "type filter hook output priority -300",
        "istio-inbound": "",
        "istio-output-dns": "",
    },
}
INVALID: Final = ConnectionState(("INVALID",))
BARE_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
#: The order of a rule's matches; table raw has its own.
ORDER: Final = (Interface, Protocol, ConnectionState, Address, Port, Ports, Owner, Mark)
RAW_ORDER: Final = (Interface, Protocol, Port, Address, Owner)
COPIES: Final = {"save": "ct mark set mark", "restore": "meta mark set ct mark"}


def transaction(planned: Sequence[Table], *, explained: bool = False) -> str:
    """Return the input of `nft -f -` that installs a plan where nothing of ours is.

    Args:
        planned: the rules of the captured families together.
        explained: put each rule's reason on a comment line above it, which nft skips.

    Source: section 11.3.
    """
    by_name = {str(table.name): table for table in planned}
    lines: list[str] = []
    for name, chains in CHAINS.items():
        if name in by_name:
            lines += _table_lines(by_name[name], chains, explained=explained)
    return "".join(f"{line}\n" for line in lines)


def removal() -> str:
    """Return the input of `nft -f -` that removes our tables, there or not."""
    lines = []
    for name in CHAINS:
        # Added first, as what is not there cannot be deleted.
        lines += [f"{verb} table inet {table_name(name)}\n" for verb in ("add", "delete")]
    return "".join(lines)


def table_name(table: str) -> str:
    """Return what nftables has for a table of the plan."""
    return f"istio-proxy-{table}"


def chain_name(chain: str) -> str:
    """Return what nftables has for a chain of the plan."""
    return chain.lower().replace("_", "-")


def _table_lines(table: Table, chains: Mapping[str, str], *, explained: bool) -> list[str]:
    place = f"inet {table_name(table.name)}"
    used = {chain_name(rule.chain) for rule in table.rules}
    lines = [f"add table {place}", f"flush table {place}"]
    for chain, hook in chains.items():
        if chain in used:
            lines.append(f"add chain {place} {chain}" + (f" {{ {hook} ; }}" if hook else ""))
    counts = dict.fromkeys(used, 0)
    for rule in table.rules:
        if explained:
            lines.append(f"# {rule.why}")
        chain = chain_name(rule.chain)
        lines.append(f"{_verb(rule, f'{place} {chain}', counts[chain])} {rule_text(rule)}")
        counts[chain] += 1
    return lines


def _verb(rule: Rule, place: str, count: int) -> str:
    """Return the beginning of a command, for a chain that holds `count` rules.

    nft cannot insert before a rule that is not there. Source: section 11.3.
    """
    index = rule.position - 1
    if 0 <= index < count:
        return f"insert rule {place} index {index}"
    return f"add rule {place}"


def rule_text(rule: Rule) -> str:
    """Return a rule without its place: matches and statement."""
    matches = needed_matches(rule)
    order = RAW_ORDER if rule.table == "raw" else ORDER
    words = [
        _match_text(match, rule) for match in sorted(matches, key=lambda it: order.index(type(it)))
    ]
    return " ".join([*filter(None, words), _statement(rule.target, matches)])


def needed_matches(rule: Rule) -> tuple[Match, ...]:
    """Return a rule's matches as nftables has them.

    Only invalid TCP packets are dropped, where the iptables rule drops any. Source: section 11.4.
    """
    return (TCP, INVALID) if rule.matches == (INVALID,) else rule.matches


def _match_text(match: Match, rule: Rule) -> str:
    match match:
        case Interface(direction, name):
            return f"{direction[0]}ifname {_interface(name)}" if name != "+" else ""
        case Address(side, cidr):
            return f"{_ip(cidr)} {side[0]}addr {_not(match)}{cidr}"
        case Owner(kind, owner):
            prefix = "meta " if rule.table == "raw" else ""
            return f"{prefix}sk{kind} {_not(match)}{_owner(owner)}"
        case Mark(of, mark):
            return f"{'ct ' if of == 'connection' else ''}mark {_not(match)}{mark}"
        case ConnectionState(states):
            return f"ct state {','.join(states).lower()}"
        case _:
            return _transport_text(match, rule)


def _transport_text(match: Protocol | Port | Ports, rule: Rule) -> str:
    protocol = "udp" if UDP in rule.matches else "tcp"
    match match:
        case Protocol():
            return "" if _is_implied(rule) else f"meta l4proto {protocol}"
        case Port(side, ports):
            ports = one_or_range(ports, ":").replace(":", "-")
            return f"{protocol} {side[0]}port {_not(match)}{ports}"
        case Ports(items):
            return f"{protocol} dport {_not(match)}{{ {', '.join(items)} }}"
        case _:
            assert_never(match)


def _is_implied(rule: Rule) -> bool:
    """Return whether the protocol is left to the port; the reference does in some rules only."""
    kinds = {type(match) for match in rule.matches}
    if Port not in kinds or UDP in rule.matches:
        return Port in kinds
    has_block = any(isinstance(match, Address) and not match.inverted for match in rule.matches)
    return has_block or (rule.chain == "ISTIO_OUTPUT" and Interface not in kinds)


def _statement(target: Target, matches: Sequence[Match]) -> str:
    if isinstance(target, TransparentProxy):
        (block,) = (match.cidr for match in matches if isinstance(match, Address))
        to = f"tproxy {_ip(block)} to :{target.port}"
        return f"{to} meta mark set {target.mark} counter accept"
    return f"counter {_counted(target)}"


def _counted(target: Verdict | Jump | Redirect | SetMark | CopyMark | TrackInZone) -> str:
    match target:
        case Verdict(name):
            return name.lower()
        case Jump(chain):
            return f"jump {chain_name(chain)}"
        case Redirect(port):
            return f"redirect to :{port}"
        case SetMark(mark):
            return f"meta mark set {mark}"
        case CopyMark(action):
            return COPIES[action]
        case TrackInZone(zone):
            return f"ct zone set {zone}"
        case _:
            assert_never(target)


def _ip(cidr: str) -> str:
    return "ip6" if ":" in cidr else "ip"


def _not(match: Address | Port | Ports | Owner | Mark) -> str:
    return "!= " if match.inverted else ""


def _interface(name: str) -> str:
    return f'"{name[:-1]}*"' if name.endswith("+") else _word(name)


def _owner(owner: str) -> str:
    return one_or_range(owner, "-") if owner[0].isdigit() else _word(owner)


def _word(text: str) -> str:
    """Return a name as nft reads it, in quotes where it would read something else."""
    is_bare = BARE_WORD.fullmatch(text) and text not in KEYWORDS
    return text if is_bare else f'"{text}"'
