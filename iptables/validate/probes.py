"""Which connections prove capture, what is expected of each, and what the outcomes mean.

A probe is a flow that the plan, walked through, leads to a listener here. Who sends it decides:
the proxy's traffic is exempt but for its calls of this pod, which Envoy's inbound listener gets;
an application's goes to the outbound listener and to DNS capture. What is sent here never meets
the rules for what comes in from elsewhere: that takes rights, see `iptables.validate.outside`.

Source: traffic-capture.md sections 12 and 17.16.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Final, Literal, NamedTuple

from iptables.config import CaptureConfig
from iptables.dns import AGENT_PORT
from iptables.explain.chains import Chains
from iptables.explain.flow import LOOPBACK, Endpoint, Flow, complete, local_addresses
from iptables.explain.walk import Explanation, explain
from iptables.netlink import IPV4, PASSTHROUGH_IPV6, Family, InterfaceAddress
from iptables.validate.outside import ELSEWHERE, NEAR

Concern = Literal["inbound", "outbound", "DNS over TCP", "DNS over UDP", "inbound from outside"]

LOCALHOST: Final[Mapping[Family, str]] = {4: "127.0.0.1", 6: "::1"}
PASSTHROUGH: Final[Mapping[Family, str]] = {4: "127.0.0.6", 6: PASSTHROUGH_IPV6}
#: Addresses for documentation, where nobody is: RFC 5737 and RFC 3849.
NOWHERE: Final[Mapping[Family, Sequence[str]]] = {
    4: ("192.0.2.1", "198.51.100.1", "203.0.113.1"),
    6: ("2001:db8:ffff::1", "2001:db8:fffe::1"),
}
#: Addresses that nothing from outside is sent to.
INTERNAL: Final = (*LOCALHOST.values(), *PASSTHROUGH.values())
OUTSIDE: Final = "inbound from outside"
DNS_PORT: Final = 53
DISCARD_PORT: Final = 9  # of a service that nobody has; where the usual one is excluded
#: What has nowhere to arrive says nothing of the rules.
NO_LISTENER: Final = "no listener available"
FAILED: Final = (
    "iptables validation failed; workload is not ready for Istio.\n"
    "When using Istio CNI, this can occur if a pod is scheduled before the node is ready.\n\n"
    "If installed with 'cni.repair.deletePods=true', this pod should automatically be deleted and "
    "retry.\n"
    "Otherwise, this pod will need to be manually removed so that it is scheduled on a node with "
    "istio-cni running, allowing iptables rules to be established."
)


class Sender(NamedTuple):
    """Whose connection it is."""

    uid: int
    gid: int

    @property
    def text(self) -> str:
        """Return what the log calls it."""
        return f"uid {self.uid}, gid {self.gid}"


class Probe(NamedTuple):
    """A connection that must reach a listener here."""

    concern: Concern
    family: Family
    sender: Sender | None  #: None: it comes from outside
    flow: Flow
    port: int  #: of the listener
    rules: tuple[str, ...]  #: those that lead there
    obstacle: str = ""  #: why it cannot even be sent

    @property
    def name(self) -> str:
        """Return what the log calls it."""
        return f"{self.concern}, IPv{self.family}"

    @property
    def text(self) -> str:
        """Return what is done."""
        flow = self.flow
        who = f"as {self.sender.text}" if self.sender else f"from {flow.source.text}"
        return f"{self.name}: {flow.protocol} to {flow.destination.text} {who}"


class Plan(NamedTuple):
    """Probes, and what cannot be proven by any of these senders."""

    probes: tuple[Probe, ...]
    unproven: tuple[str, ...]  #: concern and family of each
    outside: tuple[Probe, ...] = ()  #: which take rights to be made


class Outcome(NamedTuple):
    """What became of a probe."""

    port: int = 0  #: of the listener that it reached; 0 for none
    problem: str = ""  #: why it reached none
    is_sent: bool = True  #: the host could send it; otherwise it proves nothing

    @property
    def text(self) -> str:
        """Return what was seen."""
        return f"port {self.port}" if self.port else self.problem


def plan_probes(
    config: CaptureConfig,
    chains: Mapping[Family, Chains],
    addresses: Sequence[InterfaceAddress],
    senders: Sequence[Sender],
    probe_port: int,
) -> Plan:
    """Return a probe of each concern and family that a sender can prove.

    Args:
        config: what is captured.
        chains: the plan of each family.
        addresses: of this network namespace.
        senders: in order of preference.
        probe_port: where connections go that any port proves.
    """
    probes: list[Probe] = []
    outside: list[Probe] = []
    unproven = []
    families = [family for family in config.families.captured if _counts(config, family)]
    for family in families:
        for concern, flows, port in _concerns(config, family, addresses, probe_port):
            found = _first_captured(
                concern, family, flows, senders, (chains[family], addresses, port)
            )
            if found:
                probes.append(found)
            else:
                unproven.append(f"{concern}, IPv{family}")
        found = _from_outside(config, family, chains[family], addresses, probe_port)
        if found:
            outside.append(found)
        elif not config.inbound.ports.is_empty:
            unproven.append(f"{OUTSIDE}, IPv{family}")
    return Plan(tuple(probes), tuple(unproven), tuple(outside))


def _counts(config: CaptureConfig, family: Family) -> bool:
    """Return whether a family need work: without an IPv4 address that of IPv4 need not."""
    return config.families.has_ipv4 or family != IPV4


def _concerns(
    config: CaptureConfig,
    family: Family,
    addresses: Sequence[InterfaceAddress],
    probe_port: int,
) -> Iterator[tuple[Concern, list[Flow], int]]:
    """Yield what is captured of a family, flows that may prove it, and the listener's port."""
    own = [item.address for item in addresses if item.family == family]
    own = [address for address in own if not ip_address(address).is_link_local]
    inbound = [
        _flow("tcp", LOCALHOST[family], PASSTHROUGH[family], probe_port),
        *(_flow("tcp", address, address, probe_port) for address in own),
    ]
    inbound = [flow._replace(interface=LOOPBACK) for flow in inbound]
    yield "inbound", inbound, config.listeners.inbound_port
    ports = [probe_port, *_first_ports(config.outbound.ports)]
    source = next((each for each in own if not ip_address(each).is_loopback), LOCALHOST[family])
    outbound = [
        _flow("tcp", source, address, port)
        for address in _destinations(config, family)
        for port in ports
    ]
    if outbound:
        yield "outbound", outbound, config.listeners.outbound_port
    if config.dns:
        servers = NOWHERE[family] if config.dns.is_all else config.dns.servers.of(family)
        if servers:
            flows = [_flow("udp", source, server, DNS_PORT) for server in servers]
            yield "DNS over UDP", flows, AGENT_PORT
            flows = [flow._replace(protocol="tcp") for flow in flows]
            yield "DNS over TCP", flows, AGENT_PORT


