"""Rules of the iptables tools as values: what iptables-save prints, understood.

Source: traffic-capture.md section 18.1 (what iptables-save 1.8.9 prints).
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal

from iptables.normal import ALL_BITS, Clause, Form
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
    SetMark,
    Target,
    TrackInZone,
    TransparentProxy,
    Verdict,
)

Options = Mapping[str, str]
MakeMatch = Callable[[str, bool], Match]
PROTOCOLS: Final[Mapping[str, Literal["tcp", "udp"]]] = {"tcp": "tcp", "udp": "udp"}


def read_form(form: Form, chains: Collection[str]) -> tuple[tuple[Match, ...], Target] | None:
    """Return what a rule in normal form matches and does, None where no rule of ours is like it.

    Args:
        form: the rule; names of users and groups are numbers in it.
        chains: those of its table, which it may jump to.
    """
    matches: list[Match] = []
    options: dict[str, str] = {}
    name = ""
    try:
        for clause in form:
            if clause.option == "-j":
                name = clause.value
            elif clause.module == "comment" or clause[:3] in MODULES:
                continue
            elif clause.module.isupper():
                options[clause.option] = clause.value
            else:
                matches.append(_match(clause))
        return tuple(matches), _target(name, options, chains)
    except (KeyError, ValueError):
        return None


def _match(clause: Clause) -> Match:
    make = INVERTIBLE.get((clause.module, clause.option))
    if make:
        return make(clause.value, clause.inverted)
    if clause.inverted:
        raise ValueError
    return PLAIN[clause.module, clause.option](clause.value)


def _target(name: str, options: Options, chains: Collection[str]) -> Target:
    if not options and name in VERDICTS:
        return VERDICTS[name]
    if not options and name in chains:
        return Jump(name)
    return TARGETS[name, frozenset(options)](options)


def _mark(text: str) -> int:
    mark, _, mask = text.partition("/")
    if int(mask, 0) != ALL_BITS:
        raise ValueError
    return int(mark, 0)


INVERTIBLE: Final[Mapping[tuple[str, str], MakeMatch]] = {
    ("", "-s"): lambda value, inverted: Address("source", value, inverted),
    ("", "-d"): lambda value, inverted: Address("destination", value, inverted),
    ("", "--sport"): lambda value, inverted: Port("source", value, inverted),
    ("", "--dport"): lambda value, inverted: Port("destination", value, inverted),
    ("multiport", "--dports"): lambda value, inverted: Ports(tuple(value.split(",")), inverted),
    ("owner", "--uid-owner"): lambda value, inverted: Owner("uid", value, inverted),
    ("owner", "--gid-owner"): lambda value, inverted: Owner("gid", value, inverted),
    ("mark", "--mark"): lambda value, inverted: Mark("packet", _mark(value), inverted),
    ("connmark", "--mark"): lambda value, inverted: Mark("connection", _mark(value), inverted),
}
#: What only announces the options that follow.
MODULES: Final = frozenset(
    ("", "-m", name) for name in ("comment", "conntrack", "connmark", "mark", "multiport", "owner")
)
PLAIN: Final[Mapping[tuple[str, str], Callable[[str], Match]]] = {
    ("", "-i"): lambda value: Interface("in", value),
    ("", "-o"): lambda value: Interface("out", value),
    ("", "-p"): lambda value: Protocol(PROTOCOLS[value]),
    ("conntrack", "--ctstate"): lambda value: ConnectionState(tuple(value.split(","))),
}
VERDICTS: Final[Mapping[str, Verdict]] = {
    "RETURN": Verdict("RETURN"),
    "ACCEPT": Verdict("ACCEPT"),
    "DROP": Verdict("DROP"),
}
TARGETS: Final[Mapping[tuple[str, frozenset[str]], Callable[[Options], Target]]] = {
    ("REDIRECT", frozenset(("--to-ports",))): lambda given: Redirect(int(given["--to-ports"])),
    ("TPROXY", frozenset(("--on-port", "--tproxy-mark"))): lambda given: TransparentProxy(
        _mark(given["--tproxy-mark"]), int(given["--on-port"])
    ),
    ("MARK", frozenset(("--set-xmark",))): lambda given: SetMark(_mark(given["--set-xmark"])),
    ("CONNMARK", frozenset(("--save-mark",))): lambda _: CopyMark("save"),
    ("CONNMARK", frozenset(("--restore-mark",))): lambda _: CopyMark("restore"),
    ("CT", frozenset(("--zone",))): lambda given: TrackInZone(int(given["--zone"])),
}
