"""Which of the installed rules are ours, and which only look so."""

import pytest

from iptables import rules
from iptables.config import CaptureConfig, Inbound, Proxy
from iptables.installed import NOTHING, Own, as_saved, differences, parse_saved
from iptables.lists import Selection
from iptables.ownership import find_own, is_ambient, look_alikes
from iptables.plan import plan
from iptables.record import Record
from iptables.rules import Table

CONFIG = CaptureConfig(inbound=Inbound(ports=Selection(is_all=True)))
PLAN = plan(CONFIG, 4)
#: With rules without a jump: of eth9, excluded, and of eth7, virtual.
LOOSE = plan(CONFIG._replace(exclude_interfaces=("eth9",), virtual_interfaces=("eth7",)), 4)
EXCLUDED, VIRTUAL, JUMP = "-i eth9 -j RETURN", "-i eth7 -j RETURN", "-p tcp -j ISTIO_INBOUND"


def own(text: str, planned: tuple[Table, ...] = PLAN, record: Record | None = None) -> Own:
    return find_own(parse_saved(text), planned, record)


def prerouting(*specs: str, record: Record | None = None) -> list[tuple[int, str, bool]]:
    """Return what is ours of these rules, with the plan above."""
    lines = "".join(f"-A PREROUTING {spec}\n" for spec in specs)
    found = own(f"*nat\n:ISTIO_INBOUND - [0:0]\n{lines}", LOOSE, record)
    return [(hook.position, hook.spec, hook.has_twin) for hook in found.hooks]


def test_a_jump_is_ours_wherever_it_stands() -> None:
    text = '*raw\n-A FOREIGN -m comment --comment "-j ISTIO_A" -j X\n-A FOREIGN -g ISTIO_A\n'

    (hook,) = own(text).hooks

    assert hook[:4] == ("raw", "FOREIGN", 2, "-g ISTIO_A")


def test_every_chain_with_our_prefix_is_ours() -> None:
    found = own("*nat\n:ISTIO_OLD - [0:0]\n-A ISTIO_OLD -j DROP\n:DOCKER - [0:0]\nCOMMIT\n")

    assert found == Own({("nat", "ISTIO_OLD"): ["-j DROP"]}, ())


def test_a_rule_like_a_planned_one_is_foreign_where_nothing_else_is_ours() -> None:
    assert own(f"*nat\n-A PREROUTING {EXCLUDED}\n", LOOSE) == NOTHING
    assert own(f"*raw\n:ISTIO_A -\n*nat\n-A PREROUTING {EXCLUDED}\n", LOOSE).hooks == ()


def test_planned_rules_without_a_jump_are_ours() -> None:
    assert prerouting(VIRTUAL, "-i eth8 -j RETURN", EXCLUDED, JUMP) == [
        (1, VIRTUAL, False),
        (3, EXCLUDED, False),
        (4, JUMP, False),
    ]


def test_of_twins_the_appended_one_is_ours_at_the_end_and_the_inserted_one_at_the_front() -> None:
    assert prerouting(VIRTUAL, EXCLUDED, VIRTUAL, EXCLUDED, JUMP) == [
        (1, VIRTUAL, True),
        (4, EXCLUDED, True),
        (5, JUMP, False),
    ]


def test_what_is_out_of_order_is_ours_all_the_same() -> None:
    assert prerouting(JUMP, EXCLUDED) == [(1, JUMP, False), (2, EXCLUDED, False)]
    assert prerouting("-p udp -j DROP") == []


def test_others_of_the_same_text_stand_further_from_our_jumps() -> None:
    virtual_jump = "-i eth7 -j ISTIO_REDIRECT"
    specs = (VIRTUAL, virtual_jump, VIRTUAL, EXCLUDED, EXCLUDED, JUMP, EXCLUDED, VIRTUAL)

    assert [position for position, _, _ in prerouting(*specs)] == [2, 3, 5, 6]


def test_by_the_record_an_older_interface_is_ours_and_a_planned_one_is_not() -> None:
    older = "-i eth1 -j RETURN"
    record = Record(("eth1",))

    assert [spec for _, spec, _ in prerouting(EXCLUDED, older, JUMP, record=record)] == [
        older,
        JUMP,
    ]
    assert [spec for _, spec, _ in prerouting(EXCLUDED, older, JUMP, record=Record())] == [JUMP]
    assert own(f"*nat\n-A PREROUTING {older}\n", record=record) == NOTHING


