"""The command `agent demo`, as a user runs it."""

import http.client
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

AGENT = [sys.executable, "-m", "agent", "demo"]
#: Arguments: the new root, what of ours it lacks, the working directory, the program.
MAKE_CHROOT = """
root=$1 without=$2 directory=$3
shift 3
for each in /*; do
  if [ -L "$each" ]; then cp -P "$each" "$root$each"
  elif [ -d "$each" ] && [ "$each" != "$without" ]; then
    mkdir "$root$each"
    mount --rbind "$each" "$root$each"
  fi
done
exec chroot "$root" sh -c 'cd "$0" && exec "$@"' "$directory" "$@"
"""


@contextmanager
def demo(*flags: str, temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the demo, with its directory under `temporary`."""
    with subprocess.Popen(
        [*AGENT, *flags],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def read_until(running: subprocess.Popen[str], word: str) -> list[str]:
    """Return the lines that the demo prints up to one that begins with a word."""
    assert running.stdout
    lines = []
    for line in running.stdout:
        lines.append(line)
        if line.startswith(word):
            return lines
    pytest.fail("".join(lines))


def offered(lines: list[str], what: str) -> str:
    """Return what the demo says of a way to look around."""
    (line,) = (line for line in lines if line.startswith(f"{what}:"))
    return line.partition(":")[2].strip()


def fetch(url: str) -> bytes:
    """Return a page, asked for from outside of the pod."""
    there = urlsplit(url)
    connection = http.client.HTTPConnection(there.hostname or "", there.port, timeout=20)
    with closing(connection):
        connection.request("GET", there.path)
        return connection.getresponse().read()


def run_as_told(lines: list[str], what: str) -> str:
    """Return what a command answers that the demo offers."""
    command = shlex.split(offered(lines, what))
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=30)
    return done.stdout


def in_directory(directory: Path) -> list[str]:
    """Return the processes that work below a directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            working = path.readlink()
        except OSError:
            continue
        if working.is_relative_to(directory):
            found.append(path.parent.name)
    return found


@pytest.mark.root
@pytest.mark.envoy
@pytest.mark.slow
def test_the_demo_shows_what_it_promises_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(temporary=tmp_path) as running:
        output, _ = running.communicate(timeout=60)

    assert running.returncode == 0, output
    assert output.splitlines()[-1].startswith("all as expected")
    assert in_directory(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
@pytest.mark.envoy
@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("moment", ["step", "istio-proxy", "kubelet"])
def test_a_signal_ends_it_at_any_moment(
    tmp_path: Path, moment: str, number: signal.Signals, code: int
) -> None:
    with demo(temporary=tmp_path) as running:
        read_until(running, moment)

        running.send_signal(number)

        assert running.wait(20) == code
    assert in_directory(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
@pytest.mark.envoy
@pytest.mark.slow
def test_what_a_killed_demo_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with demo(temporary=tmp_path) as killed:
        read_until(killed, "istio-proxy")
        killed.kill()
    (left,) = tmp_path.iterdir()

    with demo(temporary=tmp_path) as running:
        read_until(running, f"removing what an earlier demo left: {left}")
        read_until(running, "step")
        running.terminate()
        assert running.wait(20) == 143

    assert in_directory(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
@pytest.mark.envoy
@pytest.mark.slow
def test_a_kept_pod_runs_until_ctrl_c_which_is_its_usual_end(tmp_path: Path) -> None:
    with demo("--keep", temporary=tmp_path) as running:
        said = read_until(running, "The pod keeps running")

        assert in_directory(tmp_path)
        assert "builtin" in run_as_told(said, "what Envoy was sent")
        assert "127.0.0.6" in run_as_told(said, "a request from the node")
        page = offered(said, "the agent's page")
        assert b"<title>" in fetch(page)
        assert json.loads(fetch(f"{page}debug/overview"))["readiness"]["ready"]
        running.send_signal(signal.SIGINT)

        assert running.wait(20) == 0
    assert in_directory(tmp_path) == []
    with pytest.raises(ConnectionRefusedError):
        fetch(page)


def test_a_full_disk_ends_it_with_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            AGENT,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=30,
        )

    assert (done.returncode, done.stderr) == (
        1,
        "Error: standard output: no space left on device\n",
    )
    assert list(tmp_path.iterdir()) == []
    assert in_directory(tmp_path) == []


def test_without_its_capabilities_one_line_says_what_it_is_needed_for() -> None:
    nobody = ["setpriv", "--bounding-set=-sys_admin"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*nobody, *AGENT], capture_output=True, text=True, check=False, timeout=20
    )

    assert done.returncode == 255
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "needs root with CAP_NET_ADMIN and CAP_SYS_ADMIN" in done.stderr


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "without", "reason"),
    [
        ("true", "", "agent demo cannot run in a chroot: "),
        ('mount -t tmpfs root "$1"', "", "agent demo cannot run in a chroot: "),
        ("true", "/proc", "agent demo needs /proc; run: mount -t proc proc /proc"),
    ],
    ids=["directory", "mount", "no proc"],
)
def test_in_a_chroot_one_line_says_so(
    tmp_path: Path, before: str, without: str, reason: str
) -> None:
    arguments = ["sh", str(tmp_path), without, str(Path.cwd())]
    make = ["unshare", "--mount", "sh", "-euc", f"{before}; {MAKE_CHROOT}", *arguments]

    done = subprocess.run([*make, *AGENT], capture_output=True, text=True, check=False, timeout=20)

    assert (done.returncode, done.stdout) == (255, ""), done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"Error: {reason}")


def test_a_flag_that_does_not_exist_is_refused_in_one_line() -> None:
    done = subprocess.run([*AGENT, "--fast"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (255, "")
    assert done.stderr == "Error: unknown flag --fast: --help lists the flags of this command\n"


def test_the_help_is_complete_and_global_flags_are_taken() -> None:
    done = subprocess.run(
        [*AGENT, "--log_as_json", "--help"], capture_output=True, text=True, check=True
    )

    assert "agent demo [flags]" in done.stdout
    assert "--keep" in done.stdout
    assert "Exit code: 0" in done.stdout
