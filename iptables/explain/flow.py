"""The first packet of a flow, as the user describes it.

tcp uid=5000 10.0.0.7 1.2.3.4:80            sent by a process of this network namespace
udp 10.0.0.7:40000 10.96.0.10:53            by one of no user or group that a rule names
tcp out=eth1 2001:db8::7 [2001:db8::9]:80   leaving by an interface that is not the usual one
tcp in=eth0 10.0.0.9 10.0.0.7:8080          coming in
"""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Literal, NamedTuple

from iptables.lists import LARGEST_ID
from iptables.netlink import IPV6, InterfaceAddress

Direction = Literal["in", "out"]
LOOPBACK: Final = "lo"
USUAL_INTERFACE: Final = "eth0"
MAX_PORT: Final = 65535
FORM: Final = "'tcp|udp [uid=N] [gid=N] [in=IF|out=IF] SRC[:PORT] DST:PORT'"
EXAMPLES: Final = "such as 10.0.0.7:80 or [::1]:80"


class FlowError(ValueError):
    """A description that cannot be understood; its text says what was expected."""


class Endpoint(NamedTuple):
    """One side of a flow."""

    address: IPv4Address | IPv6Address
    port: int | None = None  #: None: any, of which no rule knows

    @property
    def text(self) -> str:
        """Return it as URLs have it."""
        host = f"[{self.address}]" if self.address.version == IPV6 else f"{self.address}"
        return f"{self.address}" if self.port is None else f"{host}:{self.port}"


class Flow(NamedTuple):
    """A flow's first packet."""

    protocol: Literal["tcp", "udp"]
    source: Endpoint
    destination: Endpoint
    direction: Direction = "out"  #: seen from this network namespace
    interface: str = ""  #: by which it comes in or leaves
    uid: int | None = None  #: of its sender; None: no rule names that user
    gid: int | None = None


def parse_flow(text: str) -> Flow:
    """Return the flow that a text describes; its interface is '' where none is named.

    Raises:
        FlowError: the text describes none.
    """
    protocol, *rest = text.split() or [""]
    if protocol not in ("tcp", "udp"):
        raise FlowError(f"expected {FORM}, found protocol {protocol!r}")
    options, sides = _options(rest)
    if len(sides) != 2:  # noqa: PLR2004 - source and destination
        raise FlowError(f"expected {FORM}, found {len(sides)} addresses")
    source, destination = _endpoint(sides[0]), _endpoint(sides[1])
    if destination.port is None:
        raise FlowError(f"destination {sides[1]!r}: expected an address and a port, {EXAMPLES}")
    if source.address.version != destination.address.version:
        raise FlowError(f"{sides[0]} and {sides[1]}: expected addresses of one family")
    direction, interface = _direction(options)
    return Flow(
        protocol,  # type: ignore[arg-type] # one of the two
        source,
        destination,
        direction,
        interface,
        _number(options, "uid"),
        _number(options, "gid"),
    )


def _options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    sides = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            sides.append(word)
        elif name not in ("uid", "gid", "in", "out") or name in options or not value:
            raise FlowError(f"{word!r}: expected one each of uid=N, gid=N, in=IF or out=IF")
        else:
            options[name] = value
    return options, sides


def _direction(options: dict[str, str]) -> tuple[Direction, str]:
    came_in = "in" in options
    if came_in and len(options) > 1:
        raise FlowError("in=IF: what comes in has no uid or gid, and no out=IF")
    if options.get("in") == LOOPBACK:
        raise FlowError("in=lo: what goes over lo is sent here, so explain it as sent")
    return ("in", options["in"]) if came_in else ("out", options.get("out", ""))


def _number(options: dict[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) > LARGEST_ID:
        raise FlowError(f"{name}={text}: expected a number in 0..{LARGEST_ID}")
    return int(text)


def _endpoint(text: str) -> Endpoint:
    """Return an address with or without a port; one of IPv6 with a port stands in brackets."""
    parts = re.fullmatch(r"\[(?P<v6>[^]]*)\](:(?P<port6>\d+))?|(?P<v4>[^:]*):(?P<port4>\d+)", text)
    host, port = text, None
    if parts:
        host = parts["v6"] or parts["v4"] or ""
        port = parts["port6"] or parts["port4"]
    try:
        address = ip_address(host)
    except ValueError:
        raise FlowError(f"{text!r}: expected an address {EXAMPLES}") from None
    if port and int(port) > MAX_PORT:
        raise FlowError(f"{text!r}: expected a port in 0..{MAX_PORT}")
    return Endpoint(address, int(port) if port else None)


def complete(flow: Flow, addresses: Iterable[InterfaceAddress]) -> Flow:
    """Return a flow with an interface: where none is named, `lo` or the usual one.

    The usual one is the first that has an address of the flow's family. Where a flow is sent, its
    source is an address, also if the flow is explained elsewhere.
    """
    if flow.interface:
        return flow
    if is_local(flow.destination.address, local_addresses(addresses) | {str(flow.source.address)}):
        return flow._replace(interface=LOOPBACK)
    version = flow.destination.address.version
    usual = (item.interface for item in addresses if item.family == version)
    name = next((name for name in usual if name != LOOPBACK), USUAL_INTERFACE)
    return flow._replace(interface=name)


def local_addresses(addresses: Iterable[InterfaceAddress]) -> frozenset[str]:
    """Return the addresses of this network namespace as text."""
    return frozenset(item.address for item in addresses)


def is_local(address: IPv4Address | IPv6Address, local: frozenset[str]) -> bool:
    """Return whether what is sent to an address stays here."""
    return address.is_loopback or str(address) in local
