"""What `explain` says of a packet is what the kernel does with it, on every backend.

Configurations and packets are drawn, applied and sent; the listener that a packet arrives at must
be the one foretold. FUZZ_EXAMPLES sets how many configurations are drawn for each backend.
"""

import os
import shlex
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Final, TypeVar

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from iptables import rules
from iptables.config import CaptureConfig, parse_settings
from iptables.explain.chains import (
    Chains,
    listed_chains,
    planned_chains,
    planned_native_chains,
    saved_chains,
)
from iptables.explain.flow import Endpoint, Flow
from iptables.explain.walk import Explanation, explain
from iptables.flags import parse_flags
from iptables.host import HostFacts
from iptables.installed import parse_saved
from iptables.netlink import Family, InterfaceAddress
from iptables.nft.listing import parse_listing
from iptables.nft.text import transaction
from iptables.options import FLAGS
from iptables.plan import plan
from tests.netns.namespaces import ROOT
from tests.netns.packets import ADDRESSES, PEER_PORT, PORTS, Arrival, Packet, Wire, version, wired
from tests.property.strategies_iptables import comma, flag, switch

pytestmark = [pytest.mark.root, pytest.mark.slow]

#: Configurations for each backend, and packets for each of them.
EXAMPLES: Final = int(os.environ.get("FUZZ_EXAMPLES", "30"))
PACKETS: Final = 8
WITHOUT_IPTC: Final = pytest.mark.skipif(
    find_spec("iptc") is None and not os.environ.get("CI"),
    reason="needs python-iptables: make test, or pip install '.[libiptc]'",
)
BACKENDS: Final = ("nft", "legacy", "native", pytest.param("libiptc", marks=WITHOUT_IPTC))
LIBIPTC: Final = shlex.join((sys.executable, f"{ROOT}/tests/fakes/libiptc.py"))
FAMILIES: Final[tuple[Family, ...]] = (4, 6)

LOCAL: Final = frozenset(["::6", *(mine for pair in ADDRESSES.values() for mine in pair)])
FACTS: Final = HostFacts(
    addresses=tuple(
        InterfaceAddress("eth0", 2, 6 if ":" in text else 4, text, is_up=True, is_loopback=False)
        for text in ADDRESSES["eth0"]
    ),
    resolv_conf="nameserver 10.96.0.10\nnameserver 127.0.0.53\nnameserver fd00::10\n",
)
INBOUND_PORTS = comma(st.sampled_from(["80", "8080", "8000:9000", "15008", "15006"]))
OUTBOUND_PORTS = comma(st.sampled_from(["80", "443", "53", "8000:9000", "0:100", "15053"]))
BLOCKS = [
    "10.96.0.0/12", "1.2.3.4/16", "10.9.0.0/24", "127.1.2.3/32", "0.0.0.0/0", "::1/128",
    "2001:db8:1::/48", "fd00::/8", "::/0",
]  # fmt: skip
CIDRS = comma(st.sampled_from(BLOCKS))
NICS = comma(st.sampled_from(["eth0", "eth1", "eth+", "lo", "docker+"]))
IDS = comma(st.sampled_from(["0", "3", "1337", "1000-2000", "5000"]))
USERS = st.sampled_from([0, 3, 1337, 1500, 5000])
T = TypeVar("T")


def at_times(values: st.SearchStrategy[T], otherwise: T) -> st.SearchStrategy[T]:
    """Draw values in one of three cases: most configurations are plain."""
    return st.sampled_from([False, False, True]).flatmap(
        lambda chosen: values if chosen else st.just(otherwise)
    )


