"""`istio-iptables --explain` as users run it, on plans and on what is installed."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from subprocess import CompletedProcess

import pytest
from pyroute2 import IPRoute

from tests.netns.namespaces import ROOT, Namespace, namespace

pytestmark = [pytest.mark.root, pytest.mark.slow]

ARGUMENTS = ("-u", "1337", "-i", "*", "-b", "*", "-d", "15020", "--dual-stack")
OUTBOUND = "tcp uid=5000 10.9.0.1 1.2.3.4:80"
INBOUND = "tcp in=eth0 2001:db8::9 [2001:db8::7]:8080"
#: Commands that the documentation shows, and what they print.
EXAMPLES = re.findall(
    r"^```\n\$ agent istio-iptables ([^\n]*)\n(.*?)^```$",
    (ROOT / "docs" / "debugging.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
assert EXAMPLES
WITHOUT_NET_ADMIN = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")


@pytest.fixture
def inside() -> Iterator[Namespace]:
    with namespace("10.9.0.1/32", "2001:db8::7/128") as made:
        yield made


def run(
    inside: Namespace, *argv: str, status: int = 0, wrapper: tuple[str, ...] = ()
) -> CompletedProcess[str]:
    return inside.capture(*ARGUMENTS, *argv, status=status, wrapper=wrapper)


def verdict(inside: Namespace, flow: str, *argv: str) -> str:
    return run(inside, "--explain", flow, *argv).stdout.splitlines()[-1]


def test_a_plan_is_explained_rule_by_rule_and_nothing_else_is_printed(inside: Namespace) -> None:
    done = run(inside, "--explain", OUTBOUND, wrapper=WITHOUT_NET_ADMIN)

    assert done.stdout == (
        "flow     tcp 10.9.0.1 -> 1.2.3.4:80, sent here by uid 5000, leaving by eth0\n"
        "rules    planned, for iptables\n"
        "\n"
        "nat OUTPUT\n"
        "  OUTPUT: -j ISTIO_OUTPUT\n"
        "      outbound traffic is selected in ISTIO_OUTPUT, any protocol for DNS's sake\n"
        "  ISTIO_OUTPUT: -j ISTIO_REDIRECT\n"
        "      every other destination is captured\n"
        "  ISTIO_REDIRECT: -p tcp -j REDIRECT --to-ports 15001\n"
        "      to Envoy's outbound listener\n"
        "\n"
        "nat PREROUTING, coming in again by lo: "
        "skipped, as a connection passes nat once, and did when it was sent\n"
        "\n"
        "verdict  redirected to 15001: to Envoy's outbound listener\n"
    )


@pytest.mark.parametrize("backend", [(), ("--native-nftables",)])
@pytest.mark.parametrize(
    ("flow", "port"),
    [(OUTBOUND, 15001), (INBOUND, 15006), ("tcp uid=5000 127.0.0.1 1.2.3.4:80", 15001)],
)
def test_a_plan_is_explained_where_there_is_no_address(
    flow: str, port: int, backend: tuple[str, ...]
) -> None:
    with namespace() as bare:
        done = run(bare, *backend, "--explain", flow)

    assert done.stdout.splitlines()[-1].startswith(f"verdict  redirected to {port}: ")
    assert done.stderr == ""


def test_an_ipv4_flow_is_not_bothered_with_ipv6(inside: Namespace) -> None:
    done = run(inside, "--dual-stack=false", "--explain", OUTBOUND)

    assert done.stderr == ""


def test_nftables_are_explained_in_nfts_words(inside: Namespace) -> None:
    text = run(inside, "--native-nftables", "--explain", INBOUND).stdout

    assert "rules    planned, for nftables\n" in text
    assert "  istio-in-redirect: meta l4proto tcp counter redirect to :15006\n" in text


def test_a_family_that_is_not_captured_has_no_rules(inside: Namespace) -> None:
    text = run(inside, "--dual-stack=false", "--explain", INBOUND).stdout

    assert "rules    planned, for iptables: none, as IPv6 is not captured\n" in text
    assert text.endswith("verdict  untouched: no rule has anything against it\n")


@pytest.mark.parametrize(
    "spelling", [("-o", "json"), ("-ojson",), ("-o=json",), ("--output=json",)]
)
def test_json_does_not_touch_the_excluded_ports(
    inside: Namespace, spelling: tuple[str, ...]
) -> None:
    done = run(inside, "-o", "80", *spelling, "--explain", OUTBOUND)

    found = json.loads(done.stdout)
    assert found["verdict"] == {
        "action": "returned",
        "why": "outbound port 80 is excluded from capture",
        "port": None,
    }


@pytest.mark.parametrize(
    ("backend", "rules"),
    [
        ("--force-iptables-binary=nft", "installed, by iptables-nft"),
        ("--force-iptables-binary=legacy", "installed, by iptables-legacy"),
        ("--native-nftables", "installed, by nftables"),
    ],
)
def test_what_is_installed_decides_if_asked(inside: Namespace, backend: str, rules: str) -> None:
    run(inside, "-o", "80", backend)

    done = run(inside, "--live", "--explain", OUTBOUND)

    assert f"rules    {rules}\n" in done.stdout
    assert "of a configuration that is not the one asked about" in done.stdout.splitlines()[-1]
    assert verdict(inside, OUTBOUND) == "verdict  redirected to 15001: to Envoy's outbound listener"
    assert verdict(inside, INBOUND, "--live") == (
        "verdict  redirected to 15006: to Envoy's inbound listener"
    )


def test_without_installed_rules_that_is_said(inside: Namespace) -> None:
    done = run(inside, "--live", "--explain", OUTBOUND, status=1)

    assert done.stdout == ""
    assert "no rules of ours are installed for IPv4" in done.stderr


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--explain", "tcp 1.2.3.4"), "--explain='tcp 1.2.3.4': expected 'tcp|udp [uid=N]"),
        (("--explain", ""), "--explain='': expected 'tcp|udp [uid=N]"),
        (("--explain", OUTBOUND, "--output=xml"), "--output='xml': expected 'json' or nothing"),
        (("--live",), "--live: expected only beside --explain"),
        (("--output=json",), "--output: expected only beside --explain"),
    ],
)
def test_what_cannot_be_understood_is_a_usage_error(
    inside: Namespace, argv: tuple[str, ...], said: str
) -> None:
    done = run(inside, *argv, status=255)

    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert said in line


def test_what_explains_is_not_loaded_unless_asked_for(inside: Namespace) -> None:
    code = """
import sys
from iptables.cli import main
status = main(sys.argv[1:], {})
print(status, *(name for name in sys.modules if name.startswith("iptables.explain")))
"""
    argv = (*ARGUMENTS, "--log_output_level=none")

    done = inside.run(sys.executable, "-c", code, *argv)

    assert done.stdout == "0\n"


@pytest.mark.parametrize(("words", "shown"), EXAMPLES)
def test_what_the_documentation_shows_is_what_is_printed(words: str, shown: str) -> None:
    with namespace() as pod:
        with IPRoute(netns=pod.name) as kernel:
            kernel.link("add", ifname="eth0", kind="veth", peer="far")
            (index,) = kernel.link_lookup(ifname="eth0")
            kernel.addr("add", index=index, address="10.0.0.7", prefixlen=24)

        done = pod.capture(*shlex.split(words))

    assert done.stdout == shown


def test_the_readme_shows_three_examples() -> None:
    assert len(EXAMPLES) == 3
