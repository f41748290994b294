"""Whose the rules of interfaces are, noted as the alias of lo."""

import pytest

from iptables.config import Actions, CaptureConfig, Inbound
from iptables.host import Families
from iptables.record import Record, following, is_free, merged, parse, render

BOTH_TABLES = Record(("eth1",), ("net1",), is_transparent=True)
BOTH = Record(("eth1", "docker+"), ("net1",), is_transparent=True, has_ipv6=True)
CONFIG = CaptureConfig(exclude_interfaces=("eth1",))
DUAL = CONFIG._replace(families=Families(ipv6=True, has_ipv4=True, host_ip=""))


def after(
    config: CaptureConfig = CONFIG,
    before: Record | None = None,
    actions: Actions = Actions(),  # noqa: B008 - immutable
    *,
    is_changed: bool = True,
    has_look_alikes: bool = False,
) -> Record | None:
    return following(
        before, config, actions, is_changed=is_changed, has_look_alikes=has_look_alikes
    )


@pytest.mark.parametrize("record", [None, Record(), Record(("a=b",)), Record((), ("x",)), BOTH])
def test_what_is_written_is_read_back(record: Record | None) -> None:
    assert parse(render(record)) == record


def test_an_operator_can_read_it() -> None:
    assert render(BOTH) == (
        "istio-iptables: excluded=eth1,docker+ virtual=net1 mode=TPROXY ipv6=true"
    )


@pytest.mark.parametrize("alias", ["", "uplink", "excluded=eth1"])
def test_an_alias_of_somebody_else_says_nothing(alias: str) -> None:
    assert parse(alias) is None


def test_a_damaged_one_says_what_it_still_can() -> None:
    assert parse("istio-iptables: excluded=eth1,,") == Record(("eth1",))


def test_only_our_own_alias_is_replaced() -> None:
    assert is_free("")
    assert is_free(render(BOTH))
    assert not is_free("uplink")


def test_what_is_too_long_for_an_alias_is_not_written() -> None:
    def of(count: int) -> str:
        return render(Record(tuple(f"interface{number:06}" for number in range(count))))

    assert len(of(13)) <= 255
    assert of(14) == ""


def test_its_rules_are_those_without_a_jump() -> None:
    texts = [(rule.table, rule.text) for rule in BOTH_TABLES.rules]

    assert texts == [
        ("nat", "-A PREROUTING -i eth1 -j RETURN"),
        ("nat", "-A OUTPUT -o eth1 -j RETURN"),
        ("mangle", "-A PREROUTING -i eth1 -j RETURN"),
        ("mangle", "-A OUTPUT -o eth1 -j RETURN"),
        ("nat", "-I PREROUTING 1 -i net1 -j RETURN"),
    ]
    assert {rule.table for rule in Record(("eth1",)).rules} == {"nat"}


def test_two_records_say_what_either_says_as_often_as_either_does() -> None:
    second = Record(("eth2", "eth1", "eth1"), (), has_ipv6=True)

    assert merged(Record(("eth1",), ("net1",), is_transparent=True), second) == Record(
        ("eth1", "eth2", "eth1"), ("net1",), is_transparent=True, has_ipv6=True
    )
    assert merged(None, BOTH) == merged(BOTH, None) == BOTH


def test_what_is_installed_is_recorded() -> None:
    tproxy = DUAL._replace(inbound=Inbound(mode="TPROXY"))

    assert after() == Record(("eth1",))
    assert after(tproxy) == Record(("eth1",), (), is_transparent=True, has_ipv6=True)


def test_where_there_is_nothing_to_be_told_apart_there_is_no_record() -> None:
    assert after(CaptureConfig()) is None
    assert after(CaptureConfig(), has_look_alikes=True) == Record()
    assert after(CaptureConfig(), Record(("eth1",))) is None


def test_where_no_rule_is_changed_a_record_is_corrected_and_none_is_made() -> None:
    """A run that was killed after its last change has left one that says too much."""
    assert after(DUAL, BOTH, is_changed=False) == Record(("eth1",), has_ipv6=True)
    assert after(CaptureConfig(), Record(("eth1",)), is_changed=False) == Record()
    assert after(is_changed=False) is None


def test_without_rules_of_the_iptables_tools_it_goes() -> None:
    assert after(before=BOTH, actions=Actions(cleanup_only=True), is_changed=False) is None
    assert after(before=BOTH, actions=Actions(native_nftables=True)) is None
    assert after(before=BOTH, actions=Actions(native_nftables=True), is_changed=False) == BOTH


def test_rules_of_ipv6_that_are_left_alone_are_still_ours() -> None:
    before = Record(("eth2",), has_ipv6=True)

    assert after(before=before) == Record(("eth1", "eth2"), has_ipv6=True)
    assert after(DUAL, before) == Record(("eth1",), has_ipv6=True)
