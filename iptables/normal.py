"""A normal form of rules: two texts that mean the same to the kernel have the same one.

iptables-save does not print what it was given: it adds `-m tcp`, reorders options, resolves
names, drops what matches everything and writes marks in hexadecimal with masks. Comparing normal
forms takes the place of one `iptables -C` per rule, which is a process each. That the forms are
right is proved against both variants of the tools in tests/netns.

Source: traffic-capture.md sections 9.2 and 18.1 (what iptables-save 1.8.9 prints).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_network
from typing import Final, NamedTuple

from iptables.rules import one_or_range

#: Numbers of users and groups by their rule option and name.
Names = Mapping[tuple[str, str], str]
NO_NAMES: Final[Names] = {}

QUOTED: Final = r'"((?:[^"\\]|\\.)*)"|(\S+)'
ALL_BITS: Final = 0xFFFFFFFF
ALL_PORTS: Final = "0:65535"
PROTOCOLS: Final = {"6": "tcp", "17": "udp"}
SYNONYMS: Final = {"--to-port": "--to-ports", "--set-mark": "--set-xmark"}
OWNERS: Final = ("--uid-owner", "--gid-owner")


class Clause(NamedTuple):
    """One condition of a rule, or one part of its target."""

    module: str  #: the match or target that the option belongs to; '' for those of every rule
    option: str
    value: str
    inverted: bool


Form = tuple[Clause, ...]


def words(spec: str) -> list[str]:
    """Return a rule's words; iptables-save quotes those with blanks, such as comments."""
    if '"' not in spec:
        return spec.split()
    found = re.findall(QUOTED, spec)
    return [re.sub(r"\\(.)", r"\1", quoted) or plain for quoted, plain in found]


def target(spec: str) -> str:
    """Return the chain or target that a rule leads to, '' for none."""
    for option, value, _ in options(spec):
        if option in ("-j", "-g"):
            return value
    return ""


def mark_of(spec: str) -> int | None:
    """Return the mark that a TPROXY rule gives, None for any other rule."""
    for option, value, _ in options(spec):
        if option == "--tproxy-mark":
            return int(value.partition("/")[0], 0)
    return None


def normal_form(spec: str, names: Names = NO_NAMES) -> Form:
    """Return the normal form of a rule.

    Args:
        spec: matches and target, as after '-A CHAIN', written by us or by iptables-save.
        names: what iptables-save prints for the names of users and groups.
    """
    module = ""
    clauses = []
    for option, value, inverted in options(spec):
        if option == "-m":
            # These two come with -p, wherever one of their options is used.
            module = "" if value in ("tcp", "udp") else value
            if not module:
                continue
        clause = _clause(module, option, value, names, inverted=inverted)
        if clause:
            clauses.append(clause)
        if option in ("-j", "-g"):
            module = value
    return tuple(sorted(clauses))


def options(spec: str) -> Iterator[tuple[str, str, bool]]:
    """Yield each option of a rule with its value and whether a '!' stands before it."""
    option, values, inverted, next_inverted = "", list[str](), False, False
    for word in words(spec):
        if word == "!":
            next_inverted = True
        elif word.startswith("-"):
            if option:
                yield option, " ".join(values), inverted
            option, values, inverted, next_inverted = word, [], next_inverted, False
        else:
            values.append(word)
    if option:
        yield option, " ".join(values), inverted


def _clause(module: str, option: str, value: str, names: Names, *, inverted: bool) -> Clause | None:
    """Return a clause in its normal form, None for one that every packet meets."""
    option = SYNONYMS.get(option, option)
    if option in OWNERS:
        value = one_or_range(names.get((option, value), value), "-")
    elif option in VALUES:
        with suppress(ValueError):  # not a rule of ours: compared as it stands
            value = VALUES[option](value)
    is_general = not option.startswith("--")
    if (option, value) in ALWAYS and not inverted:
        return None
    return Clause("" if is_general else module, option, value, inverted)


def _block(value: str) -> str:
    return str(ip_network(value, strict=False))


def _ports(value: str) -> str:
    return one_or_range(value, ":")


def _mark(value: str) -> str:
    mark, _, mask = value.partition("/")
    return f"{int(mark, 0):#x}/{int(mask, 0) if mask else ALL_BITS:#x}"


VALUES: Final[Mapping[str, Callable[[str], str]]] = {
    "-s": _block,
    "-d": _block,
    "-p": lambda value: PROTOCOLS.get(value, value),
    "--dport": _ports,
    "--sport": _ports,
    "--mark": _mark,
    "--set-xmark": _mark,
    "--tproxy-mark": _mark,
}
#: What iptables-save leaves out, or adds, without a change of meaning.
ALWAYS: Final = frozenset(
    (
        ("-s", "0.0.0.0/0"),
        ("-s", "::/0"),
        ("-d", "0.0.0.0/0"),
        ("-d", "::/0"),
        ("-i", "+"),
        ("-o", "+"),
        ("--dport", ALL_PORTS),
        ("--sport", ALL_PORTS),
        ("--nfmask", f"{ALL_BITS:#x}"),
        ("--ctmask", f"{ALL_BITS:#x}"),
        ("--on-ip", "0.0.0.0"),  # noqa: S104 - "any address", not one to listen on
        ("--on-ip", "::"),
    )
)
