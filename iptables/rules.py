"""Rules as values, and as the text that iptables-restore reads.

A rule says what it matches, what happens then, and why it is there. Matches stand in the order
of the text, which is the reference's to the letter; their order has no meaning to the kernel.

Source: traffic-capture.md sections 5 and 7.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

TableName = Literal["mangle", "nat", "raw"]

#: Chains and verdicts that exist without being made. Source: section 7 rule 3.
BUILT_IN_CHAINS: Final = ("INPUT", "OUTPUT", "FORWARD", "PREROUTING", "POSTROUTING")
ANY_BIT: Final = "0xffffffff"


class Interface(NamedTuple):
    """The packet comes in by, or leaves by, an interface; a trailing '+' matches any ending."""

    direction: Literal["in", "out"]
    name: str

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return f"-{self.direction[0]} {self.name}"


class Address(NamedTuple):
    """The packet's source or destination lies in a block."""

    side: Literal["source", "destination"]
    cidr: str
    inverted: bool = False

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return f"{_not(self)}-{self.side[0]} {self.cidr}"


class Protocol(NamedTuple):
    """The packet's transport protocol."""

    name: Literal["tcp", "udp"]

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return f"-p {self.name}"


class Port(NamedTuple):
    """The packet's source or destination port is a port, or in a range such as '8000:9000'."""

    side: Literal["source", "destination"]
    ports: str
    inverted: bool = False

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return f"{_not(self)}--{self.side[0]}port {self.ports}"


class Ports(NamedTuple):
    """The packet's destination port is one of several."""

    ports: tuple[str, ...]
    inverted: bool = False

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return f"-m multiport {_not(self)}--dports {','.join(self.ports)}"


class Owner(NamedTuple):
    """The packet was sent by a process of a user or group: a name, a number or a range of them."""

    kind: Literal["uid", "gid"]
    owner: str
    inverted: bool = False

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return f"-m owner {_not(self)}--{self.kind}-owner {self.owner}"


class Mark(NamedTuple):
    """The packet, or its connection, carries a mark."""

    of: Literal["packet", "connection"]
    mark: int
    inverted: bool = False

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        module = "mark" if self.of == "packet" else "connmark"
        return f"-m {module} {_not(self)}--mark {self.mark}"


class ConnectionState(NamedTuple):
    """Connection tracking has the packet in one of several states."""

    states: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return f"-m conntrack --ctstate {','.join(self.states)}"


Match = Interface | Address | Protocol | Port | Ports | Owner | Mark | ConnectionState


class Verdict(NamedTuple):
    """The packet's fate: RETURN leaves the chain, in a built-in one for its policy."""

    name: Literal["RETURN", "ACCEPT", "DROP"]

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return self.name


class Jump(NamedTuple):
    """Go on in a chain of ours, and come back from its end."""

    chain: str

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return self.chain


class Redirect(NamedTuple):
    """The destination becomes this host, at a port."""

    port: int
    #: The reference writes --to-port for UDP; the tools take both for the same.
    option: Literal["--to-ports", "--to-port"] = "--to-ports"

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return f"REDIRECT {self.option} {self.port}"


class TransparentProxy(NamedTuple):
    """The packet is marked and given to the transparent socket at a port, unchanged."""

    mark: int
    port: int

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return f"TPROXY --tproxy-mark {self.mark}/{ANY_BIT} --on-port {self.port}"


class SetMark(NamedTuple):
    """The packet is marked."""

    mark: int

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return f"MARK --set-mark {self.mark}"


class CopyMark(NamedTuple):
    """The packet's mark is saved on its connection, or restored from there."""

    action: Literal["save", "restore"]

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return f"CONNMARK --{self.action}-mark"


class TrackInZone(NamedTuple):
    """The packet's connection is tracked apart from those of other zones."""

    zone: int

    @property
    def text(self) -> str:
        """Return the words of the rule."""
        return f"CT --zone {self.zone}"


