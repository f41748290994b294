"""Runs at the same time, and locks that somebody else holds."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from iptables.lock.client import NAME
from tests.netns.namespaces import NSENTER, ROOT, Namespace, namespace
from tests.netns.pods import become, running
from tests.waiting import block_until

pytestmark = [pytest.mark.root, pytest.mark.slow]

CAPTURE = (
    "-u", "1337", "-i", "*", "-b", "*", "--dual-stack", "--redirect-dns", "--capture-all-dns"
)  # fmt: skip
TOOLS = ("iptables-legacy", "iptables-nft", "ip6tables-legacy", "ip6tables-nft")
#: Holds the command's own lock, as a run that does not end.
HOLD = """
import sys
from iptables.lock import client
from iptables.log import Log
with client.held(Log()):
    print("ready", flush=True)
    sys.stdin.read()
"""
#: The same by a user who may not be able to read this clone.
STRANGER: Final = f"""
import socket, sys
with socket.socket(socket.AF_UNIX) as lock:
    lock.bind({NAME!r})
    lock.listen()
    print("ready", flush=True)
    sys.stdin.read()
"""
WAIT = """
import sys
from iptables.errors import CaptureError
from iptables.lock import client
from iptables.log import Log
try:
    with client.held(Log("none"), wait_seconds=0.2):
        print("held")
except CaptureError as error:
    print(error)
"""


def start(inside: Namespace, *argv: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [NSENTER, f"--net={inside.path}", sys.executable, "-m", "iptables", *argv],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environ},
    )


def dump(inside: Namespace) -> Mapping[str, list[str]]:
    return {
        tool: [
            line
            for line in inside.run(f"{tool}-save").stdout.splitlines()
            if line.startswith(("-A", ":ISTIO"))
        ]
        for tool in TOOLS
    }


@pytest.mark.parametrize(
    "backend", ["--force-iptables-binary=nft", "--force-iptables-binary=legacy"]
)
def test_runs_at_the_same_time_all_succeed_with_one_result(inside: Namespace, backend: str) -> None:
    argv = (*CAPTURE, backend)
    runs = [start(inside, *argv) for _ in range(4)]

    logs = [run.communicate()[0] for run in runs]

    assert [run.returncode for run in runs] == [0] * 4, logs
    assert sum("Running iptables restore" in log for log in logs) == 1
    together = dump(inside)
    with namespace("240.240.240.240/32", "2001:db8::7/128") as alone:
        start(alone, *argv).communicate()
        assert together == dump(alone)


def test_applying_and_cleaning_up_at_the_same_time_end_with_all_or_nothing(
    inside: Namespace,
) -> None:
    runs = [start(inside, *CAPTURE), start(inside, *CAPTURE, "--cleanup-only")]

    logs = [run.communicate()[0] for run in runs]

    assert [run.returncode for run in runs] == [0, 0], logs
    left = dump(inside)
    assert bool(left["iptables-nft"]) == bool(left["ip6tables-nft"])


@pytest.mark.parametrize("backend", ["--force-iptables-binary=nft", "--native-nftables"])
def test_an_address_that_goes_while_a_run_waits_is_added_again(
    inside: Namespace, backend: str
) -> None:
    inside.python("from iptables import client; client.add_passthrough_address()")
    with running(inside, HOLD):
        waiting = start(inside, *CAPTURE, backend)
        assert waiting.stdout
        assert any("waiting for process" in line for line in waiting.stdout)
        inside.python("from iptables import client; client.remove_passthrough_address()")
    log = waiting.communicate()[0]

    assert waiting.returncode == 0
    assert "Added ::6 address" in log


def test_runs_on_native_nftables_at_the_same_time_succeed_too(inside: Namespace) -> None:
    runs = [start(inside, *CAPTURE, "--native-nftables") for _ in range(4)]

    logs = [run.communicate()[0] for run in runs]

    assert [run.returncode for run in runs] == [0] * 4, logs
    assert sum("new are needed" in log for log in logs) == 1


#: Takes the name of the lock, and does nothing with it.
SQUAT = """
import socket, sys
from iptables.lock import client
squatter = socket.socket(socket.AF_UNIX)
squatter.bind(client.NAME)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_name_that_is_taken_without_use_is_given_up_on(inside: Namespace) -> None:
    with running(inside, SQUAT):
        printed = inside.run(sys.executable, "-c", WAIT).stdout

    assert printed.endswith("does not end: a process that does not listen\n")


