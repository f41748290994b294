"""A packet's way, in the common configurations; tests/netns proves them against the kernel."""

import pytest

from iptables.config import CaptureConfig, DnsCapture, Inbound, Outbound, Proxy
from iptables.explain.chains import (
    Chains,
    Line,
    planned_chains,
    planned_native_chains,
)
from iptables.explain.flow import complete, local_addresses, parse_flow
from iptables.explain.walk import Explanation, explain
from iptables.lists import Ranges, Selection
from iptables.netlink import InterfaceAddress
from iptables.plan import plan
from iptables.rules import (
    ACCEPT,
    DROP,
    RETURN,
    ConnectionState,
    CopyMark,
    Jump,
    Mark,
    Redirect,
    SetMark,
    TransparentProxy,
)

ALL = Selection(is_all=True)
USUAL = CaptureConfig(
    inbound=Inbound(ports=ALL, exclude_ports=("15020",)),
    outbound=Outbound(ranges=Ranges(is_all=True), exclude_ports=("8000:9000",)),
    dns=DnsCapture(is_all=True),
    exclude_interfaces=("net+",),
)
TPROXY = USUAL._replace(inbound=USUAL.inbound._replace(mode="TPROXY"))
ADDRESSES = (
    InterfaceAddress("eth0", 2, 4, "10.0.0.7", is_up=True, is_loopback=False),
    InterfaceAddress("eth0", 2, 6, "2001:db8::7", is_up=True, is_loopback=False),
)


def way(text: str, chains: Chains) -> Explanation:
    flow = complete(parse_flow(text), ADDRESSES)
    return explain(flow, chains, local_addresses(ADDRESSES))


def fate(text: str, config: CaptureConfig, *, native: bool = False) -> str:
    """Return what becomes of a flow, in a word or two."""
    family = 6 if "::" in text else 4
    if native:
        found = way(text, planned_native_chains(plan(config, 4, 6), {}))
    else:
        found = way(text, planned_chains(plan(config, 6 if family == 6 else 4), {}))
    port = found.fate.port
    return found.fate.action if port is None else f"{found.fate.action} {port}"


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The application's.
        ("tcp uid=5 gid=5 10.0.0.7 1.2.3.4:80", "redirected 15001"),
        ("tcp 2001:db8::7 [2001:db8:1::1]:80", "redirected 15001"),
        ("udp uid=5 10.0.0.7 1.2.3.4:80", "untouched"),
        ("tcp uid=5 10.0.0.7 1.2.3.4:8080", "returned"),
        ("tcp uid=5 10.0.0.7 10.0.0.7:80", "returned"),
        ("tcp uid=5 127.0.0.1 127.0.0.1:80", "returned"),
        ("udp uid=5 10.0.0.7 10.96.0.10:53", "redirected 15053"),
        ("tcp uid=5 127.0.0.1 127.0.0.53:53", "redirected 15053"),
        ("tcp uid=5 out=net7 10.0.0.7 1.2.3.4:80", "returned"),
        # Envoy's.
        ("tcp uid=1337 10.0.0.7 1.2.3.4:80", "returned"),
        ("tcp gid=1337 10.0.0.7 1.2.3.4:80", "returned"),
        ("tcp uid=1337 10.0.0.7 10.0.0.7:80", "redirected 15006"),
        ("tcp uid=1337 10.0.0.7 10.0.0.7:15008", "returned"),
        ("tcp uid=1337 127.0.0.6 10.0.0.7:80", "returned"),
        ("tcp uid=1337 ::6 [2001:db8::7]:80", "returned"),
        ("udp uid=1337 10.0.0.7 10.96.0.10:53", "returned"),
        # What comes in.
        ("tcp in=eth0 10.0.0.9 10.0.0.7:80", "redirected 15006"),
        ("tcp in=eth0 2001:db8::9 [2001:db8::7]:80", "redirected 15006"),
        ("tcp in=eth0 10.0.0.9 10.0.0.7:15008", "returned"),
        ("tcp in=eth0 10.0.0.9 10.0.0.7:15020", "returned"),
        ("udp in=eth0 10.0.0.9 10.0.0.7:80", "untouched"),
        ("tcp in=net7 10.0.0.9 10.0.0.7:80", "returned"),
    ],
)
def test_fates_in_redirect_mode(text: str, expected: str, native: bool) -> None:  # noqa: FBT001 - a parameter
    assert fate(text, USUAL, native=native) == expected


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp in=eth0 10.0.0.9 10.0.0.7:80", "tproxied 15006"),
        ("tcp in=eth0 2001:db8::9 [2001:db8::7]:80", "tproxied 15006"),
        ("tcp in=eth0 10.0.0.9 10.0.0.7:15008", "tproxied 15006"),
        ("tcp in=eth0 10.0.0.9 10.0.0.7:15020", "returned"),
        ("tcp uid=0 gid=1337 10.0.0.7 10.0.0.7:80", "tproxied 15006"),
        ("tcp uid=5 gid=5 10.0.0.7 10.0.0.7:80", "returned"),
        ("tcp uid=0 gid=1337 127.0.0.6 10.0.0.7:80", "returned"),
        ("tcp uid=5 10.0.0.7 1.2.3.4:80", "redirected 15001"),
    ],
)
def test_fates_in_tproxy_mode(text: str, expected: str, native: bool) -> None:  # noqa: FBT001 - a parameter
    assert fate(text, TPROXY, native=native) == expected