def test_every_copy_of_a_jump_is_ours() -> None:
    assert prerouting(JUMP, JUMP) == [(1, JUMP, True), (2, JUMP, True)]
    assert [hook.has_twin for hook in own("*raw\n-A OUTPUT -j ISTIO_A\n" * 2).hooks] == [True] * 2


def test_tproxy_rules_of_an_older_configuration_are_ours() -> None:
    older = CONFIG._replace(
        inbound=CONFIG.inbound._replace(mode="TPROXY", mark=7), proxy=Proxy(uids=("5",))
    )
    saved = as_saved(plan(older, 4))

    found = find_own(saved, PLAN)

    assert [hook.spec for hook in found.hooks if hook.table == "mangle"] == [
        spec
        for (table, chain), specs in saved.items()
        if table == "mangle" and chain in rules.BUILT_IN_CHAINS
        for spec in specs
    ]
    assert "mangle ISTIO_TPROXY is not planned" in differences(PLAN, found)


def test_a_rule_like_that_of_an_interface_is_foreign_but_looks_like_ours() -> None:
    text = (
        "*nat\n-A PREROUTING -i eth8 -j RETURN\n-A PREROUTING -i eth9 -j RETURN\n"
        "-A PREROUTING -o eth8 -j RETURN\n-A PREROUTING -p tcp -i eth8 -j RETURN\n"
        "-A OUTPUT -o eth8 -j RETURN\n-A OUTPUT -o eth8 -j DROP\n-A OUTPUT -j ISTIO_OUTPUT\n"
        ":ISTIO_OUTPUT -\n-A ISTIO_OUTPUT -o eth8 -j RETURN\n"
    )

    found = look_alikes(parse_saved(text), own(text, LOOSE))

    assert [hook[:4] for hook in found] == [
        ("nat", "PREROUTING", 1, "-i eth8 -j RETURN"),
        ("nat", "OUTPUT", 1, "-o eth8 -j RETURN"),
    ]


@pytest.mark.parametrize(
    "foreign",
    [
        "PREROUTING -p tcp -m mark --mark 0x8 -j CONNMARK --save-mark",
        "OUTPUT -p tcp -o lo -m mark --mark 0x7 -j DROP",
        "OUTPUT -p udp -o lo -m mark --mark 0x7 -j RETURN",
        "OUTPUT -p tcp -m connmark --mark 0x8 -j CONNMARK --restore-mark",
        "OUTPUT ! -d 127.0.0.1/32 -p tcp -o lo -m owner --uid-owner 5 -j MARK --set-mark 1339",
    ],
)
def test_rules_that_only_have_the_options_of_those_of_tproxy_are_foreign(foreign: str) -> None:
    chains = ":ISTIO_INBOUND -\n-A ISTIO_INBOUND -p tcp -m mark --mark 0x7 -j RETURN\n"

    assert own(f"*mangle\n{chains}-A {foreign}\nCOMMIT\n").hooks == ()


def test_of_a_damaged_chain_the_plan_tells_the_mark() -> None:
    tproxy = CONFIG._replace(inbound=CONFIG.inbound._replace(mode="TPROXY", mark=7))
    rule = "-p tcp -m mark --mark 0x7 -j CONNMARK --save-mark"
    text = f"*mangle\n:ISTIO_INBOUND -\n-A ISTIO_INBOUND -j X --mark y\n-A PREROUTING {rule}\n"

    assert [hook.spec for hook in own(text, plan(tproxy, 4)).hooks] == [rule]
    assert own(text).hooks == ()


def test_rules_like_those_of_tproxy_are_foreign_without_it() -> None:
    mark = "-A PREROUTING -p tcp -m mark --mark 0x7 -j CONNMARK --save-mark\n"

    assert own(f"*mangle\n{mark}COMMIT\n*nat\n:ISTIO_A - [0:0]\nCOMMIT\n").hooks == ()


def test_ambient_mode_is_recognised() -> None:
    assert is_ambient(parse_saved("*mangle\n:ISTIO_PRERT - [0:0]\n"))
    assert not is_ambient(parse_saved("*mangle\n:ISTIO_INBOUND - [0:0]\n"))