def test_a_run_that_does_not_end_is_named(inside: Namespace) -> None:
    with running(inside, HOLD):
        printed = inside.run(sys.executable, "-c", WAIT).stdout

    assert "another run changes the rules of this network namespace and does not end" in printed
    assert "import sys" in printed  # what it runs
    assert inside.run(sys.executable, "-c", WAIT).stdout == "held\n"


def test_a_lock_held_by_a_user_without_rights_holds_nobody_up(inside: Namespace) -> None:
    with running(inside, STRANGER, wrapper=become(5000, 5000)):
        log = start(inside, *CAPTURE).communicate()[0]

    assert "of user 5000: ignored" in log
    assert "Final iptables state" in log


#: Keeps its input until it is let go, then runs the real tool on it.
SLOW = """#!/bin/sh
cat > {here}/input
cat {here}/gate
exec {real} "$@" < {here}/input
"""


def test_a_change_that_outlives_its_command_is_waited_for(
    inside: Namespace, tmp_path: Path
) -> None:
    real = shutil.which("iptables-nft-restore")
    slow = tmp_path / "iptables-nft-restore"
    slow.write_text(SLOW.format(here=tmp_path, real=real))
    slow.chmod(0o755)
    os.mkfifo(tmp_path / "gate")
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    argv = (*CAPTURE, "--force-iptables-binary=nft")

    killed = start(inside, *argv, PATH=f"{tmp_path}:{path}")
    with (tmp_path / "gate").open("w") as gate:  # once the tool waits
        killed.kill()
        killed.wait()
        after = start(inside, *argv)
        assert after.stdout
        waiting = next(line for line in after.stdout if "waiting for process" in line)
        assert not any(dump(inside).values())
        gate.write("\n")
    log = after.communicate()[0]
    assert killed.communicate()[0]

    assert f"waiting for process {killed.pid} " in waiting
    assert after.returncode == 0
    assert "reconciliation not needed" in log
    assert dump(inside)["ip6tables-nft"]


def test_the_lock_is_another_in_another_namespace(inside: Namespace) -> None:
    with running(inside, HOLD), namespace() as other:
        assert other.run(sys.executable, "-c", WAIT).stdout == "held\n"


def test_the_lock_of_the_legacy_tools_is_waited_for(inside: Namespace, tmp_path: Path) -> None:
    """Case I10."""
    lock = tmp_path / "xtables.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        argv = (*CAPTURE, "--force-iptables-binary=legacy")
        run = start(inside, *argv, XTABLES_LOCKFILE=str(lock))
        waits = f":{lock.stat().st_ino} "
        block_until(
            lambda: any(
                waits in line and "->" in line
                for line in Path("/proc/locks").read_text().splitlines()
            )
        )
        assert not any(dump(inside).values())

    run.communicate()
    assert run.returncode == 0
    assert dump(inside)["iptables-legacy"]


def test_who_holds_the_lock_of_the_legacy_tools_is_said(inside: Namespace, tmp_path: Path) -> None:
    """Case I10."""
    lock = tmp_path / "xtables.lock"
    for tool in ("iptables-legacy-restore", "ip6tables-legacy-restore"):
        said = "Another app is currently holding the xtables lock"
        (tmp_path / tool).write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 4\n")
        (tmp_path / tool).chmod(0o755)
    path = f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        run = start(
            inside, *CAPTURE, "--force-iptables-binary=legacy",
            PATH=path, XTABLES_LOCKFILE=str(lock),
        )  # fmt: skip
        log = run.communicate()[0]

    assert run.returncode == 1
    (error,) = [line for line in log.splitlines() if "\terror\t" in line]
    assert f"{lock} is held by process " in error
    assert "pytest" in error
