"""What is ours among installed rules, how it differs from a plan, and how it is replaced."""

from pathlib import Path

import pytest

from iptables import rules
from iptables.config import CaptureConfig, Inbound
from iptables.installed import (
    NOTHING,
    Hook,
    Own,
    as_saved,
    creation,
    differences,
    has_rules,
    is_unfinished,
    parse_rules,
    parse_saved,
    put_back,
    removal,
    replace,
)
from iptables.lists import Ranges, Selection
from iptables.ownership import find_own
from iptables.plan import plan
from iptables.rules import Table

GOLDEN = Path(__file__).parents[1] / "golden" / "iptables"
SAVED = (GOLDEN / "injected.saved").read_text()

BASE = CaptureConfig(
    inbound=Inbound(ports=Selection(is_all=True), exclude_ports=("15090", "15021", "15020"))
)
BASE = BASE._replace(outbound=BASE.outbound._replace(ranges=Ranges(is_all=True)))
PLAN = plan(BASE, 4)


def own(text: str = SAVED, planned: tuple[Table, ...] = PLAN) -> Own:
    return find_own(parse_saved(text), planned)


def changed(old: str, new: str) -> list[str]:
    assert old in SAVED
    return differences(PLAN, own(SAVED.replace(old, new)))


def test_what_the_tool_prints_of_the_plan_does_not_differ_from_it() -> None:
    assert differences(PLAN, own()) == []


def test_a_plan_does_not_differ_from_itself() -> None:
    assert differences(PLAN, find_own(as_saved(PLAN), PLAN)) == []


def test_a_table_that_is_merely_used_has_no_rules() -> None:
    empty = "*nat\n:OUTPUT ACCEPT [0:0]\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n"

    assert parse_rules(empty) == parse_rules("")
    assert parse_rules(f"{empty}*raw\n:ISTIO_INBOUND - [0:0]\n-A OUTPUT -j ACCEPT\nCOMMIT\n") == {
        ("raw", "ISTIO_INBOUND"): [],
        ("raw", "OUTPUT"): ["-j ACCEPT"],
    }


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (
            "-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN\n",
            "",
            "nat ISTIO_OUTPUT rule 8: expected '-d 127.0.0.1/32 -j RETURN', found",
        ),
        (
            "-A ISTIO_OUTPUT -j ISTIO_REDIRECT\n",
            "",
            "nat ISTIO_OUTPUT rule 9: expected '-j ISTIO_REDIRECT', found nothing",
        ),
        (
            "-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT\n",
            "-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT\n-A ISTIO_INBOUND -j RETURN\n",
            "nat ISTIO_INBOUND rule 6: expected nothing, found '-j RETURN'",
        ),
        ("-A OUTPUT -j ISTIO_OUTPUT\n", "", "nat OUTPUT has nothing of ours"),
        (":ISTIO_REDIRECT", ":ISTIO_A -\n:ISTIO_REDIRECT", "nat ISTIO_A is not planned"),
        (
            "-A OUTPUT -j ISTIO_OUTPUT\n",
            "-A OUTPUT -j ISTIO_OUTPUT\n-A OUTPUT -j ISTIO_OUTPUT\n",
            "nat OUTPUT rule 2: expected nothing, found '-j ISTIO_OUTPUT'",
        ),
        (
            "--dport 15090 -j RETURN\n-A ISTIO_INBOUND -p tcp -m tcp --dport 15021",
            "--dport 15021 -j RETURN\n-A ISTIO_INBOUND -p tcp -m tcp --dport 15090",
            "nat ISTIO_INBOUND rule 2: expected '-p tcp --dport 15090 -j RETURN', found",
        ),
    ],
)  # fmt: skip
def test_drift_is_named(old: str, new: str, named: str) -> None:
    (line,) = changed(old, new)

    assert line.startswith(named)


