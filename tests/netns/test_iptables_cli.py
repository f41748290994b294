"""The whole command on real tables, in namespaces of their own."""

import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.netns.namespaces import Namespace, namespace

pytestmark = [pytest.mark.root, pytest.mark.slow]

#: What the injector passes. Source: traffic-capture.md section 4.1.
INJECTED = (
    "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "",
    "-b", "*", "-d", "15090,15021,15020", "--log_output_level=default:info",
)  # fmt: skip
BOTH = (*INJECTED, "--dual-stack")
LINES = 22  # chains and rules of the above, of each family
TOOLS = ("iptables-legacy", "iptables-nft", "ip6tables-legacy", "ip6tables-nft")


def dump(inside: Namespace, *tools: str) -> dict[str, list[str]]:
    """Return what is installed, by tool: chains and rules, without empty tables and counters."""
    found = {}
    for tool in tools or TOOLS:
        lines = inside.run(f"{tool}-save").stdout.splitlines()
        found[tool] = [line for line in lines if line.startswith(("-A", ":ISTIO", ":FOREIGN"))]
    return found


def errors(done: CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if "\terror\t" in line]


def has_passthrough(inside: Namespace) -> bool:
    found = inside.python("from iptables import client; print(client.interface_addresses())")
    return "'::6'" in found


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_both_families_are_captured_once_and_cleaned_up(inside: Namespace, variant: str) -> None:
    """Source: traffic-capture.md section 17.2."""
    forced = f"--force-iptables-binary={variant}"

    inside.capture(*BOTH, forced)
    first = dump(inside)
    again = inside.capture(*BOTH, forced)

    assert len(first[f"iptables-{variant}"]) == len(first[f"ip6tables-{variant}"]) == LINES
    assert dump(inside) == first
    assert has_passthrough(inside)
    assert "reconciliation not needed" in again.stdout
    assert "Running iptables restore" not in again.stdout
    inside.capture(*BOTH, forced, "--cleanup-only")
    assert not any(dump(inside).values())
    assert not has_passthrough(inside)


def test_the_same_variant_is_chosen_on_every_run(inside: Namespace) -> None:
    """Source: traffic-capture.md section 17.1."""
    inside.capture(*BOTH)
    first = dump(inside)
    inside.run("iptables-legacy", "-t", "nat", "-L")  # makes an empty table, which is no use of it
    inside.run("iptables-legacy", "-A", "INPUT", "-j", "ACCEPT")

    inside.capture(*BOTH)

    assert dump(inside, "iptables-nft", "ip6tables-nft") == {
        tool: first[tool] for tool in ("iptables-nft", "ip6tables-nft")
    }
    assert dump(inside, "iptables-legacy") == {"iptables-legacy": ["-A INPUT -j ACCEPT"]}


def test_legacy_in_use_is_used(inside: Namespace) -> None:
    inside.run("iptables-legacy", "-A", "INPUT", "-j", "ACCEPT")

    inside.capture(*INJECTED)

    assert len(dump(inside)["iptables-legacy"]) == LINES + 1


