"""Runs a function in a forked child with a mount namespace of its own.

A CNI plugin runs on the node, in the pod's network namespace, with the node's files. There the
lookup of a user's name, which the owner match does, may go to the network that is only being made;
and the node's lock of the legacy tools is not the pod's. So the child sees no name service, and
locks the file of the network namespace.

Source: traffic-capture.md sections 8.2 and 14.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Final

from iptables.lock.client import XTABLES_LOCK
from iptables.log import Log

NEW_MOUNTS: Final = 0x20000  # CLONE_NEWNS
READ_ONLY, REMOUNT, BIND, RECURSIVE = 0x1, 0x20, 0x1000, 0x4000  # MS_…
PRIVATE, SLAVE = 1 << 18, 1 << 19
NAME_SERVICE: Final = "/etc/nsswitch.conf"
SIGNALLED: Final = 128  # what a shell adds to a signal's number


def run_sandboxed(function: Callable[[], int], log: Log, *, lock_file: str) -> int:
    """Return the exit status that a function returns in a child.

    Where the sandbox cannot be made the child goes on without, and the log says so.

    Args:
        function: what to do; it must not raise.
        log: where a warning goes.
        lock_file: the file of the network namespace, '' for none.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        child = os.fork()
    except OSError as error:
        log.write("error", f"--cni-mode: there can be no child process: {error.strerror}")
        return 1
    if not child:
        status = 1
        try:
            _enter(log, lock_file)
            status = function()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else SIGNALLED - status


def _enter(log: Log, lock_file: str) -> None:
    kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    os.environ.clear()
    os.environ.update(kept)
    if lock_file:
        os.environ["XTABLES_LOCKFILE"] = lock_file  # for the tools since 1.8.6
    try:
        _call("unshare", NEW_MOUNTS)
        try:
            _mount(None, "/", RECURSIVE | PRIVATE)
        except OSError:  # policies of SELinux may deny that but not this
            _mount(None, "/", RECURSIVE | SLAVE)
        if os.access(NAME_SERVICE, os.F_OK):
            _mount("/dev/null", NAME_SERVICE, BIND)
            _mount(None, NAME_SERVICE, BIND | REMOUNT | READ_ONLY)
        if lock_file and os.access(XTABLES_LOCK, os.F_OK):
            _mount(lock_file, XTABLES_LOCK, BIND)  # for the tools before
    except OSError as error:
        log.write("warn", f"--cni-mode: no mount namespace, going on without: {error.strerror}")


def _mount(source: str | None, target: str, flags: int) -> None:
    path = None if source is None else source.encode()
    what = f"mount of {source or 'nothing'} on {target}"
    _call("mount", path, target.encode(), None, ctypes.c_ulong(flags), None, what=what)


def _call(name: str, *arguments: object, what: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{what or name}: {os.strerror(number)}")
