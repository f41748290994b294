"""Rules of nft's language as values in a normal form: equal where they mean the same.

A planned rule and the same rule read back differ in words: what one field implies of another is
left out, addresses lose their host bits, names become numbers, marks and states hexadecimal.

Source: traffic-capture.md section 11.4.
"""

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_network
from typing import Final, Literal, NamedTuple

from iptables.nft.text import chain_name, needed_matches
from iptables.normal import NO_NAMES, Names, words
from iptables.rules import (
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
    Target,
    TrackInZone,
    TransparentProxy,
    Verdict,
    one_or_range,
)

STATES: Final = {"0x1": "INVALID", "0x2": "ESTABLISHED", "0x4": "RELATED", "0x8": "NEW"}
PROTOCOLS: Final[Mapping[str, Literal["tcp", "udp"]]] = {
    "tcp": "tcp",
    "udp": "udp",
    "6": "tcp",
    "17": "udp",
}
SIDES: Final[Mapping[str, Literal["source", "destination"]]] = {
    "saddr": "source",
    "daddr": "destination",
    "sport": "source",
    "dport": "destination",
}


class Form(NamedTuple):
    """What a rule means."""

    matches: frozenset[Match]
    target: Target


def planned_form(rule: Rule, names: Names = NO_NAMES) -> Form:
    """Return the form of a planned rule; `names` has the numbers of users and groups."""
    target = rule.target
    if isinstance(target, Redirect):
        target = Redirect(target.port)
    if isinstance(target, Jump):
        target = Jump(chain_name(target.chain))
    return _form(needed_matches(rule), target, names)


def read_form(text: str) -> Form | None:
    """Return the form of a rule as nft lists it or reads it, None for one not of our kinds."""
    left = _Words(text)
    matches: list[Match] = []
    target: Target | None = None
    try:
        while left and not target:
            word = left.next()
            for part in READERS[word](word, left):
                if isinstance(part, Target):
                    target = part
                else:
                    matches.append(part)
    except (KeyError, ValueError, IndexError):
        return None
    if left or not target:
        return None
    return _form(matches, target, NO_NAMES)


class _Words:
    """The words of a rule, taken from the front."""

    def __init__(self, text: str) -> None:
        self._left = words(text)[::-1]

    def __bool__(self) -> bool:
        return bool(self._left)

    def next(self) -> str:
        return self._left.pop()

    def skip(self, *expected: str) -> bool:
        """Return whether these words were next; then they are taken."""
        count = len(expected)
        if tuple(self._left[: -count - 1 : -1]) != expected:
            return False
        del self._left[-count:]
        return True

    def expect(self, *expected: str) -> None:
        if not self.skip(*expected):
            raise ValueError

    def value(self) -> tuple[str, bool]:
        """Return a value, and whether it is the one that must not be."""
        inverted = self.skip("!=")
        return self.next(), inverted


def _interface(word: str, left: _Words) -> tuple[Match, ...]:
    name = left.next()  # '!=' is no name, and what follows no word of a rule
    direction: Literal["in", "out"] = "in" if word == "iifname" else "out"
    return (Interface(direction, f"{name[:-1]}+" if name.endswith("*") else name),)


def _address(_: str, left: _Words) -> tuple[Match, ...]:
    side = SIDES[left.next()]
    block, inverted = left.value()
    return (Address(side, block, inverted),)


def _port(word: str, left: _Words) -> tuple[Match, ...]:
    protocol, side = Protocol(PROTOCOLS[word]), SIDES[left.next()]
    value, inverted = left.value()
    if value != "{":
        return protocol, Port(side, value.replace("-", ":"), inverted)
    ports = []
    while not left.skip("}"):
        ports.append(left.next().rstrip(","))
    return protocol, Ports(tuple(ports), inverted)


def _meta(_: str, left: _Words) -> tuple[Match | Target, ...]:
    key = left.next()
    if key == "l4proto":
        return (Protocol(PROTOCOLS[left.next()]),)
    return READERS_OF_META[key](key, left)


