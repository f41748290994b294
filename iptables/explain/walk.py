"""A packet's way through the rules: which it meets and what becomes of it.

What is sent here passes the OUTPUT chains of raw, mangle and nat; if it stays here, or is
redirected to here, it comes in again by lo and passes the PREROUTING chains, but not that of nat:
a connection gets its destination once. What comes in passes the PREROUTING chains. It is the first
packet of a flow: its connection is new, and neither has a mark.

Source: traffic-capture.md section 6.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, Literal, NamedTuple, assert_never

from iptables.explain.chains import Chains, Line
from iptables.explain.flow import LOOPBACK, Flow, is_local
from iptables.nft.text import chain_name
from iptables.rules import (
    RETURN,
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
    TrackInZone,
    TransparentProxy,
    Verdict,
)

TABLES: Final = ("raw", "mangle", "nat")
#: Where REDIRECT sends what leaves this host, by address family.
LOCALHOST: Final = {4: ip_address("127.0.0.1"), 6: ip_address("::1")}
NEW: Final = "NEW"
NAT_IS_DONE: Final = "skipped, as a connection passes nat once, and did when it was sent"

Action = Literal["redirected", "tproxied", "dropped", "returned", "untouched"]
#: What changes the packet and lets it go on.
Change = SetMark | CopyMark | TrackInZone


class Step(NamedTuple):
    """A rule that matched."""

    chain: str
    line: Line


class Hook(NamedTuple):
    """A chain that the kernel called, and the rules that matched in it and beyond."""

    table: str
    chain: str
    steps: tuple[Step, ...]
    again: bool = False  #: the packet was sent here, and comes in by `lo`
    skipped: str = ""  #: why it was not called


class Fate(NamedTuple):
    """What becomes of the packet."""

    action: Action
    why: str
    port: int | None = None  #: of the listener here that gets it, where it is captured


class Explanation(NamedTuple):
    """The way of a packet."""

    flow: Flow
    hooks: tuple[Hook, ...]
    fate: Fate
    unread: tuple[Step, ...]  #: rules in its way that are not understood, taken for no match


class Packet(NamedTuple):
    """What rules see of a packet."""

    protocol: str
    source: IPv4Address | IPv6Address
    source_port: int | None
    destination: IPv4Address | IPv6Address
    destination_port: int | None
    came_in_by: str
    leaves_by: str
    uid: int | None
    gid: int | None
    mark: int = 0
    connection_mark: int = 0


UNTOUCHED: Final = Fate("untouched", "no rule has anything against it")


def explain(flow: Flow, chains: Chains, local: frozenset[str]) -> Explanation:
    """Return the way of a flow's first packet.

    Args:
        flow: complete, with its interface.
        chains: the rules of its address family; names of users and groups are numbers in them.
        local: addresses of this network namespace, besides the source of what is sent there.
    """
    walk = _Walk(flow, chains)
    if flow.direction == "in":
        walk.call("PREROUTING", TABLES)
    else:
        walk.call("OUTPUT", TABLES)
        local |= {str(flow.source.address)}
        if not walk.is_dropped and is_local(walk.packet.destination, local):
            walk.come_in_again()
    return Explanation(flow, tuple(walk.hooks), walk.fate or walk.returned, tuple(walk.unread))


class _Walk:
    """The packet on its way."""

    def __init__(self, flow: Flow, chains: Chains) -> None:
        came_in = flow.direction == "in"
        self.packet = Packet(
            flow.protocol,
            flow.source.address,
            flow.source.port,
            flow.destination.address,
            flow.destination.port,
            came_in_by=flow.interface if came_in else "",
            leaves_by="" if came_in else flow.interface,
            uid=flow.uid,
            gid=flow.gid,
        )
        self.hooks: list[Hook] = []
        self.unread: list[Step] = []
        self.fate: Fate | None = None  #: None: no rule has decided, as far as the walk has come
        self.returned = UNTOUCHED
        self._chains = chains
        self._steps: list[Step] = []

    @property
    def is_dropped(self) -> bool:
        """Return whether the packet is no more."""
        return self.fate is not None and self.fate.action == "dropped"

    def call(self, hook: str, tables: Sequence[str], *, again: bool = False) -> None:
        """Pass the chains of a hook."""
        for table in tables:
            chain = self._base_chain(table, hook)
            if chain and not self.is_dropped:
                self._steps = []
                self._pass(table, chain)
                self.hooks.append(Hook(table, chain, tuple(self._steps), again))

    def come_in_again(self) -> None:
        """Pass the chains of what comes in, as what was sent to this host does."""
        self.packet = self.packet._replace(came_in_by=LOOPBACK, leaves_by="", uid=None, gid=None)
        self.call("PREROUTING", TABLES[:-1], again=True)
        chain = self._base_chain("nat", "PREROUTING")
        if chain:
            self.hooks.append(Hook("nat", chain, (), again=True, skipped=NAT_IS_DONE))

    def _base_chain(self, table: str, hook: str) -> str:
        """Return what the chain of a hook is called, '' where there is none."""
        names = (hook, chain_name(hook))
        return next((name for name in names if (table, name) in self._chains), "")

    def _pass(self, table: str, chain: str) -> bool:
        """Pass a chain; return whether the table has had its last word."""
        for line in self._chains.get((table, chain), ()):
            step = Step(chain, line)
            if line.target is None:
                self.unread.append(step)
                continue
            if not all(_holds(match, self.packet) for match in line.matches):
                continue
            self._steps.append(step)
            if line.target == RETURN:
                self.returned = Fate("returned", line.why)
                return False
            if isinstance(line.target, Jump):
                if self._pass(table, line.target.chain):
                    return True
            elif self._act(line.target, line.why):
                return True
        return False

    def _act(self, target: Verdict | Redirect | TransparentProxy | Change, why: str) -> bool:
        """Do what a rule says; return whether that ends the table."""
        packet = self.packet
        match target:
            case Redirect(port):
                self.packet = packet._replace(
                    destination=LOCALHOST[packet.destination.version], destination_port=port
                )
                if not self.fate:  # a socket that TPROXY has found stays the packet's
                    self.fate = Fate("redirected", why, port)
            case TransparentProxy(mark, port):
                self.packet = packet._replace(mark=mark)
                self.fate = Fate("tproxied", why, port)
            case Verdict(name):
                self.fate = Fate("dropped", why) if name == "DROP" else self.fate
            case _:
                self.packet = _changed(packet, target)
                return False
        return True


def _changed(packet: Packet, target: Change) -> Packet:
    match target:
        case SetMark(mark):
            return packet._replace(mark=mark)
        case CopyMark("save"):
            return packet._replace(connection_mark=packet.mark)
        case CopyMark():
            return packet._replace(mark=packet.connection_mark)
        case TrackInZone():
            return packet  # zones keep conversations apart, they decide no fate
        case _:
            assert_never(target)


def _holds(match: Match, packet: Packet) -> bool:
    match match:
        case Interface(direction, name):
            found = packet.came_in_by if direction == "in" else packet.leaves_by
            return found.startswith(name[:-1]) if name.endswith("+") else found == name
        case Address():
            return _is_in(match, packet)
        case Owner(kind, owner):
            sender = packet.uid if kind == "uid" else packet.gid
            return (sender is not None and _is_between(sender, owner, "-")) != match.inverted
        case Mark(of, mark):
            found_mark = packet.mark if of == "packet" else packet.connection_mark
            return (found_mark == mark) != match.inverted
        case ConnectionState(states):
            return NEW in states
        case _:
            return _transports(match, packet)


def _transports(match: Protocol | Port | Ports, packet: Packet) -> bool:
    match match:
        case Protocol(name):
            return packet.protocol == name
        case Port(side, ports):
            port = packet.source_port if side == "source" else packet.destination_port
            return (port is not None and _is_between(port, ports, ":")) != match.inverted
        case Ports(items):
            return (str(packet.destination_port) in items) != match.inverted
        case _:
            assert_never(match)


def _is_in(match: Address, packet: Packet) -> bool:
    """Return whether an address is in a block; one of the other family never matches."""
    address = packet.source if match.side == "source" else packet.destination
    block = ip_network(match.cidr, strict=False)
    return address.version == block.version and (address in block) != match.inverted


def _is_between(number: int, text: str, separator: str) -> bool:
    """Return whether a number is in a range, or is the only one in it; a name has no number."""
    first, _, last = text.partition(separator)
    return first.isdigit() and int(first) <= number <= int(last or first)
