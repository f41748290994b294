"""A run that is killed leaves the rules as they were or as they are to be, never a mixture.

The kernel changes one table of one family at a time. What is between the first of them and the last
is done in a process that a kill of the command, or of its process group, does not reach. There are
no guardrails that could survive: no rule of table filter is ever changed.

Source: traffic-capture.md section 17.5.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.netns.namespaces import NSENTER, ROOT, Namespace, namespace

pytestmark = [pytest.mark.root, pytest.mark.slow]

#: Kills itself or its process group, or the process that changes the rules with its tools, at the
#: given line of ours that any of these processes runs from the change on. Without a line it prints
#: how many there are until the change is made. Counts in memory that both processes share.
DRIVER = """
import mmap, os, signal, sys
from iptables.cli import main
whom, limit = sys.argv[1], int(sys.argv[2])
lines = memoryview(mmap.mmap(-1, 16)).cast("Q")
agent = os.getpid()
os.environ["AGENT"] = str(agent)
def trace(frame, event, argument):
    if "/iptables/" not in frame.f_code.co_filename:
        return None
    is_change = frame.f_code.co_name == "see_through"
    if lines[0] or is_change:
        lines[0] += 1
        if lines[0] == limit:
            targets = {"agent": agent, "group": -agent, "changer": 0}
            os.kill(targets[whom], signal.SIGKILL)
    if is_change and event == "return":
        lines[1] = lines[0]
    return trace