def _owner(word: str, left: _Words) -> tuple[Match, ...]:
    owner, inverted = left.value()
    return (Owner("uid" if word == "skuid" else "gid", owner, inverted),)


def _mark(_: str, left: _Words) -> tuple[Match | Target, ...]:
    if left.skip("set", "ct", "mark"):
        return (CopyMark("restore"),)
    if left.skip("set"):
        return (SetMark(int(left.next(), 0)),)
    mark, inverted = left.value()
    return (Mark("packet", int(mark, 0), inverted),)


def _connection(_: str, left: _Words) -> tuple[Match | Target, ...]:
    if left.skip("mark", "set", "mark") or left.skip("mark", "set", "meta", "mark"):
        return (CopyMark("save"),)
    if left.skip("zone", "set"):
        return (TrackInZone(int(left.next(), 0)),)
    if left.skip("state"):
        states = left.next().split(",")
        return (ConnectionState(tuple(STATES.get(state, state.upper()) for state in states)),)
    left.expect("mark")
    mark, inverted = left.value()
    return (Mark("connection", int(mark, 0), inverted),)


def _counter(_: str, left: _Words) -> tuple[Match, ...]:
    if left.skip("packets"):
        left.next()
        left.expect("bytes")
        left.next()
    return ()


def _jump(_: str, left: _Words) -> tuple[Target]:
    return (Jump(left.next()),)


def _verdict(word: str, _: _Words) -> tuple[Target]:
    return (VERDICTS[word],)


def _redirect(_: str, left: _Words) -> tuple[Target]:
    left.expect("to")
    return (Redirect(int(left.next().removeprefix(":"))),)


def _transparent(_: str, left: _Words) -> tuple[Target]:
    left.next()  # the family, which the address says too
    left.expect("to")
    port = int(left.next().removeprefix(":"))
    left.expect("meta", "mark", "set")
    mark = int(left.next(), 0)
    left.expect("counter", "accept")
    return (TransparentProxy(mark, port),)


Reader = Callable[[str, _Words], tuple[Match | Target, ...]]
VERDICTS: Final = {
    "return": Verdict("RETURN"),
    "accept": Verdict("ACCEPT"),
    "drop": Verdict("DROP"),
}
READERS_OF_META: Final[Mapping[str, Reader]] = {"skuid": _owner, "skgid": _owner, "mark": _mark}
READERS: Final[Mapping[str, Reader]] = {
    **READERS_OF_META,
    **dict.fromkeys(("iifname", "oifname"), _interface),
    **dict.fromkeys(("ip", "ip6"), _address),
    **dict.fromkeys(("tcp", "udp"), _port),
    **dict.fromkeys(VERDICTS, _verdict),
    "meta": _meta,
    "ct": _connection,
    "counter": _counter,
    "jump": _jump,
    "redirect": _redirect,
    "tproxy": _transparent,
}


def _form(matches: Iterable[Match], target: Target, names: Names) -> Form:
    counted = (it for it in matches if not (isinstance(it, Interface) and it.name == "+"))
    return Form(frozenset(normal_match(match, names) for match in counted), target)


def normal_match(match: Match, names: Names) -> Match:
    """Return a match as the kernel has it; `names` has the numbers of users and groups."""
    match match:
        case Address(_, cidr):
            return match._replace(cidr=str(ip_network(cidr, strict=False)))
        case Port(_, ports):
            return match._replace(ports=one_or_range(ports, ":"))
        case Ports(ports):
            return match._replace(ports=tuple(sorted(set(ports))))
        case Owner(kind, owner):
            number = names.get((f"--{kind}-owner", owner), owner)
            return match._replace(owner=one_or_range(number, "-"))
        case ConnectionState(states):
            return ConnectionState(tuple(sorted(states)))
        case _:
            return match
