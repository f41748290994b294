"""Envoy as a process: whose it is, as whom it runs, and what it needs of the system."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agent.errors import EnvoyError, SystemRefusedError
from agent.lifecycle.process import check_ports, spawn
from tests.fakes.supervised import FAKE

ROOT = Path(__file__).parents[2]


def test_orphans_are_reaped_and_children_left_to_their_owners() -> None:
    """A child that is dead for the first time may be waited for by whoever started it."""
    script = """
import ctypes, os
from agent.lifecycle.process import Orphans
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER, as pid 1 is one
read_end, write_end = os.pipe()
if (parent := os.fork()) == 0:
    if (orphan := os.fork()) == 0:
        os._exit(0)
    os.write(write_end, str(orphan).encode())
    os._exit(0)
os.waitpid(parent, 0)
orphan = int(os.read(read_end, 100))
os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
orphans = Orphans()
print(orphans.reap())
if (own := os.fork()) == 0:
    os._exit(7)
os.waitid(os.P_PID, own, os.WEXITED | os.WNOWAIT)
print(orphans.reap())
print(os.waitpid(own, 0)[1] >> 8, orphans.reap())
try:
    os.waitpid(orphan, 0)
except ChildProcessError:
    print("reaped")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=30
    )

    assert done.stdout.splitlines() == ["True", "True", "7 False", "reaped"]


def test_an_envoy_dies_with_whoever_started_it(tmp_path: Path) -> None:
    """Case D26."""
    (tmp_path / "behaviour.json").write_text('{"on_term": null}')
    script = (
        "import os, sys, time; from agent.lifecycle.process import spawn;"
        f"spawn(sys.executable, [{str(FAKE)!r}, {str(tmp_path)!r}], os.environ);"
        f"\nwhile not os.path.exists({str(tmp_path / 'port')!r}): time.sleep(0.005)"
        "\nos.kill(os.getpid(), 9)"
    )
    read_end, write_end = os.pipe()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", script],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, write_end, 1)],
    )
    os.close(write_end)

    os.waitpid(child, 0)

    # Both held our pipe as their stdout: its end means that both are gone.
    assert os.read(read_end, 1) == b""
    os.close(read_end)


#: Stands for setpriv where the agent dies before it has done its work: it waits for that, and then
#: goes on with what stands behind its own arguments.
LATE = """#!/bin/sh
agent=$PPID
while [ "$1" != -- ]; do shift; done
shift
touch here
while kill -0 "$agent"; do :; done 2>/dev/null
exec "$@"
"""


def test_an_envoy_whose_agent_died_before_the_two_were_tied_does_not_start(tmp_path: Path) -> None:
    """Case D26."""
    setpriv = tmp_path / "setpriv"
    setpriv.write_text(LATE)
    setpriv.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    script = (
        "import os, sys; from agent.lifecycle.process import spawn;"
        f"spawn('/bin/touch', ['started'], {{'PATH': {path!r}}});"
        "\nwhile not os.path.exists('here'): pass"
        "\nos.kill(os.getpid(), 9)"
    )

    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as child:
        child.wait(30)
        assert child.stdout
        # All of them hold the pipe of the output, whose end means that all are gone.
        assert child.stdout.read() == b""

    assert (tmp_path / "here").exists()
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    "odd", [{"app.kubernetes.io/name": "a"}, {"IFS": "x"}, {"LINES": "two\nlines"}]
)
def test_envoy_has_every_variable(odd: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    environ = {"PATH": os.environ["PATH"], **odd}

    assert spawn("/usr/bin/env", ["-0"], environ).reap() == 0

    pairs = (line.split("=", 1) for line in capfd.readouterr().out.split("\0") if line)
    assert {name: value for name, value in pairs if name not in ("PWD", "SHLVL", "_")} == environ


def test_a_signal_to_the_agents_process_group_does_not_reach_envoy() -> None:
    envoy = spawn("/bin/sleep", ["60"], os.environ)
    try:
        assert os.getpgid(envoy.pid) == envoy.pid
    finally:
        envoy.send(signal.SIGKILL)
        envoy.reap()


@pytest.mark.root
def test_an_envoy_may_run_as_another_user() -> None:
    with tempfile.TemporaryDirectory() as name:
        seen = Path(name, "seen")
        seen.touch()
        os.chown(name, 1337, 1337)
        os.chown(seen, 1337, 1337)

        envoy = spawn(
            "/bin/sh", ["-c", f"id -u >{seen}; id -G >>{seen}"], os.environ, user=(1337, 1337)
        )

        assert envoy.reap() == 0
        assert seen.read_text() == "1337\n1337\n"


@pytest.mark.parametrize("mode", [None, 0o644])
def test_an_envoy_that_cannot_be_run_is_named(tmp_path: Path, mode: int | None) -> None:
    binary = tmp_path / "envoy"
    if mode is not None:
        binary.touch(mode)

    with pytest.raises(EnvoyError, match=str(binary)):
        spawn(str(binary), [], os.environ)


def test_a_missing_tool_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvoyError, match="setpriv not found in PATH; install util-linux"):
        spawn(sys.executable, [], {"PATH": str(tmp_path)})


def listening() -> tuple[socket.socket, int]:
    """Return a server on all addresses, and its port: with nothing else on any of them.

    A port that is free on one address may have a connection in TIME_WAIT on another.
    """
    server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return server, server.getsockname()[1]


def test_ports_that_are_taken_are_named_together() -> None:
    (first, inbound), (second, status) = listening(), listening()
    with first, second, pytest.raises(SystemRefusedError) as caught:
        check_ports({inbound: "inbound capture", status: "status"}, ipv6=True, patience_seconds=0)

    assert f"port {inbound} (inbound capture), {status} (status) is in use" in str(caught.value)
    check_ports({inbound: "inbound capture"}, ipv6=True)


async def test_a_port_that_is_about_to_be_free_is_waited_for() -> None:
    """The Envoy of an agent that was killed may be dying still."""
    server, port = listening()
    checking = asyncio.create_task(asyncio.to_thread(check_ports, {port: "admin"}, ipv6=False))
    await asyncio.sleep(0)

    server.close()

    await checking
