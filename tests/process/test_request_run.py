"""`agent wait -- COMMAND`, as a Job's container runs it."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.scripted_server import ScriptedServer, answer, scripted_server
from tests.waiting import block_until

ROOT = Path(__file__).parents[2]
READY, NOT_READY = answer("200 OK"), answer("503 Service Unavailable")
QUIT = b"POST /quitquitquit HTTP/1.1"


@pytest.fixture
def sidecar() -> Iterator[ScriptedServer]:
    """A status port that is ready, and takes note of what it is asked."""
    with scripted_server(READY) as server:
        yield server


def command(server: ScriptedServer, *words: str) -> list[str]:
    base = f"http://127.0.0.1:{server.port}"
    urls = [f"--url={base}/healthz/ready", f"--quit-url={base}/quitquitquit"]
    return [sys.executable, "-m", "agent", "wait", *urls, *words]


def run(
    server: ScriptedServer, *words: str, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(server, *words),
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **(environ or {})},
    )


def asked(server: ScriptedServer) -> list[bytes]:
    return [request.split(b"\r\n")[0] for request in server.requests]


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_the_code_is_the_commands_and_the_sidecar_is_ended(
    sidecar: ScriptedServer, script: str, code: int
) -> None:
    """Case D16."""
    done = run(sidecar, "--", "sh", "-c", f"echo working; {script}")

    assert done.returncode == code
    assert done.stdout.endswith("\tEnvoy is ready!\nworking\n")
    assert asked(sidecar) == [b"GET /healthz/ready HTTP/1.1", QUIT]


def test_nothing_is_run_before_envoy_is_ready() -> None:
    with scripted_server(NOT_READY, NOT_READY, READY) as server:
        done = run(server, "--periodMillis=10", "--", "sh", "-c", "echo working")

    assert done.stdout.endswith("\tEnvoy is ready!\nworking\n")
    assert len(server.requests) == 4


def test_flags_after_the_dashes_are_the_commands(sidecar: ScriptedServer) -> None:
    done = run(sidecar, "--", "echo", "--url=x", "--", "--help")

    assert done.stdout.endswith("\n--url=x -- --help\n")


def test_a_sidecar_is_left_running_on_request(sidecar: ScriptedServer) -> None:
    done = run(sidecar, "--no-quit", "--", "sh", "-c", "exit 3")

    assert done.returncode == 3
    assert asked(sidecar) == [b"GET /healthz/ready HTTP/1.1"]


def test_an_envoy_that_is_not_ready_in_time_keeps_the_command_from_running() -> None:
    with scripted_server(NOT_READY) as server:
        done = run(server, "--timeout=10ms", "--periodMillis=1", "--", "echo", "working")

    assert done.returncode == 69
    assert "working" not in done.stdout
    assert done.stderr.startswith("Error: timeout waiting for Envoy proxy to become ready.")
    assert asked(server)[-1] == QUIT


def test_a_timeout_need_not_be_fatal() -> None:
    with scripted_server(NOT_READY) as server:
        done = run(
            server, "--timeout=10ms", "--timeout-fatal=false", "--", "sh", "-c", "echo working"
        )

    assert done.returncode == 0
    assert "; going on without it\nworking\n" in done.stdout
    assert done.stderr == ""


def test_a_variable_runs_the_command_alone(sidecar: ScriptedServer) -> None:
    done = run(sidecar, "--", "sh", "-c", "exit 5", environ={"AGENT_WAIT_DISABLED": "no mesh here"})

    assert done.returncode == 5
    assert done.stdout.endswith("\tNot waiting: AGENT_WAIT_DISABLED=no mesh here\n")
    assert asked(sidecar) == []


def test_a_sidecar_that_does_not_answer_changes_no_code() -> None:
    with scripted_server(READY, answer("500 Oops")) as server:
        done = run(server, "--", "sh", "-c", "exit 4")

    assert done.returncode == 4
    assert "The sidecar was not told to end: POST http://127.0.0.1:" in done.stdout
    assert done.stdout.endswith("/quitquitquit: status 500\n")


@pytest.mark.parametrize("flags", [(), ("--no-quit",)])
def test_a_command_that_cannot_be_started_is_named(
    sidecar: ScriptedServer, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    plain = tmp_path / "plain"
    plain.touch(0o644)

    missing = run(sidecar, *flags, "--", "no-such-command")
    refused = run(sidecar, *flags, "--", str(plain))

    assert missing.returncode == 127
    assert missing.stderr == "Error: no-such-command: no such file or directory\n"
    assert refused.returncode == 126
    assert refused.stderr == f"Error: {plain}: permission denied\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on(
    sidecar: ScriptedServer, tmp_path: Path, number: signal.Signals
) -> None:
    started = tmp_path / "started"
    script = f"trap 'exit 9' {number.name[3:]}; touch {started}; while :; do sleep 0.01; done"
    with subprocess.Popen(command(sidecar, "--", "sh", "-c", script), cwd=ROOT) as child:
        block_until(started.exists)

        child.send_signal(number)

        assert child.wait(10) == 9
    assert asked(sidecar)[-1] == QUIT


def test_a_signal_before_the_command_runs_ends_the_wait() -> None:
    with (
        scripted_server(NOT_READY) as server,
        subprocess.Popen(command(server, "--", "true"), cwd=ROOT) as child,
    ):
        block_until(lambda: server.requests)

        child.send_signal(signal.SIGTERM)

        assert child.wait(10) == 143


def test_a_command_does_not_inherit_what_python_ignores(sidecar: ScriptedServer) -> None:
    done = run(sidecar, "--", "sh", "-c", "yes | head -1; kill -PIPE $$")

    assert done.returncode == 141


def test_children_left_behind_are_reaped_as_by_pid_1(sidecar: ScriptedServer) -> None:
    """The command's own end is what counts, not that of any other child."""
    adopt = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1)"
    wrapper = f"{adopt}; os.execv(sys.argv[1], sys.argv[1:])"
    argv = command(sidecar, "--", "sh", "-c", "(sh -c 'exit 1' &); sleep 0.1; exit 6")

    done = subprocess.run([sys.executable, "-c", wrapper, *argv], check=False, cwd=ROOT, timeout=30)

    assert done.returncode == 6
