"""An action in a child: what it raises comes back, and no kill of the parent reaches it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from iptables.config import CaptureConfig
from iptables.decide import Change, Store
from iptables.detached.process import see_through
from iptables.errors import SystemRefusedError
from iptables.installed import NOTHING
from iptables.plan import plan
from iptables.run import RefusedError

ROOT = Path(__file__).parents[2]
STORE = Store(6, "nft", dump="*nat\nCOMMIT\n")
CHANGE = Change(STORE, "text", tuple(plan(CaptureConfig(), 6)), NOTHING)
#: Writes what it reads once its parent may be dead.
PATIENT = """
import signal, sys
from iptables.detached.process import see_through
def action():
    print("begun", flush=True)
    text = sys.stdin.readline()
    print("done", text.strip(), flush=True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
see_through(action)
print("told")
"""


def raising(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


def test_it_is_done_in_another_process_by_the_time_that_it_returns(tmp_path: Path) -> None:
    path = tmp_path / "pid"

    def action() -> None:
        path.write_text(str(os.getpid()))

    see_through(action)

    assert int(path.read_text()) != os.getpid()


def test_an_error_comes_back_with_all_that_it_says() -> None:
    trouble = [f"its rules cannot be put back: {'x' * 100_000}"]  # more than a pipe holds

    with pytest.raises(RefusedError) as raised:
        see_through(raising(RefusedError(CHANGE, "refused", trouble)))

    assert raised.value.change == CHANGE
    assert str(raised.value) == f"refused; {trouble[0]}"


def test_a_defect_is_told_with_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemRefusedError, match=r"ended early \(exit status 1\)"):
        see_through(raising(ZeroDivisionError("by us")))

    assert "ZeroDivisionError: by us" in capfd.readouterr().err


def test_a_child_that_is_killed_is_an_error() -> None:
    with pytest.raises(SystemRefusedError, match=r"ended early \(signal 9\) and may have changed"):
        see_through(lambda: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_what_is_begun_is_done_though_the_process_group_is_killed(sent: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PATIENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    ) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "begun\n"
        os.killpg(parent.pid, sent)
        assert parent.wait() == -sent

        printed, _ = parent.communicate("all the same\n")  # returns at the child's end

    assert printed == "done all the same\n"


def test_a_reader_that_has_gone_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "done"
    code = f"""
import os
from pathlib import Path
from iptables.detached.process import see_through
from iptables.log import Log
def action():
    for _ in range(1000):
        Log().write("info", "a line " * 100)
    Path({str(path)!r}).write_text("done")
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
see_through(action)
"""

    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True)

    assert path.read_text() == "done"


def test_where_there_can_be_no_child_it_is_done_here() -> None:
    code = """
import os
from iptables.detached.process import see_through
see_through(lambda: print(os.getpid()))
print(os.getpid())
"""
    refused = (sys.executable, str(ROOT / "tests/fakes/seccomp.py"), "clone")

    done = subprocess.run(
        [*refused, sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )

    action, caller = done.stdout.split()
    assert action == caller
