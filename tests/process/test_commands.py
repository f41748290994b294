"""The program itself, as a shell starts it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.__main__ import COMMANDS


def agent(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        cwd=Path(__file__).parents[2],
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
        subprocess.run(
            [scripts / name, "version"], check=True, capture_output=True, timeout=30
        ).stdout
        for name in ("agent", "pilot-agent")
    }

    assert len(outputs) == 1


def test_version_refuses_an_unknown_format() -> None:
    done = agent("version", "--output", "xml")

    assert done.returncode == 255
    assert done.stderr == "Error: --output must be 'yaml' or 'json'\n"
