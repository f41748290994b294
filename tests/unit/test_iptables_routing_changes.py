from iptables.config import Actions, CaptureConfig, Inbound
from iptables.host import Families, HostFacts
from iptables.installed import NOTHING, Own
from iptables.lists import Selection
from iptables.netlink import InterfaceAddress
from iptables.routing.changes import (
    Found,
    LocalRoute,
    MarkRule,
    Marks,
    PassthroughAddress,
    RoutingChange,
    address_changes,
    mark_changes,
    marks,
)

INBOUND = Inbound(mode="TPROXY", ports=Selection(is_all=True))
BOTH = Families(ipv6=True, has_ipv4=True, host_ip="")
TPROXY = CaptureConfig(inbound=INBOUND, families=BOTH)
CLEANUP = Actions(cleanup_only=True)
USUAL = tuple(MarkRule(family, 1337, 133) for family in BOTH.captured)
ROUTES = tuple(LocalRoute(family, 133) for family in BOTH.captured)
INSTALLED = Own({("mangle", "ISTIO_TPROXY"): ["-p tcp -j TPROXY --tproxy-mark 0x63/0xffff"]}, ())


def added(*items: MarkRule | LocalRoute | PassthroughAddress) -> list[RoutingChange]:
    return [RoutingChange(item, is_addition=True) for item in items]


def removed(*items: MarkRule | LocalRoute | PassthroughAddress) -> list[RoutingChange]:
    return [RoutingChange(item, is_addition=False) for item in items]


def test_tproxy_wants_its_mark_routed_in_every_captured_family() -> None:
    assert marks(TPROXY, [(4, NOTHING)], Actions()) == Marks(wanted=USUAL)


def test_other_modes_and_no_captured_ports_want_nothing() -> None:
    for inbound in (Inbound(), INBOUND._replace(ports=Selection())):
        assert marks(TPROXY._replace(inbound=inbound), [(4, NOTHING)], Actions()) == Marks()


def test_marks_of_rules_that_go_are_stale_unless_wanted() -> None:
    assert marks(CaptureConfig(), [(6, INSTALLED)], Actions()).stale == {(6, 99)}
    same = TPROXY._replace(inbound=INBOUND._replace(mark=99))
    assert marks(same, [(6, INSTALLED)], Actions()).stale == set()


def test_a_clean_up_wants_nothing_and_finds_what_the_configuration_would_have_added() -> None:
    found = marks(TPROXY, [(4, INSTALLED)], CLEANUP)

    assert found == Marks((), frozenset({(4, 1337), (6, 1337), (4, 99)}))


def test_routes_come_before_the_rules_that_lead_to_them() -> None:
    assert mark_changes(Marks(USUAL), Found()) == added(*ROUTES, *USUAL)


def test_what_is_there_stays_whatever_its_priority() -> None:
    there = tuple(rule._replace(priority=7) for rule in USUAL)

    assert mark_changes(Marks(USUAL), Found(there, ROUTES)) == []


def test_duplicates_go() -> None:
    twin = USUAL[0]._replace(priority=9)

    assert mark_changes(Marks(USUAL), Found((*USUAL, twin), ROUTES)) == removed(twin)


def test_stale_rules_go_before_their_routes() -> None:
    twin = USUAL[0]._replace(priority=9)
    found = Found((*USUAL, twin, MarkRule(4, 5, 133)), ROUTES)

    changes = mark_changes(Marks((), frozenset({(4, 1337)})), found)

    assert changes == removed(USUAL[0], twin, ROUTES[0])


def test_a_route_that_another_mark_wants_stays() -> None:
    wanted = (MarkRule(4, 7, 133),)

    changes = mark_changes(Marks(wanted, frozenset({(4, 1337)})), Found(USUAL[:1], ROUTES[:1]))

    assert changes == [*added(wanted[0]), *removed(USUAL[0])]


def test_a_change_is_undone_by_its_reverse() -> None:
    (change,) = added(USUAL[0])

    assert change.reverse == removed(USUAL[0])[0]
    assert change.reverse.reverse == change


def test_the_passthrough_address_goes_with_captured_ipv6() -> None:
    there = HostFacts((InterfaceAddress("lo", 1, 6, "::6", is_up=True, is_loopback=True),))
    not_there = HostFacts(())
    ipv4 = CaptureConfig()

    assert address_changes(TPROXY, not_there, Actions()) == added(PassthroughAddress())
    assert address_changes(TPROXY, there, Actions()) == []
    assert address_changes(ipv4, not_there, Actions()) == []
    assert address_changes(ipv4, there, Actions()) == []
    assert address_changes(ipv4, there, CLEANUP) == removed(PassthroughAddress())
    assert address_changes(TPROXY, not_there, CLEANUP) == []


def test_each_item_says_what_it_is() -> None:
    texts = [change.item.text for change in added(PassthroughAddress(), USUAL[0], ROUTES[1])]

    assert texts == [
        "::6 address on the loopback iface",
        "IPv4 policy rule: fwmark 1337 lookup 133",
        "IPv6 route: local default dev lo table 133",
    ]
