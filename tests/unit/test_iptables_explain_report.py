"""Explanations as people and programs get them."""

import json

from iptables.explain.chains import Line
from iptables.explain.flow import parse_flow
from iptables.explain.report import as_json, render
from iptables.explain.walk import Explanation, Fate, Hook, Step

JUMP = Step("OUTPUT", Line("-j ISTIO_OUTPUT", "outbound traffic is selected"))
LOG = Step("OUTPUT", Line("-j LOG", "not of this configuration"))
FLOW = parse_flow("tcp uid=5 gid=6 out=eth0 10.0.0.7 1.2.3.4:80")
CAPTURED = Explanation(
    FLOW,
    (
        Hook("raw", "OUTPUT", ()),
        Hook("nat", "OUTPUT", (JUMP,)),
        Hook("nat", "PREROUTING", (), again=True, skipped="skipped, as it was there"),
    ),
    Fate("redirected", "to Envoy's outbound listener", 15001),
    (LOG,),
)


def test_people_get_the_way_from_top_to_bottom() -> None:
    assert render(CAPTURED, "planned, for iptables") == (
        "flow     tcp 10.0.0.7 -> 1.2.3.4:80, sent here by uid 5 and gid 6, leaving by eth0\n"
        "rules    planned, for iptables\n"
        "\n"
        "raw OUTPUT: no rule matches\n"
        "\n"
        "nat OUTPUT\n"
        "  OUTPUT: -j ISTIO_OUTPUT\n"
        "      outbound traffic is selected\n"
        "\n"
        "nat PREROUTING, coming in again by lo: skipped, as it was there\n"
        "\n"
        "not understood, taken for no match: OUTPUT: -j LOG\n"
        "\n"
        "verdict  redirected to 15001: to Envoy's outbound listener\n"
    )


def test_what_comes_in_has_no_sender() -> None:
    flow = parse_flow("tcp in=eth0 [2001:db8::9]:7 [2001:db8::7]:80")

    text = render(Explanation(flow, (), Fate("untouched", "nothing"), ()), "planned")

    assert "tcp [2001:db8::9]:7 -> [2001:db8::7]:80, coming in by eth0\n" in text
    assert text.endswith("verdict  untouched: nothing\n")


def test_an_unnamed_sender_is_said_to_be_nobody_of_interest() -> None:
    flow = parse_flow("udp out=eth0 10.0.0.7 1.2.3.4:80")

    text = render(Explanation(flow, (), Fate("untouched", "nothing"), ()), "planned")

    assert "sent here by no user or group that a rule names, leaving by eth0" in text


def test_programs_get_one_object_on_one_line() -> None:
    text = as_json(CAPTURED, "planned, for iptables")

    assert text.count("\n") == 1
    assert json.loads(text) == {
        "flow": {
            "protocol": "tcp",
            "source": "10.0.0.7",
            "destination": "1.2.3.4:80",
            "direction": "out",
            "interface": "eth0",
            "uid": 5,
            "gid": 6,
        },
        "rules": "planned, for iptables",
        "hooks": [
            {"table": "raw", "chain": "OUTPUT", "again": False, "skipped": "", "steps": []},
            {
                "table": "nat",
                "chain": "OUTPUT",
                "again": False,
                "skipped": "",
                "steps": [
                    {
                        "chain": "OUTPUT",
                        "rule": "-j ISTIO_OUTPUT",
                        "why": "outbound traffic is selected",
                    }
                ],
            },
            {
                "table": "nat",
                "chain": "PREROUTING",
                "again": True,
                "skipped": "skipped, as it was there",
                "steps": [],
            },
        ],
        "not_understood": [{"chain": "OUTPUT", "rule": "-j LOG"}],
        "verdict": {
            "action": "redirected",
            "why": "to Envoy's outbound listener",
            "port": 15001,
        },
    }