def test_groups_decide_about_those_who_are_none_of_the_proxys() -> None:
    outbound = Outbound(ranges=Ranges(is_all=True), groups=Selection(items=("7", "100-200")))
    config = USUAL._replace(outbound=outbound)

    assert fate("tcp uid=5 gid=7 10.0.0.7 1.2.3.4:80", config) == "redirected 15001"
    assert fate("tcp uid=5 gid=150 10.0.0.7 1.2.3.4:80", config) == "redirected 15001"
    assert fate("tcp uid=5 gid=8 10.0.0.7 1.2.3.4:80", config) == "returned"
    assert fate("tcp 10.0.0.7 1.2.3.4:80", config) == "returned"


def test_a_name_that_is_no_number_is_nobody() -> None:
    config = USUAL._replace(proxy=Proxy(uids=("envoy",), gids=("envoy",)))

    assert fate("tcp uid=5 10.0.0.7 1.2.3.4:80", config) == "redirected 15001"


def test_each_step_is_told_with_its_reason() -> None:
    found = way("tcp uid=5 10.0.0.7 1.2.3.4:80", planned_chains(plan(USUAL, 4), {}))

    (nat,) = [hook for hook in found.hooks if hook.table == "nat" and not hook.again]
    assert [(step.chain, step.line.text) for step in nat.steps] == [
        ("OUTPUT", "-j ISTIO_OUTPUT"),
        ("ISTIO_OUTPUT", "-j ISTIO_OUTPUT_DNS"),
        ("ISTIO_OUTPUT", "-j ISTIO_REDIRECT"),
        ("ISTIO_REDIRECT", "-p tcp -j REDIRECT --to-ports 15001"),
    ]
    assert all(step.line.why for step in nat.steps)
    assert found.fate.why == "to Envoy's outbound listener"
    assert found.unread == ()


@pytest.mark.parametrize("pod", ["10.0.0.7", "10.244.1.7"], ids=["here", "elsewhere"])
def test_what_a_pod_sends_itself_comes_in_again_but_not_through_nat(pod: str) -> None:
    found = way(f"tcp uid=1337 {pod} {pod}:80", planned_chains(plan(USUAL, 4), {}))

    assert [(hook.table, hook.chain, hook.again, bool(hook.skipped)) for hook in found.hooks] == [
        ("raw", "OUTPUT", False, False),
        ("nat", "OUTPUT", False, False),
        ("raw", "PREROUTING", True, False),
        ("nat", "PREROUTING", True, True),
    ]


def test_without_rules_nothing_happens() -> None:
    found = way("tcp uid=5 10.0.0.7 10.0.0.7:80", {})

    assert found.hooks == ()
    assert found.fate.action == "untouched"


