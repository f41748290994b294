"""What is done about the tables that are there, and what is said about their differences."""

from pathlib import Path

import pytest

from iptables.config import Actions, CaptureConfig, Inbound
from iptables.lists import Selection
from iptables.nft.listing import Listing, parse_listing
from iptables.nft.state import decide, differences, marks, put_back
from iptables.nft.text import removal, transaction
from iptables.plan import plan

CONFIG = CaptureConfig(inbound=Inbound(ports=Selection(is_all=True)))
PLAN = plan(CONFIG, 4)
TPROXY = plan(CONFIG._replace(inbound=Inbound("TPROXY", Selection(is_all=True))), 4, 6)
GOLDEN = Path(__file__).parents[1] / "golden" / "iptables-nft"
#: What nft lists of PLAN, and of TPROXY.
LISTED = (GOLDEN / "inbound-ports-wildcard.listed").read_text()
LISTED_TPROXY = (GOLDEN / "tproxy.listed").read_text()
NOTHING = parse_listing("")


def installed(old: str = "", new: str = "") -> Listing:
    """Return the plan as installed, with one text replaced by another."""
    assert not old or LISTED.count(old) == 1
    return parse_listing(LISTED.replace(old, new) if old else LISTED)


def test_a_clean_namespace_gets_the_plain_transaction() -> None:
    change = decide(PLAN, NOTHING, Actions())

    assert change.text == transaction(PLAN)
    assert [level for level, _ in change.notes] == ["info"]


def test_what_is_as_planned_is_left_alone() -> None:
    assert decide(PLAN, installed(), Actions(reconcile=True)).text == ""


def test_forcing_installs_anew() -> None:
    change = decide(PLAN, installed(), Actions(force_apply=True))

    assert change.text == removal() + transaction(PLAN)


def test_drift_is_named_and_replaced_in_one_transaction() -> None:
    found = installed("tcp dport 15008 counter return", "tcp dport 15009 counter return")

    change = decide(PLAN, found, Actions())

    assert change.text == removal() + transaction(PLAN)
    assert (
        "warn",
        (
            "nat istio-inbound rule 1: "
            "expected 'meta l4proto tcp tcp dport 15008 counter return', "
            "found 'tcp dport 15009 counter return'"
        ),
    ) in change.notes


def test_a_cleanup_removes_what_is_there_and_nothing_else() -> None:
    assert decide(PLAN, installed(), Actions(cleanup_only=True)).text == removal()
    assert decide(PLAN, NOTHING, Actions(cleanup_only=True)).text == ""


TUNNEL = "meta l4proto tcp tcp dport 15008 counter return"
REDIRECT = "meta l4proto 6 counter redirect to :15001"
JUMP = "meta l4proto 6 counter jump istio-in-redirect"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            f"{REDIRECT}\n",
            f"{REDIRECT}\n\t\tcounter drop\n",
            "nat istio-redirect rule 2: expected nothing, found 'counter drop'",
        ),
        (
            f"\t\t{REDIRECT}\n",
            "",
            (
                "nat istio-redirect rule 1: "
                "expected 'meta l4proto tcp counter redirect to :15001', found nothing"
            ),
        ),
        (
            f"tcp dport 15008 counter return\n\t\t{JUMP}",
            f"{JUMP}\n\t\ttcp dport 15008 counter return",
            (f"nat istio-inbound rule 1: expected '{TUNNEL}', found '{JUMP}'"),
        ),
        ("chain istio-redirect {", "chain istio-other {", "nat istio-other is not planned"),
        ("chain istio-redirect {", "chain istio-other {", "nat istio-redirect is missing"),
        (
            "output priority -100; policy accept;",
            "output priority -100; policy drop;",
            (
                "nat output expected 'type nat hook output priority -100; policy accept;', "
                "found 'type nat hook output priority -100; policy drop;'"
            ),
        ),
    ],
)
def test_each_difference_says_where_it_is(old: str, new: str, expected: str) -> None:
    assert expected in differences(PLAN, installed(old, new))


def test_a_table_of_an_older_configuration_is_a_difference() -> None:
    found = parse_listing(f"{LISTED}table inet istio-proxy-raw {{\n}}\n")

    assert differences(PLAN, found) == ["raw is not planned"]


def test_a_missing_table_is_a_difference() -> None:
    lines = differences(TPROXY, installed())

    assert "mangle istio-tproxy is missing" in lines


def test_marks_are_those_of_the_rules_installed() -> None:
    assert marks(parse_listing(LISTED_TPROXY)) == [(4, 1337), (6, 1337)]
    assert marks(installed()) == []


def test_what_was_there_is_put_back_as_it_was_listed() -> None:
    assert put_back(installed()) == removal() + LISTED
    assert put_back(NOTHING) == removal()
