"""Spawns, signals and reaps Envoy; asks the system for what Envoy needs.

Imported before asyncio is: Envoy starts while the agent's own modules load.
"""

import _socket
import errno
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from agent.errors import EnvoyError, SystemRefusedError

#: Ties Envoy's life to the agent's: the kernel kills it when the agent is gone, however it went.
PARENT_DEATH: Final = "setpriv"
#: Between the spawn and that tie the agent may die, and its Envoy would wait at the gate for ever;
#: so it looks whose child it is, once it is tied. Source: prctl(2), PR_SET_PDEATHSIG.
SHELL: Final = "sh"
STILL_OURS: Final = '[ "$PPID" = "$0" ] && exec "$@"'
#: Variables that a shell has for itself; it also drops those whose names it cannot use.
SHELLS_OWN: Final = frozenset(("IFS", "OPTIND", "PPID"))
PORT_LOOK_SECONDS: Final = 0.01
#: What the agent passes on: Envoy reopens its access logs.
FORWARDED: Final = (signal.SIGUSR1, signal.SIGHUP)


class Envoy:
    """One Envoy process, a child of ours from spawn to reap."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: Readable once the process has exited.
        self.pidfd = os.pidfd_open(pid)

    def has_exited(self) -> bool:
        """Return whether the process is over; it is left to be reaped."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self.pidfd < 0 or os.waitid(os.P_PIDFD, self.pidfd, flags) is not None

    def send(self, number: signal.Signals) -> None:
        """Signal the process, unless it has been reaped."""
        if self.pidfd >= 0:
            signal.pidfd_send_signal(self.pidfd, number)

    def reap(self) -> int:
        """Wait for the process and return its exit code, or minus the signal that ended it."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pidfd)
        self.pidfd = -1
        return os.waitstatus_to_exitcode(status)


def spawn(
    binary: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    user: tuple[int, int] | None = None,
) -> Envoy:
    """Start Envoy and return it; call from the main thread, whose end the kernel watches.

    Envoy inherits stdout, stderr, working directory and limits; stdin is empty. Its process group
    is its own: Ctrl-C, or an init that signals all of a group, would end it without a drain.

    Args:
        binary: path of the executable.
        arguments: without the binary.
        environ: Envoy's whole environment.
        user: uid and gid to run as, without further groups; None for our own.

    Raises:
        EnvoyError: the binary, or the tool that ties it to us, is missing.
    """
    if not os.path.isfile(binary):  # noqa: PTH113 - pathlib costs 5 ms before the spawn
        raise EnvoyError(
            f"Envoy binary {binary!r}: no such file; "
            "set binaryPath in PROXY_CONFIG, or install Envoy there"
        )
    if not os.access(binary, os.X_OK):
        raise EnvoyError(
            f"Envoy binary {binary!r}: not executable by uid {os.geteuid()}; "
            "correct its mode, or set binaryPath in PROXY_CONFIG"
        )
    tool = _find(PARENT_DEATH, environ.get("PATH") or os.defpath)
    if not tool:
        raise EnvoyError(f"{PARENT_DEATH} not found in PATH; install util-linux")
    check = _check_parent(environ)
    become = () if user is None else (f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups")
    try:
        pid = os.posix_spawn(
            tool,
            [PARENT_DEATH, "--pdeathsig", "KILL", *become, "--", *check, binary, *arguments],
            environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            setpgroup=0,
            setsigmask=[],
        )
    except OSError as error:
        raise EnvoyError(f"cannot start Envoy through {tool}: {error.strerror}") from error
    return Envoy(pid)


def _check_parent(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what goes on only as our child; nothing where it would cost Envoy a variable."""
    shell = _find(SHELL, environ.get("PATH") or os.defpath)
    names = environ.keys()
    passes_all = all(name.isascii() and name.isidentifier() for name in names - SHELLS_OWN)
    if not shell or not passes_all or SHELLS_OWN & names:
        return ()
    return (shell, "-c", STILL_OURS, str(os.getpid()))


class Orphans:
    """Reaps what others left behind: it becomes a child of pid 1, whoever started it.

    Children of our own have owners, who fetch their status at once. So a child that was dead a
    while ago and still is has no owner.
    """

    def __init__(self) -> None:
        self._dead: set[int] = set()

    def reap(self) -> bool:
        """Reap the children that were dead the last time; return whether others are by now."""
        dead = {pid for pid in _children() if _has_exited(pid)}
        for pid in dead & self._dead:
            with suppress(ChildProcessError):  # its owner came late
                os.waitpid(pid, os.WNOHANG)
        self._dead = dead - self._dead
        return bool(self._dead)


def _children() -> list[int]:
    """Return the children of the main thread, whose they all are."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123 - see above
            return [int(child) for child in file.read().split()]
    except OSError:
        return []  # a kernel without checkpoint and restore


def _has_exited(pid: int) -> bool:
    try:
        return bool(os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    except ChildProcessError:
        return False


def _find(tool: str, path: str) -> str:
    """Return where the tool is, '' if it is nowhere; shutil.which costs 2 ms at import."""
    for directory in path.split(":"):
        candidate = f"{directory or '.'}/{tool}"
        if os.access(candidate, os.X_OK):
            return candidate
    return ""


def check_ports(uses: Mapping[int, str], *, ipv6: bool, patience_seconds: float = 1.0) -> None:
    """Raise SystemRefusedError naming every port that somebody else listens on.

    Envoy would start, reject its listener, and never become ready for a reason only its
    control plane is told. The Envoy of an agent that was killed a moment ago gets a while to die.
    """
    due = time.monotonic() + patience_seconds
    while taken := [
        f"{port} ({use})" for port, use in uses.items() if not _is_free(port, ipv6=ipv6)
    ]:
        if time.monotonic() >= due:
            break
        time.sleep(PORT_LOOK_SECONDS)
    if taken:
        first = taken[0].split(" ", 1)[0]
        raise SystemRefusedError(
            f"port {', '.join(taken)} is in use; "
            f"find its owner with 'ss -ltnp sport = :{first}' and stop it"
        )


def _is_free(port: int, *, ipv6: bool) -> bool:
    families = [(_socket.AF_INET, "0.0.0.0")]  # noqa: S104 - what Envoy will bind
    if ipv6:
        families.append((_socket.AF_INET6, "::"))
    return all(_can_bind(family, address, port) for family, address in families)


def _can_bind(family: int, address: str, port: int) -> bool:
    sock = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        if family == _socket.AF_INET6:
            sock.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    finally:
        sock.close()
    return True