Target = Verdict | Jump | Redirect | TransparentProxy | SetMark | CopyMark | TrackInZone

RETURN: Final = Verdict("RETURN")
ACCEPT: Final = Verdict("ACCEPT")
DROP: Final = Verdict("DROP")
TCP: Final = Protocol("tcp")
UDP: Final = Protocol("udp")


class Rule(NamedTuple):
    """One rule of a chain."""

    table: TableName
    chain: str
    matches: tuple[Match, ...]  #: all must hold
    target: Target
    why: str  #: what goes wrong without it; shown by --dry-run
    position: int = 0  #: inserted at this place of the chain, counted from 1; 0 appends

    @property
    def spec(self) -> str:
        """Return the rule without its place: matches and target."""
        words = [match.text for match in self.matches]
        return " ".join([*words, "-j", self.target.text])

    @property
    def text(self) -> str:
        """Return the rule as a line of iptables-restore's input."""
        place = f"-I {self.chain} {self.position}" if self.position else f"-A {self.chain}"
        return f"{place} {self.spec}"


class Table(NamedTuple):
    """The rules of one table, in the order in which they are installed."""

    name: TableName
    rules: tuple[Rule, ...]

    @property
    def new_chains(self) -> tuple[str, ...]:
        """Return the chains to make: those with rules, then those only jumped to.

        Source: traffic-capture.md section 7 rule 3.
        """
        named = [rule.chain for rule in self.rules]
        named += [rule.target.chain for rule in self.rules if isinstance(rule.target, Jump)]
        return tuple(chain for chain in dict.fromkeys(named) if chain not in BUILT_IN_CHAINS)

    @property
    def chains(self) -> dict[str, list[Rule]]:
        """Return each chain's rules in the order in which a packet meets them."""
        chains: dict[str, list[Rule]] = {chain: [] for chain in self.new_chains}
        for rule in self.rules:
            chain = chains.setdefault(rule.chain, [])
            chain.insert(rule.position - 1 if rule.position else len(chain), rule)
        return chains


def tables(rules: Iterable[Rule]) -> tuple[Table, ...]:
    """Return the rules by table, tables by name, in otherwise unchanged order."""
    by_name: dict[TableName, list[Rule]] = {}
    for rule in rules:
        by_name.setdefault(rule.table, []).append(rule)
    return tuple(Table(name, tuple(by_name[name])) for name in sorted(by_name))


def lines(table: Table, *, explained: bool = False) -> list[str]:
    """Return the lines that make a table's chains and rules.

    Chains are made with -N and not with ':CHAIN': where one exists already the tool then fails
    instead of doubling its rules.

    Args:
        table: chains not to be made must not exist.
        explained: put each rule's reason on a comment line above it, which the tool skips.
    """
    found = [f"-N {chain}" for chain in table.new_chains]
    for rule in table.rules:
        found += [f"# {rule.why}", rule.text] if explained else [rule.text]
    return found


def render(by_table: Mapping[str, Sequence[str]]) -> str:
    """Return the input of `iptables-restore --noflush`; '' where no table has a line.

    Source: traffic-capture.md section 7.
    """
    parts = []
    for name in sorted(by_table):
        if by_table[name]:
            parts += [f"* {name}", *by_table[name], "COMMIT"]
    return "".join(f"{line}\n" for line in parts)


def render_plan(plan: Iterable[Table], *, explained: bool = False) -> str:
    """Return the input that installs a plan where nothing of ours is."""
    return render({table.name: lines(table, explained=explained) for table in plan})


def one_or_range(text: str, separator: str) -> str:
    """Return a range, or its number if that is all: so iptables-save prints it and nft wants it."""
    first, _, last = text.partition(separator)
    return first if first == last else text


def _not(match: Address | Port | Ports | Owner | Mark) -> str:
    return "! " if match.inverted else ""
