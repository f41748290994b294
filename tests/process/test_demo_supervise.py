"""The demo's worker ends when asked, at any moment, and its supervisor cleans up in peace."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.demo.process import first_gone
from tests.waiting import block_until

WORKER = """
import os, signal, sys
from agent.demo.process import block_signals, supervise, wait_for_stop

def work():
    print(os.getpid(), flush=True)
    {work}
    return 7

block_signals()
code = supervise(work)
print("cleaned up", flush=True)
sys.exit(code)
"""


@contextmanager
def supervised(work: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a supervisor whose worker executes a line of Python."""
    with subprocess.Popen(
        [sys.executable, "-c", WORKER.format(work=work)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def worker_id(running: subprocess.Popen[bytes]) -> int:
    assert running.stdout
    return int(running.stdout.readline())


def test_the_workers_code_is_the_supervisors() -> None:
    with supervised("pass") as running:
        output, _ = running.communicate(timeout=20)

    assert running.returncode == 7
    assert output.endswith(b"cleaned up\n")


def test_an_error_of_the_worker_is_shown_once_and_cleaned_up_after() -> None:
    with supervised("1 / 0") as running:
        output, errors = running.communicate(timeout=20)

    assert running.returncode == 1
    assert errors.count(b"ZeroDivisionError") == 1
    assert output.endswith(b"cleaned up\n")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_worker_wherever_it_is(number: signal.Signals, code: int) -> None:
    with supervised("input()") as running:
        worker = worker_id(running)

        running.send_signal(number)

        assert running.wait(20) == code
        assert running.stdout
        assert running.stdout.read() == b"cleaned up\n"
    assert first_gone([worker], 0) == worker


def test_a_worker_that_waits_for_it_ends_by_itself() -> None:
    with supervised("block_signals(); print(flush=True); wait_for_stop()") as running:
        worker_id(running)
        assert running.stdout
        running.stdout.readline()

        running.send_signal(signal.SIGINT)

        assert running.wait(20) == 7


def test_a_worker_killed_by_another_is_told() -> None:
    with supervised("os.kill(os.getpid(), signal.SIGKILL)") as running:
        assert running.wait(20) == 128 + signal.SIGKILL


def test_a_stopped_worker_can_be_ended() -> None:
    with supervised("os.kill(os.getpid(), signal.SIGSTOP)") as running:
        worker = worker_id(running)
        block_until(lambda: " T " in Path(f"/proc/{worker}/stat").read_text())

        running.terminate()

        assert running.wait(20) == 143


def test_a_worker_does_not_outlive_its_supervisor() -> None:
    with supervised("input()") as running:
        worker = worker_id(running)

        running.kill()

        assert first_gone([worker], 10) == worker


@pytest.mark.parametrize("end", ["pass", "input()"])
def test_what_the_worker_started_is_killed_and_reaped(end: str) -> None:
    start = (
        "import subprocess; print(subprocess.Popen(['sh', '-c', 'sleep 60; true']).pid, flush=True)"
    )
    with supervised(f"{start}; {end}") as running:
        worker_id(running)
        started = worker_id(running)

        if end != "pass":
            running.terminate()

        assert running.wait(20) == (7 if end == "pass" else 143)
    assert first_gone([started], 0) == started
    assert not Path(f"/proc/{started}").exists()
