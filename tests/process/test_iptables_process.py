"""Programs run at once: their input, output and end, whatever they do."""

import sys
from pathlib import Path

import pytest

from iptables.process import CANNOT_RUN, EXHAUSTED, NOT_FOUND, Command, Result, run_all

PYTHON = sys.executable.rpartition("/")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{PYTHON[0]}:/bin:/usr/bin")


def python(code: str, text: str = "") -> Command:
    return Command((PYTHON[2], "-IS", "-c", code), text)


def test_each_result_is_of_its_command() -> None:
    results = run_all(
        [python(f"print({number}); raise SystemExit({number})") for number in range(5)]
    )

    assert [(result.status, result.out) for result in results] == [
        (number, f"{number}\n") for number in range(5)
    ]


def test_nothing_to_run_is_no_result() -> None:
    assert run_all([]) == []


def test_more_than_a_pipe_holds_goes_in_and_comes_out_of_both_ends() -> None:
    text = "0123456789" * 100_000
    echo = "import sys; t = sys.stdin.read(); sys.stderr.write(t); sys.stdout.write(t)"

    results = run_all([python(echo, text), python(echo, text)])

    assert all(result == (0, text, text) for result in results)


def test_a_program_need_not_read_its_input() -> None:
    (result,) = run_all([python("raise SystemExit(3)", "x" * 1_000_000)])

    assert result.status == 3


def test_what_is_no_text_comes_out_all_the_same() -> None:
    (result,) = run_all([python("import sys; sys.stdout.buffer.write(b'\\xff')")])

    assert result.out == "\N{REPLACEMENT CHARACTER}"


def test_a_missing_program_does_not_keep_the_others_from_running() -> None:
    missing, there = run_all([Command(("no-such-tool",)), python("print(1)")])

    assert missing == (NOT_FOUND, "", "not found in PATH")
    assert there.out == "1\n"


def test_a_file_that_cannot_be_run_is_an_end_with_its_reason(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path_factory.mktemp("tools")
    broken = directory / "broken-tool"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}")

    (result,) = run_all([Command(("broken-tool",))])

    assert result == (CANNOT_RUN, "", "cannot be run: No such file or directory")


@pytest.mark.parametrize("files", range(3, 9))
def test_a_program_that_cannot_be_run_now_could_be_at_another_time(files: int) -> None:
    """Whichever of its pipes cannot be made."""
    code = (
        f"import sys; sys.path.insert(0, '{ROOT}')\n"
        "import resource; from iptables.process import *\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))\n"
        "print(run_all([Command(('true',))]))\n"
    )

    (result,) = run_all([python(code)])

    assert result.out == f"[{Result(EXHAUSTED, '', 'cannot be run: Too many open files')}]\n"


def test_a_program_that_does_not_end_is_killed() -> None:
    (stuck,) = run_all([Command(("sleep", "600"))], timeout_seconds=0.05)

    assert stuck.status == -9
    assert "killed" in stuck.err


def test_without_path_the_usual_directories_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")

    (result,) = run_all([Command(("true",))])

    assert result.status == 0