def _destinations(config: CaptureConfig, family: Family) -> list[str]:
    """Return addresses elsewhere of which one may be captured."""
    outbound = config.outbound
    blocks = [ip_network(block, strict=False) for block in outbound.ranges.of(family)]
    inside = [str(block[1] if block.num_addresses > 1 else block[0]) for block in blocks]
    if outbound.ranges.is_all or outbound.ports:
        return [*inside, *NOWHERE[family]]
    return inside


def _first_ports(ranges: Iterable[str]) -> list[int]:
    return [int(item.partition(":")[0]) for item in ranges]


def _flow(protocol: Literal["tcp", "udp"], source: str, destination: str, port: int) -> Flow:
    return Flow(
        protocol,
        Endpoint(ip_address(source)),
        Endpoint(ip_address(destination), port),
    )


def _first_captured(
    concern: Concern,
    family: Family,
    flows: Sequence[Flow],
    senders: Sequence[Sender],
    where: tuple[Chains, Sequence[InterfaceAddress], int],
) -> Probe | None:
    """Return the first sender's first flow that the plan leads to a port by REDIRECT."""
    chains, addresses, port = where
    local = local_addresses(addresses) | {PASSTHROUGH[family]}  # missing, it must fail
    for sender in senders:
        for flow in flows:
            sent = complete(flow._replace(uid=sender.uid, gid=sender.gid), addresses)
            found = explain(sent, chains, local)
            if found.fate.action == "redirected" and found.fate.port == port:
                probe = Probe(concern, family, sender, sent, port, tuple(_rules(found)))
                return probe._replace(obstacle=_obstacle(sent, addresses))
    return None


