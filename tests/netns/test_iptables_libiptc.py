"""The legacy tables without iptables' programs, judged by these programs."""

import fcntl
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings

from iptables import rules
from iptables.config import parse_settings
from iptables.flags import parse_flags
from iptables.host import HostFacts
from iptables.installed import parse_saved
from iptables.netlink import Family, InterfaceAddress
from iptables.normal import normal_form
from iptables.options import FLAGS
from iptables.plan import plan
from tests.netns.namespaces import NSENTER, ROOT, Namespace, namespace
from tests.property.strategies_iptables import COMMAND_LINES, ENVIRONMENTS
from tests.waiting import block_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("iptc") is None and not os.environ.get("CI"),
        reason="needs python-iptables: make test, or pip install '.[libiptc]'",
    ),
]

ADDRESSES = ("240.240.240.240/32", "2001:db8::7/128")
FACTS = HostFacts(
    addresses=(InterfaceAddress("eth0", 2, 4, "10.0.0.7", is_up=True, is_loopback=False),),
    resolv_conf="nameserver 10.96.0.10\nnameserver fd00::10\n",
)
USUAL = (
    "-u", "1337,root", "-i", "*", "-b", "*", "-d", "15020", "--dual-stack", "-k", "eth1",
    "--redirect-dns", "--capture-all-dns", "--drop-invalid",
)  # fmt: skip
TPROXY = (*USUAL, "-m", "TPROXY")
NO_PROGRAMS = (sys.executable, str(ROOT / "tests/fakes/seccomp.py"), "clone,vfork")
SAVE = "import sys; from iptables.libiptc.client import save; print(save(int(sys.argv[1])).out)"
RESTORE = """
import sys
from iptables.libiptc.client import restore
done = restore(int(sys.argv[1]), sys.stdin.read())
print(done.status, done.err)
"""


def capture(inside: Namespace, *argv: str, status: int = 0, **environ: str) -> str:
    """Run the command, which is not let run any program."""
    done = inside.capture(*argv, status=status, wrapper=NO_PROGRAMS, **environ)
    assert not done.stderr
    return done.stdout


def dump(inside: Namespace) -> list[str]:
    saved = [inside.run(f"{tool}-legacy-save").stdout for tool in ("iptables", "ip6tables")]
    return [line for line in "".join(saved).splitlines() if line.startswith(("-A", ":ISTIO"))]


@pytest.mark.parametrize("argv", [USUAL, TPROXY])
def test_the_result_is_that_of_the_programs(inside: Namespace, argv: tuple[str, ...]) -> None:
    capture(inside, *argv, "--backend=libiptc")
    again = capture(inside, *argv, "--backend=libiptc")

    with namespace(*ADDRESSES) as other:
        other.capture(*argv, "--force-iptables-binary=legacy")
        assert dump(inside) == dump(other)
    assert "reconciliation not needed" in again
    assert "read back" not in again
    capture(inside, *argv, "--cleanup-only", "--backend=libiptc")
    assert dump(inside) == []


def test_where_there_are_no_programs_it_is_used_by_itself(
    inside: Namespace, tmp_path: Path
) -> None:
    log = capture(inside, *USUAL, PATH=str(tmp_path))

    assert "Running iptables restore with: libiptc" in log
    assert dump(inside)
    assert "not found in PATH" in capture(
        inside, *USUAL, "--backend=iptables", status=1, PATH=str(tmp_path)
    )


def test_without_the_library_it_is_said_what_to_install(inside: Namespace, tmp_path: Path) -> None:
    (tmp_path / "iptc.py").write_text("raise ImportError('not here')\n")

    log = capture(inside, *USUAL, status=1, PATH=str(tmp_path), PYTHONPATH=str(tmp_path))

    assert "iptables-legacy-save: not found in PATH" in log
    assert "libiptc: python-iptables (mesh-agent[libiptc]) cannot be used: not here" in log
    assert dump(inside) == []


def test_what_the_programs_installed_is_known_and_replaced(inside: Namespace) -> None:
    inside.capture(*USUAL, "--force-iptables-binary=legacy")

    assert "not needed" in capture(inside, *USUAL, "--backend=libiptc")
    refused = capture(inside, *TPROXY, "--backend=libiptc", status=1)
    assert "--reconcile" in refused
    capture(inside, *TPROXY, "--backend=libiptc", "--reconcile")
    assert any("TPROXY" in line for line in dump(inside))


@pytest.mark.parametrize("argv", [USUAL, TPROXY])
def test_what_it_installed_the_programs_take_away(inside: Namespace, argv: tuple[str, ...]) -> None:
    """They compare rules bit by bit, names of interfaces with their masks."""
    capture(inside, *argv, "--backend=libiptc")
    legacy = "--force-iptables-binary=legacy"
    inside.capture(*argv, legacy, "--cleanup-only")

    assert dump(inside) == []


