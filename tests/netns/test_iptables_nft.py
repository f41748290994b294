"""Native nftables on real tables, in namespaces of their own."""

import re
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from iptables.nft.keywords import KEYWORDS
from iptables.nft.text import rule_text, transaction
from iptables.rules import RETURN, Interface, Rule, Table
from tests.netns.namespaces import Namespace
from tests.unit.test_iptables_nft_text import planned

pytestmark = [pytest.mark.root, pytest.mark.slow]

INJECTED = ("-u", "1337", "-m", "REDIRECT", "-i", "*", "-b", "*", "-d", "15090,15021,15020")
BOTH = (*INJECTED, "--dual-stack")
NATIVE = (*BOTH, "--native-nftables")
RICH = (
    "-m", "TPROXY", "-b", "80,8000:9000", "-k", "eth1,tcp", "-c", "0eth,docker+", "-u", "3,root",
    "-g", "4,root", "-i", "10.1.2.3/8,::1/128,0.0.0.0/0,2001:DB8::7/32", "-x", "::/0,1.1.1.1/32",
    "-q", "7:7,443", "-o", "0:65535", "--redirect-dns", "--capture-all-dns", "--drop-invalid",
    "--dual-stack", "--native-nftables",
)  # fmt: skip
WITHOUT_NET_ADMIN = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
SAVES = ("iptables-legacy-save", "iptables-nft-save", "ip6tables-legacy-save", "ip6tables-nft-save")


def native(inside: Namespace) -> str:
    """Return our tables, as nft lists them."""
    text = inside.run("nft", "-s", "list", "ruleset").stdout
    return "".join(re.findall(r"^table inet istio-proxy-.*?^}\n", text, re.MULTILINE | re.DOTALL))


def generation(inside: Namespace) -> str:
    """Return a number that every change of the rules increases."""
    return inside.run("nft", "-a", "list", "ruleset").stdout


def of_iptables(inside: Namespace) -> list[str]:
    """Return chains of ours, and jumps to them, that the iptables tools have."""
    return [
        line for save in SAVES for line in inside.run(save).stdout.splitlines() if "ISTIO_" in line
    ]


def problems(done: CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if "\terror\t" in line or "\twarn\t" in line]


@pytest.mark.parametrize("argv", [NATIVE, RICH], ids=["injected", "rich"])
def test_a_second_run_changes_nothing_and_a_cleanup_leaves_nothing(
    inside: Namespace, argv: tuple[str, ...]
) -> None:
    first = inside.capture(*argv)
    before = generation(inside)

    again = inside.capture(*argv)

    assert problems(first) == problems(again) == []
    assert native(inside)
    assert generation(inside) == before  # handles too
    assert "nftables rules of ours are as asked for" in again.stdout
    inside.capture(*argv, "--cleanup-only")
    assert inside.run("nft", "list", "ruleset").stdout == ""


def test_drift_is_named_and_put_right(inside: Namespace) -> None:
    inside.capture(*NATIVE)
    fresh = native(inside)
    place = ("rule", "inet", "istio-proxy-nat")
    inside.run("nft", "add", *place, "istio-inbound", "tcp", "dport", "99", "return")
    inside.run("nft", "insert", *place, "istio-output", "icmp", "type", "echo-request", "accept")

    done = inside.capture(*NATIVE)

    first, second = problems(done)
    assert "nat istio-inbound rule 6: expected nothing, found 'tcp dport 99 return'" in first
    assert "nat istio-output rule 1" in second
    assert native(inside) == fresh


def test_tables_that_are_not_needed_any_more_go(inside: Namespace) -> None:
    """Source: traffic-capture.md section 17.10."""
    inside.capture(*RICH)
    policies = inside.policies()
    inside.capture(*NATIVE)

    assert policies
    assert inside.policies() == []
    assert native(inside).count("table") == 1


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_moving_to_nftables_and_back_leaves_nothing_of_the_other(
    inside: Namespace, variant: str
) -> None:
    """Case I24. Source: traffic-capture.md section 17.11."""
    forced = f"--force-iptables-binary={variant}"
    inside.capture(*BOTH, forced)
    inside.run(f"iptables-{variant}", "-t", "nat", "-A", "OUTPUT", "-p", "udp", "-j", "RETURN")
    installed = of_iptables(inside)

    inside.capture(*NATIVE)
    moved = of_iptables(inside)
    tables = native(inside)
    inside.capture(*BOTH, forced)

    assert installed
    assert moved == []
    assert tables
    assert of_iptables(inside) == installed
    assert native(inside) == ""
    kept = inside.run(f"iptables-{variant}-save").stdout
    assert "-A OUTPUT -p udp -j RETURN" in kept


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_tproxy_moves_with_its_routes(inside: Namespace, variant: str) -> None:
    tproxy = ("-m", "TPROXY")
    inside.capture(*NATIVE, *tproxy, "-t", "7", "-r", "107")

    inside.capture(*BOTH, *tproxy, f"--force-iptables-binary={variant}")
    moved = inside.policies()
    inside.capture(*NATIVE)

    assert set(moved) == {(1337, 133)}
    assert inside.policies() == []
    assert of_iptables(inside) == []