def _from_outside(
    config: CaptureConfig,
    family: Family,
    chains: Chains,
    addresses: Sequence[InterfaceAddress],
    probe_port: int,
) -> Probe | None:
    """Return the first connection from outside that the plan gives to the inbound listener."""
    own = [item for item in addresses if item.family == family and item.address not in INTERNAL]
    own.sort(key=lambda item: item.is_loopback)  # an address on `lo` serves where there is no other
    here = next((ip for item in own if not (ip := ip_address(item.address)).is_link_local), None)
    if here is None:
        return None
    for port in (probe_port, *_first_ports(config.inbound.ports.items), DISCARD_PORT):
        flow = Flow(
            "tcp", Endpoint(ip_address(ELSEWHERE[family])), Endpoint(here, port), "in", NEAR
        )
        found = explain(flow, chains, local_addresses(addresses))
        if found.fate.port == config.listeners.inbound_port:
            rules = tuple(_rules(found))
            return Probe(OUTSIDE, family, None, flow, found.fate.port, rules)
    return None


def _obstacle(flow: Flow, addresses: Sequence[InterfaceAddress]) -> str:
    is_there = str(flow.destination.address) in local_addresses(addresses)
    if str(flow.destination.address) != PASSTHROUGH_IPV6 or is_there:
        return ""
    return f"{PASSTHROUGH_IPV6}, where Envoy delivers from, is not on lo"


def _rules(explanation: Explanation) -> Iterator[str]:
    table = "mangle" if explanation.fate.action == "tproxied" else "nat"
    for hook in explanation.hooks:
        if hook.table == table:
            for step in hook.steps:
                yield f"{table} {step.chain}: {step.line.text}"


def unproven(plan: Plan, senders: Sequence[Sender], *, may_inject: bool) -> str:
    """Return one line that says what is not proven and why, '' where everything is.

    Args:
        plan: what is proven.
        senders: who could send.
        may_inject: packets can be made as if from outside.
    """
    lines = []
    if plan.unproven:
        who = " or ".join(sender.text for sender in senders)
        lines.append(f"as {who}: {'; '.join(plan.unproven)}")
    if plan.outside and not may_inject:
        rules = " or ".join(dict.fromkeys(f"'{probe.rules[0]}'" for probe in plan.outside))
        names = "; ".join(probe.name for probe in plan.outside)
        lines.append(
            "without CAP_NET_ADMIN and CAP_NET_RAW, as nothing that is sent here meets "
            f"{rules}: {names}"
        )
    return f"not to be proven {'; nor '.join(lines)}" if lines else ""


def has_failed(probe: Probe, outcome: Outcome) -> bool:
    """Return whether a probe did not end where it should; one that was never sent says nothing.

    But the inbound one, which needs no route.
    """
    return outcome.port != probe.port and (outcome.is_sent or probe.concern == "inbound")


def failures(outcomes: Mapping[Probe, Outcome]) -> list[str]:
    """Return a line for each probe that has failed, with the rules in question.

    A rule that another probe of the family has passed by is not missing.
    """
    proven = {
        (probe.family, rule)
        for probe, outcome in outcomes.items()
        if outcome.port == probe.port
        for rule in probe.rules
    }
    lines = []
    for probe, outcome in outcomes.items():
        if not has_failed(probe, outcome):
            continue
        line = f"{probe.text}: expected port {probe.port}, seen {outcome.text}"
        suspects = [rule for rule in probe.rules if (probe.family, rule) not in proven]
        if suspects and not probe.obstacle and outcome.problem != NO_LISTENER:
            line += f"; missing, or behind another rule: {' or '.join(suspects)}"
        lines.append(line)
    return lines
