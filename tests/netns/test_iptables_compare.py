"""--plan: what a run would change, told without changing it."""

import os
import subprocess
import sys

import pytest

from tests.netns.namespaces import NSENTER, ROOT, Namespace

pytestmark = [pytest.mark.root, pytest.mark.slow]

USUAL = ("-u", "1337", "-i", "*", "-b", "*", "--dual-stack")
BACKENDS = [
    ("--force-iptables-binary=nft",),
    ("--force-iptables-binary=legacy",),
    ("--native-nftables",),
]
NOTHING = "nothing differs from the plan\n"


def capture(inside: Namespace, *argv: str, status: int = 0) -> str:
    return inside.capture(*USUAL, *argv, status=status).stdout


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_plan_is_what_happens_then(inside: Namespace, backend: tuple[str, ...]) -> None:
    before = inside.run("nft", "list", "ruleset").stdout

    planned = capture(inside, *backend, "--plan", status=2)

    assert inside.run("nft", "list", "ruleset").stdout == before
    assert "  + ::6 address on the loopback iface\n" in planned
    assert "# every other destination is captured" in planned
    assert "  - " not in planned
    capture(inside, *backend)
    assert capture(inside, *backend, "--plan") == NOTHING
    cleanup = capture(inside, *backend, "--plan", "--cleanup-only", status=2)
    assert "  - ::6 address on the loopback iface\n" in cleanup
    assert "  + " not in cleanup
    capture(inside, *backend, "--cleanup-only")
    assert capture(inside, *backend, "--plan", "--cleanup-only") == NOTHING


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_a_rule_that_has_moved_is_shown_as_moved(inside: Namespace, variant: str) -> None:
    forced = f"--force-iptables-binary={variant}"
    tool = f"iptables-{variant}"
    capture(inside, forced)
    inside.run(
        tool, "-t", "nat", "-D", "ISTIO_OUTPUT", "-s", "127.0.0.6", "-o", "lo", "-j", "RETURN"
    )
    inside.run(
        tool, "-t", "nat", "-A", "ISTIO_OUTPUT", "-s", "127.0.0.6", "-o", "lo", "-j", "RETURN"
    )
    inside.run(tool, "-t", "nat", "-A", "ISTIO_INBOUND", "-p", "udp", "-j", "RETURN")

    planned = capture(inside, forced, "--plan", status=2)

    assert planned == (
        f"IPv4 {tool} nat ISTIO_INBOUND\n"
        "  - 3: -p udp -j RETURN\n"
        f"IPv4 {tool} nat ISTIO_OUTPUT\n"
        "  ~ 9 -> 1: -o lo -s 127.0.0.6/32 -j RETURN  # Envoy delivers to the application; "
        "back to Envoy it would loop for ever\n"
    )


def test_moving_to_another_backend_shows_both(inside: Namespace) -> None:
    capture(inside)

    planned = capture(inside, "--native-nftables", "--plan", status=2)

    assert "nftables nat istio-output, new\n" in planned
    assert "IPv6 iptables-nft nat ISTIO_OUTPUT, not planned\n" in planned
    capture(inside, "--native-nftables")
    planned = capture(inside, "--plan", status=2)
    assert "IPv6 iptables-nft nat ISTIO_OUTPUT, new\n" in planned
    assert "nftables nat istio-output, not planned\n" in planned


def test_another_mode_shows_its_routes(inside: Namespace) -> None:
    capture(inside)

    planned = capture(inside, "-m", "TPROXY", "--plan", status=2)

    assert "  + IPv6 policy rule: fwmark 1337 lookup 133\n" in planned
    assert "IPv4 iptables-nft mangle ISTIO_TPROXY, new\n" in planned


def test_only_a_terminal_gets_colours(inside: Namespace) -> None:
    reader, writer = os.openpty()
    command = [NSENTER, f"--net={inside.path}", sys.executable, "-m", "iptables", *USUAL, "--plan"]

    done = subprocess.run(
        [*command, "--log_output_level=none", "-m", "NONE", "--cleanup-only"],
        stdout=writer, cwd=ROOT, check=False,
    )  # fmt: skip
    assert (done.returncode, os.read(reader, 100)) == (0, NOTHING.encode().replace(b"\n", b"\r\n"))
    done = subprocess.run(command, stdout=writer, cwd=ROOT, check=False)

    os.close(writer)
    shown = os.read(reader, 60)
    os.close(reader)
    assert done.returncode == 2
    assert shown.startswith(b"\x1b[1maddresses and routes\x1b[0m\r\n\x1b[32m  + ::6")
    assert "\x1b" not in capture(inside, "--plan", status=2)


def test_a_usual_run_loads_nothing_that_was_not_asked_for(inside: Namespace) -> None:
    code = (
        "import sys; from iptables.cli import main; main(sys.argv[1:], {});"
        "print(*sys.modules, sep='\\n')"
    )
    unasked = [
        "iptables." + name for name in ("compare", "explain", "libiptc", "validate", "sandbox")
    ]
    unasked += ["iptables.nft.run", "asyncio", "ctypes", "difflib", "iptc", "pyroute2", "socket"]

    for argv in (USUAL, (*USUAL, "--cleanup-only")):
        done = inside.run(sys.executable, "-c", code, *argv, "--log_target=stderr")
        assert set(done.stdout.splitlines()) & set(unasked) == set()


def test_what_cannot_be_read_is_no_difference(inside: Namespace) -> None:
    wrapper = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
    done = inside.run(
        sys.executable, "-m", "iptables", *USUAL, "--plan", check=False, wrapper=wrapper
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "\terror\t" in done.stderr
    assert "the process needs CAP_NET_ADMIN" in done.stderr