def test_rules_move_to_a_forced_variant_when_reconciled(inside: Namespace) -> None:
    inside.capture(*INJECTED, "--force-iptables-binary=legacy")
    before = dump(inside)

    done = inside.capture(*INJECTED, "--force-iptables-binary=nft", status=1)

    assert "iptables-legacy has rules of ours too" in errors(done)[0]
    assert dump(inside) == before
    inside.capture(*INJECTED, "--force-iptables-binary=nft", "--reconcile")
    after = dump(inside)
    assert not after["iptables-legacy"]
    assert len(after["iptables-nft"]) == LINES


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_drift_is_refused_then_reconciled(inside: Namespace, variant: str) -> None:
    """Case I27: order is compared too."""
    forced = f"--force-iptables-binary={variant}"
    tool = f"iptables-{variant}"
    inside.capture(*INJECTED, forced)
    fresh = dump(inside)
    inside.run(tool, "-t", "nat", "-I", "OUTPUT", "1", "-p", "udp", "-j", "RETURN")
    assert "not needed" in inside.capture(*INJECTED, forced).stdout  # a foreign rule is no drift
    inside.run(tool, "-t", "nat", "-A", "ISTIO_INBOUND", "-j", "RETURN")
    inside.run(tool, "-t", "nat", "-D", "ISTIO_OUTPUT", "1")
    inside.run(
        tool, "-t", "nat", "-A", "ISTIO_OUTPUT", "-s", "127.0.0.6", "-o", "lo", "-j", "RETURN"
    )
    drifted = dump(inside)

    done = inside.capture(*INJECTED, forced, status=1)

    (error,) = errors(done)
    assert "nat ISTIO_INBOUND rule 6: expected nothing, found '-j RETURN'" in error
    assert "nat ISTIO_OUTPUT rule 1" in error
    assert dump(inside) == drifted
    inside.capture(*INJECTED, forced, "--reconcile")
    inside.run(tool, "-t", "nat", "-D", "OUTPUT", "-p", "udp", "-j", "RETURN")
    assert dump(inside) == fresh


def test_forcing_installs_anew(inside: Namespace) -> None:
    """Source: traffic-capture.md section 17.12."""
    inside.capture(*BOTH)
    first = dump(inside)

    done = inside.capture(*BOTH, "--force-apply")

    assert "Running iptables restore" in done.stdout
    assert dump(inside) == first


def test_another_configuration_replaces_all_of_the_first(inside: Namespace) -> None:
    """Source: traffic-capture.md section 17.4."""
    first = ("--redirect-dns", "--capture-all-dns", "--drop-invalid", "-m", "TPROXY")
    inside.capture(*BOTH, *first)

    inside.capture(*BOTH, "--reconcile")

    reconciled = dump(inside)
    again = inside.capture(*BOTH)
    inside.capture(*BOTH, "--cleanup-only")
    inside.capture(*BOTH)
    assert reconciled == dump(inside)
    assert "reconciliation not needed" in again.stdout


def test_rules_of_interfaces_go_with_the_configuration_they_were_for(inside: Namespace) -> None:
    interfaces = ("-k", "eth1", "-c", "eth2")
    inside.capture(*BOTH)
    expected = dump(inside)
    inside.capture(*BOTH, *interfaces, "--reconcile")

    done = inside.capture(*BOTH, "--reconcile")

    assert dump(inside) == expected
    assert " keeps " not in done.stdout
    inside.capture(*BOTH, *interfaces, "--reconcile")
    inside.capture(*BOTH, "--cleanup-only")
    assert not any(dump(inside).values())


def test_of_the_references_rules_those_of_interfaces_are_left_and_warned_about(
    inside: Namespace,
) -> None:
    """Source: traffic-capture.md section 9.5."""
    interfaces = ("-k", "eth1", "-c", "eth2")
    shown = inside.capture(*BOTH, *interfaces, "--dry-run").stdout
    for tool, text in zip(TOOLS[1::2], shown.split("# IPv")[1:], strict=True):
        inside.run(f"{tool}-restore", "--noflush", text=f"# {text}")

    done = inside.capture(*BOTH, "--reconcile")

    kept = [line for line in done.stdout.splitlines() if " keeps " in line]
    assert len(kept) == 2 * 3
    assert "IPv4: nat PREROUTING keeps '-i eth1 -j RETURN', which others may have" in kept[0]
    assert "-o eth2 -j RETURN" in str(dump(inside))