COMMAND_LINES = st.tuples(
    at_times(st.just(("-m", "TPROXY")), ()),
    at_times(flag("istio-inbound-ports", INBOUND_PORTS), ("-b", "*")),
    at_times(flag("istio-local-exclude-ports", INBOUND_PORTS), ()),
    at_times(flag("istio-service-cidr", CIDRS), ("-i", "*")),
    at_times(flag("istio-service-exclude-cidr", CIDRS), ()),
    at_times(flag("istio-outbound-ports", OUTBOUND_PORTS), ()),
    at_times(flag("istio-local-outbound-ports-exclude", OUTBOUND_PORTS), ()),
    at_times(flag("istio-exclude-interfaces", NICS), ()),
    at_times(flag("kube-virt-interfaces", NICS), ()),
    at_times(flag("proxy-uid", IDS), ()),
    at_times(flag("proxy-gid", IDS), ()),
    at_times(st.just(("--drop-invalid",)), ()),
    switch("redirect-dns"),
    switch("capture-all-dns"),
    at_times(st.just(()), ("--dual-stack",)),
).map(lambda parts: [word for words in parts for word in words])
ENVIRONMENTS = at_times(
    st.fixed_dictionaries(
        {},
        optional={
            "ISTIO_OUTBOUND_OWNER_GROUPS": IDS,
            "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": IDS,
            "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": st.sampled_from(["127.0.0.1/8", "127.0.0.2/32"]),
            "AGENT_CAPTURE_ALL_PROXY_IDENTITIES": st.just("true"),
            "AGENT_CAPTURE_DNS_EXCLUSIONS": st.just("true"),
        },
    ),
    {},
)
#: By family: what is sent from over `lo`, and to whom from anywhere.
LOOPBACK_SOURCES = {4: ["127.0.0.1", "127.0.0.6", "10.9.0.1"], 6: ["::1", "::6", "2001:db8:9::1"]}
TARGETS = {
    4: [
        "1.2.3.4", "10.96.0.10", "192.168.3.4", "10.9.0.2", "10.9.1.2", "10.9.0.1", "10.9.1.1",
        "127.0.0.1", "127.0.0.6", "127.0.0.53", "127.1.2.3",
    ],
    6: [
        "2001:db8:1::1", "fd00::10", "2001:db8:9::2", "2001:db8:91::2", "2001:db8:9::1",
        "2001:db8:91::1", "::1", "::6",
    ],
}  # fmt: skip
PROTOCOLS = st.sampled_from(["tcp", "udp"])


def family(packet: Packet) -> Family:
    return 6 if version(packet.source) == 6 else 4


def is_here(address: str) -> bool:
    return ip_address(address).is_loopback or address in LOCAL


def leaves_by(address: str) -> str:
    """Return the interface by which the pod's routes send what goes to an address."""
    if is_here(address):
        return "lo"
    return "eth1" if address in ADDRESSES["eth1"].values() else "eth0"


@st.composite
def outbound(draw: st.DrawFn) -> Packet:
    family = draw(st.sampled_from(FAMILIES))
    target = draw(st.sampled_from(TARGETS[family]))
    interface = leaves_by(target)
    if interface == "lo":
        source = draw(st.sampled_from(LOOPBACK_SOURCES[family]))
    else:
        source = next(mine for mine in ADDRESSES[interface] if version(mine) == family)
    port = draw(st.sampled_from((53, 53, 53, *PORTS)))
    return Packet(draw(PROTOCOLS), source, target, port, draw(USERS), draw(USERS))


@st.composite
def inbound(draw: st.DrawFn) -> Packet:
    """Draw what a peer sends, or what a virtual machine behind an interface sends to the world."""
    interface = draw(st.sampled_from(["eth0", "eth1"]))
    mine, theirs = draw(st.sampled_from(sorted(ADDRESSES[interface].items())))
    elsewhere = TARGETS[6 if version(mine) == 6 else 4][0]
    target = draw(st.sampled_from([mine, mine, elsewhere]))
    port = draw(st.sampled_from(PORTS))
    return Packet(draw(PROTOCOLS), theirs, target, port, interface=interface)


def configuration(argv: list[str], environ: dict[str, str]) -> CaptureConfig:
    return parse_settings(parse_flags(FLAGS, argv, environ=environ), environ, FACTS).config


