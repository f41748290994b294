"""The command `demo`: a pod in throw-away namespaces, shown step by step."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from agent.cli import fail
from agent.demo import files
from agent.demo.addresses import CABLE, url
from agent.demo.commands import look_around
from agent.demo.manifest import APPLICATION_PORT, IMAGE_ENVIRONMENT
from agent.demo.observe import can_make_namespaces
from agent.demo.process import block_signals, is_in_chroot, supervise, wait_for_stop
from agent.demo.report import Line, closing, heading, opening, summary
from agent.demo.run import CLIENT, RunningPod, clear, pod_in
from agent.demo.scenario import START_UP, Pod, Step, termination, traffic
from agent.errors import AgentError, SystemRefusedError
from iptables.flags import GLOBAL_FLAGS, Flag, UsageError, parse_flags, render_help
from iptables.log import without_output

FLAGS: Final = (
    Flag("keep", "bool", default=False, help="leave the pod running until Ctrl-C"),
    *GLOBAL_FLAGS,
)
HELP: Final = (
    "Show the agent at work, with a real Envoy, in some ten seconds.\n\n"
    "A node and a pod, joined, are made of throw-away network namespaces. In the pod traffic is "
    "captured, agent and Envoy run as uid 1337 without capabilities, and an application answers. "
    "The demo asks the kubelet's questions, sends requests both ways, and ends the agent with "
    "requests under way. Each line shows what was done, what was expected, what was seen, and the "
    "milliseconds it took. Nothing is left afterwards, and outside of the namespaces nothing "
    "changes.\n\n"
    "Needs root: it makes network and mount namespaces. Exit code: 0 if everything was as "
    "expected, 1 if something differs, 130 after Ctrl-C and 143 after SIGTERM, 255 if it cannot "
    "run here. With --keep, Ctrl-C is the usual end; until then a free port of 127.0.0.1 leads "
    "to the agent's page."
)
NEEDED: Final = (
    "agent demo needs root with CAP_NET_ADMIN and CAP_SYS_ADMIN, to make network and mount "
    "namespaces and to capture traffic in them"
)
CHROOT: Final = (
    "agent demo cannot run in a chroot: who enters the mount namespace of its pod is at the root "
    "of the machine, where these files are elsewhere; run it outside, or in a container"
)
TOOLS: Final = ("nsenter", "setpriv", "unshare", "iptables")
STATUS_PORT: Final = 15020
LOG_TAIL_LINES: Final = 20
#: Exit codes after SIGHUP, SIGINT and SIGTERM.
INTERRUPTED: Final = (129, 130, 143)


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the demo; return the exit code."""
    del environ  # the pod has its own
    try:
        flags = parse_flags(FLAGS, argv)
        if flags.help:
            sys.stdout.write(render_help("agent demo [flags]", HELP, FLAGS))
            return 0
        _require_tools()
    except (UsageError, AgentError) as error:
        return fail(error)
    block_signals()
    for earlier in files.abandoned():
        _say(f"removing what an earlier demo left: {earlier}")
        clear(earlier)
    directory = files.new_directory()
    try:
        code = supervise(lambda: _show(directory, keep=flags.is_on("keep")))
    finally:
        clear(directory)
    if code in INTERRUPTED:
        _say("\ninterrupted; everything is removed")
    return code


def _require_tools() -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        raise SystemRefusedError("agent demo needs /proc; run: mount -t proc proc /proc")
    if not can_make_namespaces(status.read_text()):
        raise SystemRefusedError(NEEDED)
    missing = [name for name in TOOLS if shutil.which(name, path=IMAGE_ENVIRONMENT["PATH"]) is None]
    if missing:
        raise SystemRefusedError(
            f"agent demo needs {' and '.join(missing)}; run: apt-get install util-linux iptables"
        )
    if is_in_chroot():
        raise SystemRefusedError(CHROOT)


def _show(directory: Path, *, keep: bool) -> int:
    """Walk through a pod; return the exit code."""
    began = time.monotonic()
    table = Table()
    try:
        with pod_in(directory) as pod:
            if table.walk(pod, START_UP, stop=True):
                table.walk(pod, traffic(pod.families()))
                if keep:
                    _keep(pod, directory)
                else:
                    table.walk(pod, termination())
            if table.differs:
                _show_log(pod.log_text())
    except AgentError as error:
        return fail(error)
    table.add("everything in the pod is gone", "no process left", lambda: _left(directory))
    _say(summary(table.lines, time.monotonic() - began))
    return 1 if table.differs else 0


class Table:
    """The report so far; each line appears as its step begins, and is completed as it ends."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        _say(heading())

    @property
    def differs(self) -> bool:
        """Return whether any step showed something unexpected."""
        return any(line.differs for line in self.lines)

    def walk(self, pod: Pod, steps: Iterable[Step], *, stop: bool = False) -> bool:
        """Carry out steps, if told so up to the first that differs; return whether none did."""
        for step in steps:
            self.add(step.name, step.expected, partial(step.observe, pod))
            if stop and self.differs:
                break
        return not self.differs

    def add(self, name: str, expected: str, observe: Callable[[], str]) -> None:
        """Carry out one step; an error is what was seen."""
        _say(opening(name, expected), end="")
        began = time.monotonic()
        try:
            seen = observe()
        except (AgentError, subprocess.TimeoutExpired) as error:
            seen = str(error)
        line = Line(name, expected, seen, (time.monotonic() - began) * 1000)
        self.lines.append(line)
        _say(closing(line))


def _say(text: str, end: str = "\n") -> None:
    try:
        sys.stdout.write(f"{text}{end}")
        sys.stdout.flush()
    except OSError as error:
        os._exit(without_output(error))  # whoever supervises us removes the pod


def _keep(pod: RunningPod, directory: Path) -> None:
    """Say how to look around, and return when told to stop."""
    block_signals()
    application = url(CABLE.pod_ipv4, APPLICATION_PORT)
    client = ("curl", "-i") if shutil.which("curl") else CLIENT
    lines = look_around(
        pod.inside.holder,
        pod.node.holder,
        str(directory),
        files.program(),
        [*client, application],
        page=url("127.0.0.1", pod.forward(STATUS_PORT)),
    )
    _say("\n".join(["", *lines, "", "The pod keeps running; Ctrl-C removes it.", ""]))
    wait_for_stop()


def _show_log(text: str) -> None:
    lines = text.splitlines()[-LOG_TAIL_LINES:]
    _say("\n".join(["", "The last lines of the agent's log:", *lines, ""]))


def _left(directory: Path) -> str:
    found = files.users(directory)
    return f"{len(found)} left: {found}" if found else "no process left"