@pytest.mark.parametrize("argv", [BOTH, (*BOTH, "--reconcile")])
def test_a_failing_ipv6_leaves_ipv4_as_it_was(
    inside: Namespace, argv: tuple[str, ...], tmp_path: Path
) -> None:
    """Cases I2 and I6. Source: traffic-capture.md section 17.22."""
    for tool in ("ip6tables-nft-restore", "ip6tables-legacy-restore"):
        (tmp_path / tool).write_text("#!/bin/sh\necho 'RULE_APPEND failed' >&2\nexit 1\n")
        (tmp_path / tool).chmod(0o755)
    inside.run("iptables-nft", "-t", "nat", "-A", "OUTPUT", "-p", "udp", "-j", "RETURN")
    if "--reconcile" in argv:
        inside.capture(*INJECTED, "-b", "80", "-o", "22")
        inside.run("iptables-nft", "-t", "nat", "-I", "OUTPUT", "-p", "icmp", "-j", "RETURN")
    before = dump(inside)

    done = inside.capture(*argv, status=1, PATH=f"{tmp_path}:{os.environ['PATH']}")

    (error,) = errors(done)
    assert "ip6tables-nft-restore refused its input: exit status 1: RULE_APPEND failed" in error
    assert dump(inside) == before
    assert not has_passthrough(inside)


def test_ipv6_that_is_not_captured_is_not_touched(inside: Namespace) -> None:
    """Source: traffic-capture.md section 17.23."""
    inside.run("ip6tables-nft", "-t", "nat", "-N", "ISTIO_OLD")

    inside.capture(*INJECTED)
    before = dump(inside)
    again = inside.capture(*INJECTED)

    assert "IPv6 is not captured, but iptables-nft has rules of ours" in again.stdout
    assert "IPv6 traffic of 2001:db8::7 bypasses Envoy" in again.stdout
    assert dump(inside) == before
    assert before["ip6tables-nft"] == [":ISTIO_OLD - [0:0]"]


def test_a_rule_of_others_is_no_drift(inside: Namespace) -> None:
    """Source: traffic-capture.md section 17.20."""
    inside.run("iptables-nft", "-t", "nat", "-A", "OUTPUT", "-p", "udp", "-j", "RETURN")

    first = inside.capture(*BOTH)
    inside.run("iptables-nft", "-t", "nat", "-I", "OUTPUT", "-p", "icmp", "-j", "RETURN")
    again = inside.capture(*BOTH)

    assert "Clean-state detected" in first.stdout
    assert "reconciliation not needed" in again.stdout


def test_blanks_in_lists_make_no_difference(inside: Namespace) -> None:
    """Source: traffic-capture.md section 17.25."""
    inside.capture(*BOTH, "-c", "eth1 , eth2", "-o", "8080, 9090", "-k", " eth3")
    first = dump(inside)

    again = inside.capture(*BOTH, "-c", "eth1,eth2", "-o", "8080,9090", "-k", "eth3")

    assert "reconciliation not needed" in again.stdout
    assert dump(inside) == first


def test_other_tables_do_not_disturb(inside: Namespace) -> None:
    """Case I15."""
    inside.run("iptables-legacy", "-t", "security", "-A", "INPUT", "-j", "RETURN")

    inside.capture(*INJECTED, "--force-iptables-binary=legacy")
    inside.capture(*INJECTED, "--force-iptables-binary=legacy")

    assert "-A INPUT -j RETURN" in dump(inside)["iptables-legacy"]


def test_cleaning_up_where_nothing_is_installed_is_fine(inside: Namespace) -> None:
    inside.capture("--cleanup-only")


def test_a_user_or_group_that_does_not_exist_is_named(inside: Namespace) -> None:
    done = inside.capture("-u", "nosuchuser", status=1, ISTIO_OUTBOUND_OWNER_GROUPS="root,nogr")

    assert [line.rpartition("\t")[2] for line in errors(done)] == [
        "there is no group 'nogr' here",
        "there is no group 'nosuchuser' here",
        "there is no user 'nosuchuser' here",
    ]
    assert not any(dump(inside).values())


def test_rules_with_names_are_recognised(inside: Namespace) -> None:
    argv = ("-u", "root,nobody", "-g", "root")

    inside.capture(*argv, ISTIO_OUTBOUND_OWNER_GROUPS="root,nogroup")
    again = inside.capture(*argv, ISTIO_OUTBOUND_OWNER_GROUPS="root,nogroup")

    assert "reconciliation not needed" in again.stdout


