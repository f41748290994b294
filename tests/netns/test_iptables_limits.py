"""Large rule sets, and hosts that lack what is not needed."""

import shutil
from pathlib import Path

import pytest

from tests.netns.namespaces import Namespace, namespace

pytestmark = [pytest.mark.root, pytest.mark.slow]

USUAL = ("-u", "1337", "-i", "*", "-b", "*")
TOOLS = ("iptables-legacy", "iptables-nft", "ip6tables-legacy", "ip6tables-nft")


def rules(inside: Namespace, tool: str) -> list[str]:
    lines = inside.run(f"{tool}-save").stdout.splitlines()
    return [line for line in lines if line.startswith("-A")]


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_two_thousand_ranges_and_five_hundred_ports(inside: Namespace, variant: str) -> None:
    ranges = [f"10.{number // 256}.{number % 256}.0/24" for number in range(1000)]
    ranges += [f"2001:db8:{number:x}::/48" for number in range(1, 1001)]
    ports = ",".join(str(number) for number in range(2000, 2500))
    argv = (
        *USUAL, "--dual-stack", f"--force-iptables-binary={variant}",
        "-x", ",".join(ranges), "-o", ports, "-d", ports,
    )  # fmt: skip

    first = inside.capture(*argv)
    again = inside.capture(*argv)

    for tool in (f"iptables-{variant}", f"ip6tables-{variant}"):
        assert len(rules(inside, tool)) == 15 + 1000 + 3 * 500
    assert "read back" not in first.stdout
    assert "reconciliation not needed" in again.stdout
    inside.capture(*argv, "--cleanup-only")
    assert not any(rules(inside, tool) for tool in TOOLS)


def test_an_ipv6_only_pod_needs_no_ipv4_tools(tmp_path: Path) -> None:
    """Case I11. Source: traffic-capture.md section 17.27."""
    for purpose in ("", "-save", "-restore"):
        name = f"ip6tables-nft{purpose}"
        (tmp_path / name).symlink_to(shutil.which(name) or "")

    with namespace("2001:db8::7/128") as made:
        done = made.capture(*USUAL, "--backend=iptables", PATH=str(tmp_path))

        assert "going on, as the host has no IPv4 address" in done.stdout
        assert len(rules(made, "ip6tables-nft")) == 15
        assert not rules(made, "iptables-nft")
