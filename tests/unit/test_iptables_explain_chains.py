"""Rules from the plan and from what is installed come out alike, with their reasons."""

from pathlib import Path

import pytest

from iptables.config import CaptureConfig, DnsCapture, Inbound, Mode, Outbound
from iptables.explain.chains import (
    OF_ANOTHER,
    OF_OTHERS,
    Chains,
    known_plans,
    listed_chains,
    planned_chains,
    planned_native_chains,
    saved_chains,
)
from iptables.installed import as_saved, parse_saved
from iptables.lists import Ranges, Selection
from iptables.nft.listing import parse_listing
from iptables.plan import plan
from iptables.rules import DROP, Interface, Jump, Owner, Protocol

CONFIG = CaptureConfig(inbound=Inbound(ports=Selection(is_all=True)))
NAMED = CONFIG._replace(outbound=Outbound(exclude_groups=("java",)))
NAMES = {("--gid-owner", "java"): "202"}
LISTED = (
    Path(__file__).parents[1] / "golden" / "iptables-nft" / "inbound-ports-wildcard.listed"
).read_text()


def meaning(chains: Chains) -> dict[tuple[str, str], list[tuple[object, ...]]]:
    """Return rules without their words."""
    return {
        place: [(frozenset(line.matches), line.target, line.why) for line in lines]
        for place, lines in chains.items()
    }


def test_what_is_saved_means_what_is_planned() -> None:
    planned = plan(CONFIG, 4)

    found = saved_chains(as_saved(planned), [planned], {})

    assert meaning(found) == meaning(planned_chains(planned, {}))


def test_what_is_listed_means_what_is_planned() -> None:
    planned = plan(CONFIG, 4)

    found = listed_chains(parse_listing(LISTED), [planned], {})

    assert meaning(found) == meaning(planned_native_chains(planned, {}))


@pytest.mark.parametrize("native", [False, True])
def test_names_of_groups_are_numbers(native: bool) -> None:  # noqa: FBT001 - a parameter
    planned = plan(NAMED, 4)

    chains = (planned_native_chains if native else planned_chains)(planned, NAMES)

    place = ("nat", "istio-output" if native else "ISTIO_OUTPUT")
    groups = [line for line in chains[place] if Owner("gid", "202") in line.matches]
    assert [line.why for line in groups] == [
        "outbound traffic of group java is excluded from capture"
    ]


def test_rules_of_others_have_no_reason() -> None:
    saved = parse_saved(
        "*nat\n:DOCKER - [0:0]\n-A OUTPUT -p tcp -j DOCKER\n-A DOCKER -j MASQUERADE\n"
        "-A DOCKER -i eth9 -j DROP\nCOMMIT\n"
    )

    found = saved_chains(saved, [plan(CONFIG, 4)], {})

    (jump,) = found["nat", "OUTPUT"]
    unread, drop = found["nat", "DOCKER"]
    assert (jump.matches, jump.target, jump.why) == (
        (Protocol("tcp"),),
        Jump("DOCKER"),
        OF_OTHERS,
    )
    assert unread.target is None
    assert (drop.matches, drop.target) == ((Interface("in", "eth9"),), DROP)


def test_a_listed_rule_of_others_has_no_reason() -> None:
    text = LISTED.replace("counter jump istio-output", "counter log\n\t\ticmp type 8 drop")

    found = listed_chains(parse_listing(text), [plan(CONFIG, 4)], {})

    assert [(line.target, line.why) for line in found["nat", "output"]] == [
        (None, OF_ANOTHER),
        (None, OF_ANOTHER),
    ]


def test_of_two_rules_that_are_the_same_the_first_gives_the_reason() -> None:
    excluded = CONFIG._replace(
        inbound=Inbound(ports=Selection(is_all=True), exclude_ports=("15008",))
    )
    planned = plan(excluded, 4)

    found = saved_chains(as_saved(planned), [planned], {})

    assert found["nat", "ISTIO_INBOUND"][0].why == (
        "tunnelled connections reach Envoy's own listener"
    )


@pytest.mark.parametrize("mode", ["REDIRECT", "TPROXY"])
@pytest.mark.parametrize("dns", [None, DnsCapture(is_all=True)])
def test_usual_rules_have_reasons_whatever_the_flags_at_hand(
    mode: Mode, dns: DnsCapture | None
) -> None:
    inbound = Inbound(mode, Selection(is_all=True), exclude_ports=("15020",))
    outbound = Outbound(ranges=Ranges(is_all=True))
    was = CaptureConfig(inbound=inbound, outbound=outbound, dns=dns)

    found = saved_chains(as_saved(plan(was, 4)), known_plans(CaptureConfig(), 4), {})

    unknown = [line.text for lines in found.values() for line in lines if line.why == OF_ANOTHER]
    assert unknown == ["-p tcp --dport 15020 -j RETURN"]