def test_a_dry_run_prints_reasons_and_changes_nothing(inside: Namespace, tmp_path: Path) -> None:
    """Source: traffic-capture.md section 17.18."""
    transcript = tmp_path / "transcript"
    transcript.write_text("x" * 10_000)

    done = inside.capture(
        *BOTH, "--dry-run", "--log_target=stderr", PATH=str(tmp_path),
        DRY_RUN_FILE_PATH=str(transcript),
    )  # fmt: skip

    assert not any(dump(inside).values())
    assert not has_passthrough(inside)
    golden = Path(__file__).parents[1] / "golden" / "iptables"
    v4, v6 = (golden / f"injected-ipv6.ipv{family}" for family in (4, 6))
    plain = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert plain == [*v4.read_text().splitlines(), *v6.read_text().splitlines()]
    assert "# IPv6: input of ip6tables-restore --noflush\n* nat\n" in done.stdout
    assert "# every other destination is captured\n-A ISTIO_OUTPUT -j ISTIO_REDIRECT" in done.stdout
    saves = "iptables-save\nip6tables-save\n"
    assert transcript.read_text() == f"{saves}{v4.read_text()}{v6.read_text()}{saves}"
    inside.run("iptables-nft-restore", "--noflush", text=done.stdout.partition("# IPv6")[0])
    assert "reconciliation not needed" in inside.capture(*INJECTED).stdout


def test_a_dry_run_of_a_cleanup_prints_what_removes_this_configuration(inside: Namespace) -> None:
    done = inside.capture(
        *INJECTED, "-c", "eth9", "--dry-run", "--cleanup-only", "--log_target=stderr"
    )

    inside.capture(*INJECTED, "-c", "eth9")
    inside.run("iptables-nft-restore", "--noflush", text=done.stdout)
    assert not any(dump(inside).values())


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (("-m", "tproxy"), "expected REDIRECT, TPROXY or NONE"),
        (("-b", "80x"), "--istio-inbound-ports item '80x': expected a port"),
        (("-c", "eth0 -j ACCEPT"), "--istio-exclude-interfaces item 'eth0 -j ACCEPT'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(
    inside: Namespace, argv: tuple[str, ...], named: str
) -> None:
    """Case I19."""
    done = inside.capture(*argv, status=1)

    assert named in errors(done)[0]
    assert not any(dump(inside).values())


@pytest.mark.parametrize("argv", [("-m", "NONE"), ("--skip-rule-apply",), ("--help",)])
def test_nothing_may_be_asked_for(inside: Namespace, argv: tuple[str, ...], tmp_path: Path) -> None:
    inside.capture(*argv, PATH=str(tmp_path))


def test_a_log_that_cannot_be_written_is_no_reason_to_fail(inside: Namespace) -> None:
    without_room = ("sh", "-c", 'exec "$@" >/dev/full', "sh")

    inside.capture(*INJECTED, wrapper=without_room)

    assert any(dump(inside).values())


def test_a_namespace_without_an_address_is_refused() -> None:
    with namespace() as bare:
        done = bare.capture(*INJECTED, status=1)

    assert "no valid local IP address found" in errors(done)[0]


def test_an_ipv6_only_namespace_needs_no_flag() -> None:
    with namespace("2001:db8::7/128") as made:
        made.capture(*INJECTED)
        made.capture(*INJECTED)

        assert len(dump(made)["ip6tables-nft"]) == len(dump(made)["iptables-nft"]) == LINES


def test_the_log_can_be_json_in_a_file_with_callers(inside: Namespace, tmp_path: Path) -> None:
    target = tmp_path / "log"

    done = inside.capture(
        "-m", "NONE", "--log_as_json", f"--log_target={target}", "--log_caller=all"
    )

    assert done.stdout == ""
    assert '"level":"info","time":"20' in target.read_text()
    assert '"caller":"iptables/cli.py:' in target.read_text()
