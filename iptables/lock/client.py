"""Lets one run at a time change a network namespace, and names who is in the way.

The lock is an abstract Unix socket: its name lives in the network namespace, needs no file system,
and goes with the process, however that ends. Who waits connects, and is woken by the end of the
connection.
"""

import _socket
import errno
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from iptables.errors import SystemRefusedError
from iptables.lock import holders
from iptables.lock.holders import LockFile
from iptables.log import Log

NAME: Final = b"\0mesh-agent/istio-iptables"
WAIT_SECONDS: Final = 30.0
WAITERS: Final = 64
PEER: Final = struct.Struct("=iII")  # struct ucred: pid, uid, gid
STUCK: Final = "another run changes the rules of this network namespace and does not end: {}"
#: What the legacy tools lock, unless told otherwise.
XTABLES_LOCK: Final = "/run/xtables.lock"


@contextmanager
def held(log: Log, *, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold the network namespace's lock for the block.

    A holder of another user is no run of this command, as changing rules takes that user's
    rights: the lock is then done without, and the log says so.

    Raises:
        SystemRefusedError: another run holds it for longer than `wait_seconds`.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        lock = _open()
        try:
            lock.bind(NAME)
            lock.listen(WAITERS)
        except OSError as error:
            lock.close()
            if error.errno != errno.EADDRINUSE:
                raise SystemRefusedError(f"taking the lock: {error.strerror}") from error
            if _wait(deadline, log):
                continue
            yield
            return
        try:
            yield
        finally:
            lock.close()
        return


def _wait(deadline: float, log: Log) -> bool:
    """Wait for the holder's end; return whether the lock is then to be tried for again."""
    peer = _open()
    who = "a process that does not listen"
    try:
        peer.settimeout(max(deadline - time.monotonic(), 0.001))
        peer.connect(NAME)
        size = PEER.size
        pid, uid, _ = PEER.unpack(peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, size))
        who = f"process {pid} ({command(pid)})"
        if uid != os.geteuid():
            log.write("warn", f"the lock of this command is held by {who} of user {uid}: ignored")
            return False
        log.write("info", f"waiting for {who} to end its changes")
        log.flush()
        peer.recv(1)
    except TimeoutError as error:
        raise SystemRefusedError(STUCK.format(who)) from error
    except OSError as error:  # it has ended, or is about to listen
        if time.monotonic() > deadline:
            raise SystemRefusedError(STUCK.format(who)) from error
        time.sleep(0.001)
    finally:
        peer.close()
    return True


def _open() -> "_socket.socket":
    try:
        return _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    except OSError as error:
        raise SystemRefusedError(f"taking the lock: {error.strerror}") from error


def xtables_holder() -> str:
    """Return who holds the lock of the legacy tools."""
    path = os.environ.get("XTABLES_LOCKFILE", XTABLES_LOCK)
    try:
        found = os.stat(path)  # noqa: PTH116 - pathlib is slow
        with open("/proc/locks", encoding="ascii") as file:  # noqa: PTH123 - see above
            locks = file.read()
    except OSError as error:
        return f"who holds {path} cannot be seen: {error.strerror}"
    which = LockFile(os.major(found.st_dev), os.minor(found.st_dev), found.st_ino)
    return holders.describe(path, {pid: command(pid) for pid in holders.holders(locks, which)})


def command(pid: int) -> str:
    """Return what a process runs, its words parted by blanks; '?' if that cannot be seen."""
    try:
        path = f"/proc/{pid}/cmdline"
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - see above
            words = file.read().rstrip("\0").split("\0")
    except OSError:
        return "?"
    return " ".join(words)[:100] or "?"