def test_rules_of_others_stay_as_they_are(inside: Namespace) -> None:
    for tool in ("iptables-legacy", "ip6tables-legacy"):
        for rule in (
            '-p tcp -m comment --comment x"y -j RETURN', "-m mark --mark 7 -j RETURN",
            "-p udp -m limit --limit 5/min -j RETURN",
        ):  # fmt: skip
            inside.run(tool, "-t", "nat", "-A", "OUTPUT", *rule.split(" "))
        inside.run(tool, "-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")
    before = dump(inside)

    capture(inside, *USUAL, "--backend=libiptc")
    between = dump(inside)
    capture(inside, *USUAL, "--backend=libiptc", "--cleanup-only")

    assert [line for line in before if line not in between] == []
    assert dump(inside) == before


def test_the_lock_of_the_programs_is_waited_for(inside: Namespace, tmp_path: Path) -> None:
    """Case I10."""
    lock = tmp_path / "xtables.lock"
    argv = [NSENTER, f"--net={inside.path}", sys.executable, "-m", "iptables", *USUAL]
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run = subprocess.Popen(
            [*argv, "--backend=libiptc"], stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={"XTABLES_LOCKFILE": str(lock)},
        )  # fmt: skip
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")

        def is_waiting() -> bool:
            """Return whether the process that changes the rules has the lock's file open."""
            opened = [Path(f"/proc/{pid}/fd") for pid in children.read_text().split()]
            try:
                return any(
                    link.readlink() == lock for folder in opened for link in folder.iterdir()
                )
            except FileNotFoundError:  # closed, or another child that is gone, meanwhile
                return False

        block_until(is_waiting)
        assert dump(inside) == []

    run.communicate()
    assert run.returncode == 0
    assert dump(inside)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "* nat\n-N A\n-A A -m nosuch --x 1 -j RETURN\nCOMMIT\n",
            "line 3: can't find match nosuch",
        ),
        ("* nat\n-N A\n-A A -m owner --nosuch 1 -j RETURN\nCOMMIT\n", "line 3: "),
        ("* nosuch\n-N A\nCOMMIT\n", "line 1: can't initialize nosuch"),
        ("* nat\n-N A\n-N A\nCOMMIT\n", "line 3: can't create chain A: 'Chain already exists'"),
        ("* nat\n-D OUTPUT -j ACCEPT\nCOMMIT\n", "line 2: there is no such rule"),
        ("* nat\n-D OUTPUT 7\nCOMMIT\n", "line 2: "),
        ("* nat\n-X NOSUCH\nCOMMIT\n", "line 2: "),
        ("* nat\n-N A\n-A OUTPUT -j A\n-X A\nCOMMIT\n", "line 4: "),
        ("* nat\n-A INPUT -j REDIRECT\nCOMMIT\n", "line 3: can't commit: 'Invalid argument'"),
    ],
)
def test_a_refused_line_is_named_and_its_table_unchanged(
    inside: Namespace, text: str, said: str
) -> None:
    for family in ("4", "6"):
        done = inside.run(sys.executable, "-c", RESTORE, family, text=text)

        assert done.stdout.startswith(f"1 {said}")
    assert dump(inside) == []


def test_tables_that_are_not_used_are_not_made(inside: Namespace) -> None:
    capture(inside, "-u", "1337", "-i", "*", "--backend=libiptc")

    assert inside.run("cat", "/proc/net/ip_tables_names").stdout == "nat\n"


@hypothesis_settings(
    max_examples=15,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(argv=COMMAND_LINES, environ=ENVIRONMENTS)
@pytest.mark.parametrize("mode", ["REDIRECT", "TPROXY"])
@pytest.mark.parametrize("family", [4, 6])
def test_whatever_is_planned_reads_back_as_the_programs_read_it(
    inside: Namespace, family: Family, mode: str, argv: list[str], environ: dict[str, str]
) -> None:
    flags = parse_flags(FLAGS, [*argv, "-m", mode], environ=environ)
    planned = plan(parse_settings(flags, environ, FACTS).config, family)
    tool = "ip6tables-legacy" if family == 6 else "iptables-legacy"
    text = rules.render_plan(planned)

    done = inside.run(sys.executable, "-c", RESTORE, str(family), text=text)
    mine = parse_saved(inside.run(sys.executable, "-c", SAVE, str(family)).stdout)
    theirs = parse_saved(inside.run(f"{tool}-save").stdout)
    for table in ("mangle", "nat", "raw"):
        inside.run(tool, "-t", table, "-F")
        inside.run(tool, "-t", table, "-X")

    assert done.stdout == "0 \n"
    assert {place: list(map(normal_form, specs)) for place, specs in mine.items()} == {
        place: list(map(normal_form, specs)) for place, specs in theirs.items()
    }
