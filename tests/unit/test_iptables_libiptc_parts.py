import json
from pathlib import Path

import pytest

from iptables.libiptc.parts import Operation, Part, Parts, parse_input, parse_spec, render_spec
from iptables.normal import normal_form

GOLDEN = Path(__file__).parents[1] / "golden" / "iptables"
NOBODY = Part("", ())
INPUT = """\
# IPv4
* nat
-N ISTIO_OUTPUT
# why
-A ISTIO_OUTPUT -o lo -j RETURN
-I OUTPUT 2 -j ISTIO_OUTPUT
-D OUTPUT 7
-D OUTPUT -p tcp -j ISTIO_OLD
-F ISTIO_OLD
COMMIT
"""


def test_each_line_of_the_input_is_an_operation() -> None:
    assert list(parse_input(INPUT)) == [
        Operation(2, "*", "nat"),
        Operation(3, "-N", "ISTIO_OUTPUT"),
        Operation(5, "-A", "ISTIO_OUTPUT", 0, "-o lo -j RETURN"),
        Operation(6, "-I", "OUTPUT", 2, "-j ISTIO_OUTPUT"),
        Operation(7, "-D", "OUTPUT", 7),
        Operation(8, "-D", "OUTPUT", 0, "-p tcp -j ISTIO_OLD"),
        Operation(9, "-F", "ISTIO_OLD"),
        Operation(10, "COMMIT"),
    ]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("", Parts((), (), NOBODY)),
        ("-j RETURN", Parts((), (), Part("RETURN", ()))),
        (
            "-o lo ! -d 127.0.0.1/32 -p tcp ! --dport 15008 -m owner --uid-owner 7 -j X",
            Parts(
                (("out_interface", "lo"), ("dst", "!127.0.0.1/32"), ("protocol", "tcp")),
                (Part("tcp", (("dport", "!15008"),)), Part("owner", (("uid-owner", "7"),))),
                Part("X", ()),
            ),
        ),
        (
            "-p udp -m udp --sport 53 -j REDIRECT --to-port 15053",
            Parts(
                (("protocol", "udp"),),
                (Part("udp", (("sport", "53"),)),),
                Part("REDIRECT", (("to-ports", "15053"),)),
            ),
        ),
        (
            "-m owner ! --gid-owner 1 -m owner ! --gid-owner 2 -m comment",
            Parts(
                (),
                (
                    Part("owner", (("gid-owner", "!1"),)),
                    Part("owner", (("gid-owner", "!2"),)),
                    Part("comment", ()),
                ),
                NOBODY,
            ),
        ),
        ("-j CONNMARK --save-mark", Parts((), (), Part("CONNMARK", (("save-mark", ""),)))),
    ],
)
def test_an_option_belongs_to_the_match_named_last(spec: str, expected: Parts) -> None:
    assert parse_spec(spec) == expected


def test_a_rule_is_put_together_again() -> None:
    text = render_spec(
        [("-s", "0.0.0.0/0.0.0.0"), ("-d", "!10.0.0.0/8"), ("-i", None), ("-p", "tcp")],
        [("tcp", {"dport": ["!", "80"]}), ("comment", {"comment": ['a "b" \\']}), ("x", {})],
        ("SET", {"add-set": ["name", "dst"], "exist": []}),
    )

    assert text == (
        '! -d 10.0.0.0/8 -p tcp -m tcp ! --dport 80 -m comment --comment "a \\"b\\" \\\\" -m x '
        "-j SET --add-set name dst --exist"
    )
    assert render_spec([], [], ("", {})) == ""


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.json")))
def test_taking_a_rule_apart_loses_nothing(name: str) -> None:
    assert json.loads((GOLDEN / f"{name}.json").read_text())
    options = {"src": "-s", "dst": "-d", "in_interface": "-i", "out_interface": "-o"}
    options["protocol"] = "-p"
    for path in GOLDEN.glob(f"{name}.ipv?"):
        for operation in parse_input(path.read_text()):
            parts = parse_spec(operation.spec)

            again = render_spec(
                [(options[attribute], value) for attribute, value in parts.attributes],
                [(part.name, _words(part)) for part in parts.matches],
                (parts.target.name, _words(parts.target)),
            )

            assert normal_form(again) == normal_form(operation.spec)


def _words(part: Part) -> dict[str, list[str]]:
    return {
        name: [*(["!"] if value.startswith("!") else []), value.removeprefix("!")] if value else []
        for name, value in part.parameters
    }
