"""A run that is killed leaves each table as it was or as it is to be, and never a guardrail.

The kernel changes one table of one family at a time: that is the step that is whole or not at all.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns.namespaces import NSENTER, ROOT, Namespace, namespace

pytestmark = [pytest.mark.root, pytest.mark.slow]

#: Kills itself and the tools it has started at the given line of ours that is run from `apply` on;
#: at none of them it prints how many there are.
DRIVER = """
import os, signal, sys
from iptables.cli import main
limit, seen = int(sys.argv[1]), 0
def trace(frame, event, argument):
    global seen
    if "/iptables/" not in frame.f_code.co_filename:
        return None
    is_begun = seen or (frame.f_code.co_name == "apply" and "run.py" in frame.f_code.co_filename)
    if is_begun:
        seen += 1
        if seen == limit:
            os.kill(0, signal.SIGKILL)
    return trace
sys.settrace(trace)
status = main([*sys.argv[2:], "--log_target=stderr"], os.environ)
sys.settrace(None)
print(seen)
sys.exit(status)
"""
#: Runs the real tool and kills the whole process group after a while, be it done or not.
SHIM = """#!/bin/sh
{tool} "$@" <&0 &
sleep {seconds}
kill -9 0
"""
TABLES = ("filter", "mangle", "nat", "raw")
FAMILIES = ("iptables", "ip6tables")
USUAL = ("-u", "1337", "-i", "*", "-b", "*", "--dual-stack")
OLD = (*USUAL, "--redirect-dns", "--capture-all-dns", "--drop-invalid")
NEW = (*USUAL, "-d", "15020", "-x", "10.0.0.0/8", "--reconcile")
KILLED = -9

#: For each table of each family its chains and rules.
State = dict[tuple[str, str], list[str]]


class Victim:
    """A namespace captured in one way, to be captured in another."""

    def __init__(self, inside: Namespace, variant: str) -> None:
        self.inside = inside
        self.variant = variant
        self.run(0, *NEW)
        self.new = self.state()
        self.run(0, *NEW, "--cleanup-only")
        self.run(0, *OLD)
        self.old = self.state()
        self.saved = {family: self._tool(family, "-save") for family in FAMILIES}

    def _tool(self, family: str, purpose: str, *argv: str, text: str = "") -> str:
        return self.inside.run(f"{family}-{self.variant}{purpose}", *argv, text=text).stdout

    def reset(self) -> None:
        """Bring the old rules back."""
        for family in FAMILIES:
            self._tool(family, "-restore", text=self.saved[family])

    def state(self) -> State:
        found: State = {}
        for family in FAMILIES:
            table = ""
            for line in self._tool(family, "-save").splitlines():
                if line.startswith("*"):
                    table = line[1:]
                elif line.startswith(("-A", ":ISTIO")):
                    found.setdefault((family, table), []).append(line.split(" [")[0])
        return found

    def run(self, line: int, *argv: str, path: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command, killed at a line of ours; at 0 it is not."""
        return subprocess.run(
            [
                *(NSENTER, f"--net={self.inside.path}", sys.executable, "-c", DRIVER, str(line)),
                *(*argv, f"--force-iptables-binary={self.variant}"),
            ],
            capture_output=True,
            text=True,
            check=not line and not path,
            cwd=ROOT,
            env={"PATH": f"{path}:{os.environ['PATH']}"},
            start_new_session=True,
        )

    def check(self) -> str:
        """Check what a killed run has left, and that the next one completes it; return which."""
        left = self.state()
        for family in FAMILIES:
            for table in TABLES:
                place = (family, table)
                states = (self.old.get(place), self.new.get(place))
                assert left.get(place) in states, (place, left.get(place))
        self.run(0, *NEW)
        assert self.state() == self.new
        return "old" if left == self.old else "new" if left == self.new else "between"


@pytest.fixture(params=["nft", "legacy"])
def victim(request: pytest.FixtureRequest) -> Iterator[Victim]:
    with namespace("240.240.240.240/32", "2001:db8::7/128") as made:
        yield Victim(made, request.param)


def test_a_kill_at_any_line_leaves_the_old_or_the_new_table(victim: Victim) -> None:
    points = 40 if victim.variant == "nft" else 30
    total = int(victim.run(0, *NEW).stdout)

    seen = set()
    for number in range(points):
        victim.reset()
        done = victim.run(1 + number * total // points, *NEW)
        assert done.returncode == KILLED, done.stderr
        seen.add(victim.check())

    assert {"old", "new"} <= seen


def test_a_kill_while_a_tool_runs_leaves_the_old_or_the_new_table(
    victim: Victim, tmp_path: Path
) -> None:
    delays = [number / 1000 for number in range(0, 12, 1 if victim.variant == "nft" else 2)]

    seen = set()
    for family in FAMILIES:
        name = f"{family}-{victim.variant}-restore"
        tool = shutil.which(name)
        assert tool
        for seconds in delays:
            victim.reset()
            (tmp_path / name).write_text(SHIM.format(tool=tool, seconds=seconds))
            (tmp_path / name).chmod(0o755)
            done = victim.run(0, *NEW, path=str(tmp_path))
            assert done.returncode == KILLED, done.stderr
            seen.add(victim.check())
        (tmp_path / name).unlink()

    assert "old" in seen
    assert seen & {"new", "between"}