sys.settrace(trace)
status = main([*sys.argv[3:], "--log_target=stderr"], os.environ)
sys.settrace(None)
print(lines[1])
sys.exit(status)
"""
#: Runs the real tool, and after a while kills the command's process group. What a shell runs in the
#: background has no standard input unless it is kept for it.
SHIM = """#!/bin/sh
exec 3<&0
{tool} "$@" <&3 &
sleep {seconds}
kill -9 -$AGENT
wait $!
"""
TABLES = ("filter", "mangle", "nat", "raw")
FAMILIES = ("iptables", "ip6tables")
USUAL = ("-u", "1337", "-i", "*", "-b", "*", "--dual-stack")
TPROXY = (*USUAL, "-m", "TPROXY")
DNS = (*USUAL, "--redirect-dns", "--capture-all-dns", "--drop-invalid")
RANGES = (*USUAL, "-d", "15020", "-x", "10.0.0.0/8", "--reconcile")
NFT, LEGACY = "--force-iptables-binary=nft", "--force-iptables-binary=legacy"
NATIVE = "--native-nftables"
KILLED = -9


class Way(NamedTuple):
    """From which configuration to which the rules change; none for no rules."""

    old: Sequence[str]
    new: Sequence[str]
    points: int  #: at how many lines to kill the command
    variant: str = "nft"


WAYS = {
    "nft": Way((*DNS, NFT), (*RANGES, NFT), 15),
    "legacy": Way((*DNS, LEGACY), (*RANGES, LEGACY), 30, "legacy"),
    "libiptc": Way((*DNS, LEGACY), (*RANGES, "--backend=libiptc"), 20, "legacy"),
    "nothing to nft": Way((), (*DNS, NFT), 10),
    "nft to nothing": Way((*DNS, NFT), (*DNS, NFT, "--cleanup-only"), 8),
    "nft to native": Way((*DNS, NFT), (*RANGES, NATIVE), 6),
    "native to nft": Way((*DNS, NATIVE), (*RANGES, NFT), 6),
    "native": Way((*USUAL, NATIVE), (*TPROXY, NATIVE), 6),
}

#: For each table of each family its chains and rules; our tables of nftables; policy rules.
State = dict[tuple[str, str], list[str]]


class Victim:
    """A namespace captured in one way, to be captured in another."""

    def __init__(self, inside: Namespace, way: Way) -> None:
        self.inside = inside
        self.way = way
        if way.old:
            inside.capture(*way.old)
        self.old = self.state()
        self.saved = {family: self._tool(family, "-save") for family in FAMILIES}
        self.native = self._native() if NATIVE in (*way.old, *way.new) else ""
        self.lines = int(self.run("nobody", 0).stdout)
        self.new = self.state()
        assert self.old != self.new

    def _tool(self, family: str, purpose: str, text: str = "") -> str:
        return self.inside.run(f"{family}-{self.way.variant}{purpose}", text=text).stdout

    def _native(self) -> str:
        names = [f"istio-proxy-{table}" for table in TABLES[1:]]
        listed = [
            self.inside.run("nft", "-s", "list", "table", "inet", name, check=False).stdout
            for name in names
        ]
        return "".join(listed)

    def reset(self) -> None:
        """Bring the old rules back."""
        for family, saved in self.saved.items():
            emptied = "".join(f"*{table}\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n" for table in TABLES)
            self._tool(family, "-restore", text=emptied + saved)
        if NATIVE not in (*self.way.old, *self.way.new):
            return
        if self.inside.policies():  # they go with the rules that they are for
            tproxy = (sys.executable, "-m", "iptables", *TPROXY, NATIVE)
            self.inside.run(*tproxy)
            self.inside.run(*tproxy, "--cleanup-only")
        tables = [f"inet istio-proxy-{table}" for table in TABLES[1:]]
        gone = "".join(f"add table {table}\ndelete table {table}\n" for table in tables)
        self.inside.run("nft", "-f", "-", text=gone + self.native)

    def state(self) -> State:
        found: State = {("nftables", ""): self._native().splitlines()}
        found["policies", ""] = [f"{mark} {table}" for mark, table in self.inside.policies()]
        for family in FAMILIES:
            table = ""
            for line in self._tool(family, "-save").splitlines():
                if line.startswith("*"):
                    table = line[1:]
                elif line.startswith(("-A", ":ISTIO")):
                    found.setdefault((family, table), []).append(line.split(" [")[0])
        return found

    def run(self, whom: str, line: int, path: str = "") -> subprocess.CompletedProcess[str]:
        """Change the rules, killed at a line; return once whatever survives has ended.

        That is when nothing holds its output any more.
        """
        return subprocess.run(
            [
                *(NSENTER, f"--net={self.inside.path}", sys.executable, "-c", DRIVER),
                *(whom, str(line), *self.way.new),
            ],
            capture_output=True,
            text=True,
            check=not line and not path,
            cwd=ROOT,
            env={"PATH": f"{path}:{os.environ['PATH']}"},
            start_new_session=True,
        )


@pytest.fixture
def victim(request: pytest.FixtureRequest) -> Iterator[Victim]:
    with namespace("240.240.240.240/32", "2001:db8::7/128") as made:
        yield Victim(made, WAYS[request.param])


@pytest.mark.parametrize("victim", WAYS, indirect=True)
def test_a_kill_of_the_command_at_any_line_leaves_the_old_or_the_new_rules(victim: Victim) -> None:
    step = victim.lines // victim.way.points

    seen: list[bool] = []
    for line in range(1, victim.lines + step, step):
        victim.reset()
        whom = ("agent", "group")[len(seen) % 2]
        done = victim.run(whom, line)
        assert done.returncode == KILLED, done.stderr
        left = victim.state()
        assert left in (victim.old, victim.new), (whom, line)
        seen.append(left == victim.new)

    assert len(seen) >= victim.way.points
    assert not seen[0]  # nothing was begun
    assert seen[-1]


@pytest.mark.parametrize("victim", ["nft", "legacy"], indirect=True)
def test_a_kill_while_a_tool_runs_leaves_the_new_rules(victim: Victim, tmp_path: Path) -> None:
    for family in FAMILIES:
        name = f"{family}-{victim.way.variant}-restore"
        tool = shutil.which(name)
        assert tool
        for milliseconds in (0, 2, 5):
            victim.reset()
            seconds = milliseconds / 1000
            (tmp_path / name).write_text(SHIM.format(tool=tool, seconds=seconds))
            (tmp_path / name).chmod(0o755)
            done = victim.run("nobody", 0, path=str(tmp_path))
            assert done.returncode == KILLED, done.stderr
            assert victim.state() == victim.new, done.stderr[-1500:]
        (tmp_path / name).unlink()


@pytest.mark.parametrize("victim", ["nft", "libiptc"], indirect=True)
def test_what_a_killed_change_leaves_is_completed_by_the_next_run(victim: Victim) -> None:
    """Each table is old or new even then."""
    step = victim.lines // 7
    for line in range(step, victim.lines, step):
        victim.reset()
        done = victim.run("changer", line)
        assert done.returncode in (1, KILLED), done.stderr
        left = victim.state()
        for place in {*left, *victim.old, *victim.new}:
            assert left.get(place) in (victim.old.get(place), victim.new.get(place)), place

        victim.run("nobody", 0)

        assert victim.state() == victim.new