def test_a_dropped_packet_goes_no_further() -> None:
    chains: Chains = {
        ("raw", "OUTPUT"): [Line("drop", "why", (), DROP)],
        ("nat", "OUTPUT"): [Line("return", "why", (), RETURN)],
    }

    found = way("tcp 10.0.0.7 1.2.3.4:80", chains)

    assert found.fate.action == "dropped"
    assert [hook.table for hook in found.hooks] == ["raw"]


def test_a_dropped_packet_does_not_come_in_again() -> None:
    chains: Chains = {
        ("nat", "OUTPUT"): [Line("drop", "why", (), DROP)],
        ("nat", "PREROUTING"): [],
    }

    assert len(way("tcp 10.0.0.7 10.0.0.7:80", chains).hooks) == 1


def test_acceptance_ends_a_table_and_no_more() -> None:
    chains: Chains = {
        ("mangle", "PREROUTING"): [
            Line("jump", "why", (), Jump("ISTIO_DIVERT")),
            Line("drop", "why", (), DROP),
        ],
        ("mangle", "ISTIO_DIVERT"): [Line("accept", "why", (), ACCEPT)],
        ("nat", "PREROUTING"): [],
    }

    found = way("tcp in=eth0 10.0.0.9 10.0.0.7:80", chains)

    assert [hook.table for hook in found.hooks] == ["mangle", "nat"]
    assert found.fate.action == "untouched"


def test_a_connection_is_new() -> None:
    new, old = ConnectionState(("NEW",)), ConnectionState(("ESTABLISHED",))
    chains: Chains = {
        ("mangle", "PREROUTING"): [
            Line("old", "why", (old,), DROP),
            Line("new", "why", (new,), RETURN),
        ]
    }

    assert way("tcp in=eth0 10.0.0.9 10.0.0.7:80", chains).fate.action == "returned"


def test_a_rule_that_is_not_understood_is_told_and_passed() -> None:
    chains: Chains = {("nat", "OUTPUT"): [Line("-j LOG", "whose?"), Line("-j DROP", "", (), DROP)]}

    found = way("tcp 10.0.0.7 1.2.3.4:80", chains)

    assert [step.line.text for step in found.unread] == ["-j LOG"]
    assert found.fate.action == "dropped"


def test_a_source_port_counts_where_it_is_known() -> None:
    raw = [
        step
        for hook in way(
            "udp uid=1337 10.0.0.7:15053 10.0.0.9:9", planned_chains(plan(USUAL, 4), {})
        ).hooks
        for step in hook.steps
        if hook.table == "raw"
    ]

    assert raw[-1].line.why == "the agent answers the application"


def test_marks_are_kept_on_packet_and_connection() -> None:
    chains: Chains = {
        ("mangle", "PREROUTING"): [
            Line("mark", "why", (), SetMark(7)),
            Line("save", "why", (Mark("packet", 7),), CopyMark("save")),
            Line("unmark", "why", (Mark("connection", 7),), SetMark(0)),
            Line("restore", "why", (Mark("packet", 7, inverted=True),), CopyMark("restore")),
            Line("drop", "why", (Mark("packet", 7),), DROP),
        ]
    }

    found = way("tcp in=eth0 10.0.0.9 10.0.0.7:80", chains)

    assert [step.line.text for hook in found.hooks for step in hook.steps] == [
        "mark",
        "save",
        "unmark",
        "restore",
        "drop",
    ]


def test_a_socket_found_by_tproxy_gets_the_packet_whatever_nat_makes_of_it() -> None:
    chains: Chains = {
        ("mangle", "PREROUTING"): [Line("tproxy", "why", (), TransparentProxy(1337, 15006))],
        ("nat", "PREROUTING"): [Line("redirect", "why", (), Redirect(15001))],
    }

    found = way("tcp in=eth0 10.0.0.9 10.0.0.7:80", chains)

    assert (found.fate.action, found.fate.port) == ("tproxied", 15006)
    assert len(found.hooks) == 2