def apply(wire: Wire, backend: str, config: CaptureConfig) -> None:
    """Replace the pod's rules by the configuration's."""
    captured = config.families.captured
    if backend == "native":
        text = transaction(plan(config, *captured))
        wire.run(("nft -f -", f"flush ruleset\n{text}"))
        return
    texts = {family: rules.render_plan(plan(config, family)) for family in captured}
    if backend == "nft":
        commands = [("nft flush ruleset", "")]
    else:
        empty = "*raw\nCOMMIT\n*mangle\nCOMMIT\n*nat\nCOMMIT\n"
        commands = [(f"{tool}-legacy-restore", empty) for tool in ("iptables", "ip6tables")]
    tools = {4: f"iptables-{backend}-restore", 6: f"ip6tables-{backend}-restore"}
    if backend == "libiptc":
        commands += [(f"{LIBIPTC} {family}", text) for family, text in texts.items()]
    else:
        commands += [(f"{tools[family]} --noflush", text) for family, text in texts.items()]
    wire.run(*commands)


def planned(backend: str, config: CaptureConfig) -> dict[Family, Chains]:
    """Return the rules by the family of packets."""
    captured = config.families.captured
    if backend == "native":
        found = planned_native_chains(plan(config, *captured), {})
        return {4: found, 6: found}
    by_family: dict[Family, Chains] = {4: {}, 6: {}}
    for number in captured:
        by_family[number] = planned_chains(plan(config, number), {})
    return by_family


def installed(wire: Wire, backend: str, config: CaptureConfig) -> dict[Family, Chains]:
    """Return the rules as they are read back."""
    captured = config.families.captured
    if backend == "native":
        (text,) = wire.run(("nft -s -n list ruleset", ""))
        found = listed_chains(parse_listing(text), [plan(config, *captured)], {})
        return {4: found, 6: found}
    variant = "legacy" if backend == "libiptc" else backend
    tools = {4: f"iptables-{variant}-save", 6: f"ip6tables-{variant}-save"}
    texts = wire.run(*((tools[family], "") for family in captured))
    by_family: dict[Family, Chains] = {4: {}, 6: {}}
    for number, text in zip(captured, texts, strict=True):
        by_family[number] = saved_chains(parse_saved(text), [plan(config, number)], {})
    return by_family


def explained(found: Chains, packet: Packet) -> Explanation:
    came_in = bool(packet.interface)
    flow = Flow(
        "tcp" if packet.protocol == "tcp" else "udp",
        Endpoint(ip_address(packet.source)),
        Endpoint(ip_address(packet.destination), packet.port),
        "in" if came_in else "out",
        packet.interface or leaves_by(packet.destination),
        None if came_in else packet.uid,
        None if came_in else packet.gid,
    )
    return explain(flow, found, LOCAL)


def arrival(explanation: Explanation, packet: Packet) -> Arrival:
    """Return where a packet arrives, if it is as explained."""
    fate = explanation.fate
    if fate.action == "dropped":
        return Arrival("", 0)
    if fate.port is not None:
        return Arrival("pod", fate.port)
    if is_here(packet.destination):
        return Arrival("pod", packet.port)
    return Arrival("", 0) if packet.interface else Arrival("peer", PEER_PORT)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with wired() as made:
        yield made


@pytest.mark.parametrize("backend", BACKENDS)
@settings(
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    argv=COMMAND_LINES,
    environ=ENVIRONMENTS,
    packets=st.lists(st.one_of(outbound(), outbound(), inbound()), min_size=PACKETS, max_size=24),
)
def test_the_kernel_does_as_explained(
    wire: Wire, backend: str, argv: list[str], environ: dict[str, str], packets: list[Packet]
) -> None:
    config = configuration(argv, environ)
    apply(wire, backend, config)
    chains, live = planned(backend, config), installed(wire, backend, config)
    said = [explained(chains[family(packet)], packet) for packet in packets]
    expected = [arrival(one, packet) for one, packet in zip(said, packets, strict=True)]
    sent = [
        packet._replace(wait_seconds=2.0 if place else 0.02)
        for packet, (place, _) in zip(packets, expected, strict=True)
    ]

    found = wire.send(sent)

    for packet, one, wanted, seen in zip(packets, said, expected, found, strict=True):
        note(f"{packet}: {one.fate}, expected {wanted}, seen {seen}")
    assert found == expected
    said_of_installed = [explained(live[family(packet)], packet) for packet in packets]
    assert [one.fate for one in said_of_installed] == [one.fate for one in said]
    assert not any(one.unread for one in said_of_installed)
