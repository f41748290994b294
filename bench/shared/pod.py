"""What several benches need of a pod: its network namespace, its files, its agent."""

import ctypes
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import envoy
from pyroute2 import IPRoute

AGENT = str(Path(sys.executable).with_name("agent"))
ENVOY = str(Path(envoy.__file__).with_name("_bin") / "envoy")
CLONE_NEWNET = 0x40000000


def enter_namespace() -> None:
    """Move this process into a network namespace of its own, with `lo` up; exit without root."""
    if os.geteuid() != 0:
        print("skipped: needs root, for a network namespace in which the usual ports are free")
        sys.exit(0)
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    with IPRoute() as kernel:
        kernel.link("set", index=1, state="up")


def wall_milliseconds(argv: Sequence[str]) -> float:
    """Return the time from spawn to exit of a program that must succeed."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    started = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=quiet)
    _, status = os.waitpid(pid, 0)
    elapsed = (time.perf_counter() - started) * 1000
    if status:
        raise SystemExit(f"{' '.join(argv)}: exit status {os.waitstatus_to_exitcode(status)}")
    return elapsed