def test_a_cleanup_removes_what_either_backend_has(inside: Namespace) -> None:
    inside.capture(*BOTH)
    inside.run("nft", "-f", "-", text=transaction(plan_of_both()))

    inside.capture(*BOTH, "--cleanup-only")

    assert of_iptables(inside) == []
    assert native(inside) == ""


def plan_of_both() -> tuple[Table, ...]:
    return planned(*INJECTED, ipv6=True)


def test_what_a_killed_move_left_is_completed(inside: Namespace) -> None:
    inside.capture(*BOTH)
    inside.run("nft", "-f", "-", text=transaction(plan_of_both()))
    before = native(inside)

    done = inside.capture(*NATIVE)

    assert "nftables rules of ours are as asked for" in done.stdout
    assert of_iptables(inside) == []
    assert native(inside) == before


def test_tables_of_others_stay_as_they_are(inside: Namespace) -> None:
    foreign = "table inet others {\n\tchain istio-output {\n\t\tcounter drop\n\t}\n}\n"
    inside.run("nft", "-f", "-", text=foreign)

    inside.capture(*NATIVE)
    inside.capture(*RICH)
    inside.capture(*NATIVE, "--cleanup-only")

    assert inside.run("nft", "-s", "list", "ruleset").stdout == foreign


def test_a_dry_run_prints_the_transaction_with_reasons_and_runs_nothing(
    inside: Namespace, tmp_path: Path
) -> None:
    """Source: traffic-capture.md section 17.9."""
    transcript = tmp_path / "transcript"
    empty = tmp_path / "bin"
    empty.mkdir()

    done = inside.capture(
        *NATIVE,
        "--dry-run",
        "--log_output_level=none",
        DRY_RUN_FILE_PATH=str(transcript),
        PATH=str(empty),
    )

    expected = planned(*INJECTED, ipv6=True)
    assert done.stdout == f"# input of nft -f -\n{transaction(expected, explained=True)}"
    assert transcript.read_text() == transaction(expected)
    assert inside.run("nft", "list", "ruleset").stdout == ""


def test_a_dry_run_is_input_for_nft(inside: Namespace) -> None:
    done = inside.capture(*RICH, "--dry-run", "--log_output_level=none")

    inside.run("nft", "-f", "-", text=done.stdout)

    assert problems(inside.capture(*RICH)) == []


def test_a_refused_transaction_changes_nothing(inside: Namespace) -> None:
    inside.capture(*NATIVE)
    fresh = native(inside)

    done = inside.capture(*NATIVE, "-g", "no-such-group-here", status=1)

    (error,) = problems(done)
    assert "no-such-group-here" in error
    assert native(inside) == fresh


def test_without_the_capability_it_says_so(inside: Namespace) -> None:
    done = inside.capture(*NATIVE, status=1, wrapper=WITHOUT_NET_ADMIN)

    (error,) = [line for line in problems(done) if "\terror\t" in line]
    assert "the process needs CAP_NET_ADMIN" in error


def test_without_nft_it_says_so(inside: Namespace, tmp_path: Path) -> None:
    for tool in SAVES:
        (tmp_path / tool).symlink_to("/bin/true")

    done = inside.capture(*NATIVE, status=1, PATH=str(tmp_path))

    (error,) = problems(done)
    assert "nft is missing in the sidecar container image" in error


def test_a_namespace_in_ambient_mode_is_left_to_the_node_agent(inside: Namespace) -> None:
    inside.run("nft", "add", "table", "inet", "istio-ambient-nat")

    done = inside.capture(*NATIVE, status=1)

    assert "ambient mode" in problems(done)[-1]
    assert native(inside) == ""


def test_two_runs_at_once_both_succeed(inside: Namespace) -> None:
    command = ["nsenter", f"--net={inside.path}", sys.executable, "-m", "iptables", *NATIVE]
    runs = [
        subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL)
        for _ in range(3)
    ]

    assert [run.wait() for run in runs] == [0, 0, 0]
    assert problems(inside.capture(*NATIVE)) == []


@pytest.mark.parametrize("ipv6", [(), ("--dual-stack",)])
def test_tproxy_without_ports_is_a_valid_transaction(
    inside: Namespace, ipv6: tuple[str, ...]
) -> None:
    """Case I23."""
    inside.capture("-m", "TPROXY", "-b", "", "-i", "*", "--native-nftables", *ipv6)

    assert "istio-proxy-mangle" in native(inside)


def test_any_name_is_read_as_a_name(inside: Namespace) -> None:
    """Source: traffic-capture.md section 17.28."""
    names = ["0eth", "eth0", "lo", "bond0.100", "net_1", "a;b", "a{b", "x#y", "9", "7-8", *KEYWORDS]
    rules = [Rule("nat", "PREROUTING", (Interface("in", name),), RETURN, "") for name in names]
    text = "".join(f"add rule inet t c {rule_text(rule)}\n" for rule in rules)

    inside.run("nft", "-f", "-", text=f"add table inet t\nadd chain inet t c\n{text}")

    listed = inside.run("nft", "-s", "list", "table", "inet", "t").stdout
    assert re.findall(r'iifname "(.*)" counter', listed) == names
