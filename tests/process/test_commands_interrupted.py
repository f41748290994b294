"""A command that is told to end while it starts does so without a word."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
#: The smallest pipe there is: who writes to it is never far ahead of who reads.
PAGE_BYTES = 4096


@contextmanager
def started(*words: str, python: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """Yield a command that has been started; whatever becomes of it, it is gone afterwards."""
    child = subprocess.Popen(
        [sys.executable, *python, "-m", "agent", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
    )
    assert child.stderr
    fcntl.fcntl(child.stderr, fcntl.F_SETPIPE_SZ, PAGE_BYTES)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    """Return exit code and what was said."""
    said = child.communicate(timeout=10)[1]
    lines = said.splitlines(keepends=True)
    return child.returncode, "".join(line for line in lines if not line.startswith("import time:"))


def read_until_imported(child: subprocess.Popen[str], module: str) -> None:
    """Return when it has a module: Python tells of its imports, one line each, as they are done."""
    assert child.stderr
    while not child.stderr.readline().rstrip().endswith(f" {module}"):
        assert child.poll() is None


@BOTH
@pytest.mark.parametrize(
    ("command", "module", "asked_for_it"),
    [
        ("wait", "agent.request.settings", False),
        ("demo", "agent.demo.addresses", False),
        ("proxy", "iptables.flags", True),
    ],
)
def test_while_it_imports(
    number: signal.Signals, command: str, module: str, *, asked_for_it: bool
) -> None:
    with started(command, python=("-X", "importtime")) as child:
        read_until_imported(child, module)

        child.send_signal(number)

        assert ended(child) == (0 if asked_for_it else 128 + number, "")


@BOTH
@pytest.mark.parametrize(("command", "code"), [("proxy", 0), ("wait", 128)])
def test_before_its_interpreter_has_begun(number: signal.Signals, command: str, code: int) -> None:
    """As the image's entry point has it: a signal waits for somebody to be there."""
    blocked = ("env", f"--block-signal={number.value}")
    signalled = ("sh", "-c", 'kill -"$0" $$; exec "$@"', str(number.value))
    done = subprocess.run(
        [*blocked, *signalled, sys.executable, "-m", "agent", command],
        capture_output=True,
        check=False,
        cwd=ROOT,
        timeout=20,
    )

    assert (done.returncode, done.stdout, done.stderr) == (code and code + number, b"", b"")


@BOTH
def test_while_it_waits_for_an_answer(number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"--url=http://127.0.0.1:{server.getsockname()[1]}/"
        with started("wait", url, "--requestTimeoutMillis=60000") as child:
            connection, _ = server.accept()
            with connection:
                child.send_signal(number)

                assert ended(child) == (128 + number, "")


@BOTH
def test_while_it_reads_its_settings(tmp_path: Path, number: signal.Signals) -> None:
    """A document that takes seconds to read, and YAML is imported only when reading begins."""
    mesh = tmp_path / "mesh"
    mesh.write_text(f"rootNamespace: [{'x, ' * 1_000_000}]")
    with started("proxy", f"--meshConfig={mesh}", python=("-X", "importtime")) as child:
        read_until_imported(child, "yaml")

        child.send_signal(number)

        assert ended(child) == (0, "")
