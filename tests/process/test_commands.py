"""The program itself, as a shell starts it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.__main__ import COMMANDS

ROOT = Path(__file__).parents[2]


def agent(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        cwd=ROOT,
    )


@pytest.mark.parametrize("words", [(), ("-h",), ("--help",), ("help",), ("--old-flag", "--x=y")])
def test_the_root_command_lists_all_commands(words: tuple[str, ...]) -> None:
    done = agent(*words)

    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)
    assert done.stderr == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    done = agent(name, "--help")

    assert done.returncode == 0
    assert "Usage:" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stderr == ""


def test_help_of_a_command_is_that_commands_help() -> None:
    assert agent("help", "wait").stdout == agent("wait", "--help").stdout


def test_an_unknown_command_says_where_help_is() -> None:
    done = agent("dance")

    assert done.returncode == 255
    assert "unknown command 'dance'" in done.stderr
    assert "--help' for usage." in done.stderr


def test_flags_may_stand_before_the_command() -> None:
    assert json.loads(agent("--log_target", "stderr", "version", "-o", "json").stdout)


def test_both_names_are_one_program() -> None:
    scripts = Path(sys.executable).parent

    outputs = {
        subprocess.run(  # not by its first line, which cannot hold a path with a space
            [sys.executable, scripts / name, "version"],
            check=True,
            capture_output=True,
            timeout=30,
        ).stdout
        for name in ("agent", "pilot-agent")
    }

    assert len(outputs) == 1


def redirected(
    streams: str, *words: str, stdout: int = subprocess.PIPE, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a command by a shell that closes or redirects streams."""
    command = f'exec "$@" {streams}'
    return subprocess.run(
        ["sh", "-c", command, "sh", sys.executable, "-m", "agent", *words],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environ},
    )


@pytest.mark.parametrize("streams", [">&-", "<&- >&- 2>&-", "2>&-"])
def test_without_standard_streams_a_command_does_what_it_does(streams: str) -> None:
    done = redirected(streams, "version")

    assert (done.returncode, done.stderr) == (0, "")


#: Each prints in a way of its own, and needs no pod.
PRINTING = (
    ("version", "-o", "json"),
    ("help", "proxy"),
    ("xds", "--help"),
    ("demo", "--help"),
    ("inject", "-f", "deploy/injector.yaml"),
    ("istio-iptables", "-b", "*", "--dry-run"),
)


@pytest.mark.parametrize("words", PRINTING)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_there_is_no_room_for_is_an_error_of_one_line(
    words: tuple[str, ...], unbuffered: str
) -> None:
    done = redirected(">/dev/full", *words, PYTHONUNBUFFERED=unbuffered)

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "Error: standard output: no space left on device"
    assert done.stderr.count("Error") == 1


@pytest.mark.parametrize("words", PRINTING)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads_ends_a_command_in_silence(
    words: tuple[str, ...], unbuffered: str
) -> None:
    reader, writer = os.pipe()
    os.close(reader)

    done = redirected("", *words, stdout=writer, PYTHONUNBUFFERED=unbuffered)

    os.close(writer)
    assert "Error" not in done.stderr
    assert done.returncode in (0, 1)


def test_version_refuses_an_unknown_format() -> None:
    done = agent("version", "--output", "xml")

    assert done.returncode == 255
    assert done.stderr == "Error: --output must be 'yaml' or 'json'\n"


def completed(directory: Path, *words: str) -> set[str]:
    """Return what bash would put in the last word's place."""
    program = directory / "agent"
    program.write_text(f'#!/bin/sh\ncd "{ROOT}" && exec "{sys.executable}" -m agent "$@"\n')
    program.chmod(0o755)
    ask = 'source <("$1" completion bash); shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
    done = subprocess.run(
        ["bash", "-c", f'{ask} _mesh_agent; echo "${{COMPREPLY[@]}}"', "bash", program, *words],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
        env={"PATH": f"{directory}:{os.environ['PATH']}"},
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes_commands_and_their_flags(tmp_path: Path) -> None:
    assert completed(tmp_path, "agent", "") == set(COMMANDS)
    assert completed(tmp_path, "agent", "istio-i") == {"istio-iptables"}
    assert completed(tmp_path, "agent", "help", "pro") == {"proxy"}
    assert completed(tmp_path, "agent", "wait", "--time") == {
        "--timeout",
        "--timeoutSeconds",
        "--timeout-fatal",
    }
    assert completed(tmp_path, "agent", "xds", "") == {"get", "status", "watch"}
    assert "--timeout" in completed(tmp_path, "agent", "xds", "get", "--")
    assert completed(tmp_path, "agent", "dns", "") == {"lookup"}
    assert completed(tmp_path, "agent", "completion", "z") == {"zsh"}
    assert "--envoy-port" in completed(tmp_path, "agent", "istio-iptables", "-")
    assert completed(tmp_path, "agent", "proxy", "sidecar") == set()


def test_completion_is_for_shells_that_it_knows() -> None:
    done = agent("completion", "fish")

    assert done.returncode == 255
    assert done.stderr == "Error: completion fish: expected bash or zsh\n"