def test_missing_tables_are_what_a_killed_run_leaves() -> None:
    larger = plan(BASE._replace(drop_invalid=True), 4)
    changed_rules = own(SAVED.replace("--to-ports 15001", "--to-ports 15002"))

    assert is_unfinished(larger, own(planned=larger))
    assert not is_unfinished(larger, changed_rules)
    assert not is_unfinished((), own())


def test_foreign_rules_and_chains_are_no_drift() -> None:
    foreign = ":DOCKER - [0:0]\n-A OUTPUT -p tcp -j RETURN\n-A DOCKER -j RETURN\n"

    assert changed("-A OUTPUT -j ISTIO_OUTPUT\n", f"{foreign}-A OUTPUT -j ISTIO_OUTPUT\n") == []


def test_other_tables_and_lines_are_skipped() -> None:
    text = "# x\n\n*security\n:ISTIO_X - [0:0]\n-A ISTIO_X -j DROP\nCOMMIT\n*nat\n-A X\nCOMMIT\n"

    assert parse_saved(text) == {("nat", "X"): [""]}
    assert has_rules(text)


def test_empty_chains_are_no_rules() -> None:
    assert not has_rules("*nat\n:PREROUTING ACCEPT [0:0]\n:ISTIO_X - [0:0]\nCOMMIT\n")
    assert find_own(parse_saved("*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"), PLAN).is_empty


def test_removal_deletes_jumps_before_it_flushes_and_drops_chains() -> None:
    lines = removal(own())["nat"]

    assert lines[:2] == ["-D OUTPUT -j ISTIO_OUTPUT", "-D PREROUTING -p tcp -j ISTIO_INBOUND"]
    assert [line[:2] for line in lines] == ["-D"] * 2 + ["-F"] * 4 + ["-X"] * 4


def test_a_rule_with_a_twin_is_deleted_by_number_the_last_one_first() -> None:
    hooks = (
        Hook("nat", "OUTPUT", 1, "-o a -j RETURN", has_twin=True),
        Hook("nat", "OUTPUT", 3, "-o b -j RETURN"),
        Hook("nat", "OUTPUT", 5, "-o a -j RETURN", has_twin=True),
    )

    assert removal(Own({}, hooks)) == {
        "nat": ["-D OUTPUT 5", "-D OUTPUT -o b -j RETURN", "-D OUTPUT 1"]
    }


def test_replacing_nothing_is_installing() -> None:
    assert replace(NOTHING, PLAN) == rules.render_plan(PLAN)


def test_replacing_removes_and_installs_in_one_step_per_table() -> None:
    older = as_saved(plan(BASE._replace(drop_invalid=True), 4))

    text = replace(find_own(older, PLAN), PLAN)

    mangle, nat = text.split("COMMIT\n")[:2]
    assert mangle.splitlines() == [
        "* mangle",
        "-D PREROUTING -m conntrack --ctstate INVALID -j ISTIO_DROP",
        "-F ISTIO_DROP",
        "-X ISTIO_DROP",
    ]
    assert nat.index("-X ISTIO_OUTPUT") < nat.index("-N ISTIO_OUTPUT")


def test_cleaning_up_nothing_is_nothing() -> None:
    assert replace(NOTHING, ()) == ""
    assert put_back(NOTHING, NOTHING) == ""


def test_what_was_there_is_put_back_at_its_place() -> None:
    text = SAVED.replace("-A OUTPUT -j", "-A OUTPUT -j DOCKER\n-A OUTPUT -j")

    lines = put_back(NOTHING, own(text)).splitlines()

    assert "-I OUTPUT 2 -j ISTIO_OUTPUT" in lines
    assert lines.index("-N ISTIO_REDIRECT") < lines.index("-A ISTIO_OUTPUT -j ISTIO_REDIRECT")
    assert (
        creation(own())["nat"].count("-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001") == 1
    )


def test_what_this_run_added_is_removed_when_putting_back() -> None:
    lines = put_back(own(), NOTHING).splitlines()

    assert lines == ["* nat", *removal(own())["nat"], "COMMIT"]
