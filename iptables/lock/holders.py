"""Who holds a lock, from what the kernel lists.

Source: proc(5), /proc/locks.
"""

from typing import NamedTuple


class LockFile(NamedTuple):
    """A file as /proc/locks names it."""

    major: int
    minor: int
    inode: int


def holders(locks: str, file: LockFile) -> list[int]:
    """Return the processes that hold a lock on a file, without those that wait for one.

    Args:
        locks: text of /proc/locks. A line is '1: FLOCK ADVISORY WRITE 4711 00:1a:55 0 EOF', with
            '->' after the number if the process waits. The process is 0 or -1 where it is in
            another pid namespace.
        file: the file that is locked.
    """
    name = f"{file.major:02x}:{file.minor:02x}:{file.inode}"
    found = []
    for line in locks.splitlines():
        match line.split():
            case [_, "FLOCK" | "POSIX" | "OFDLCK", _, _, pid, locked, *_] if locked == name:
                found.append(int(pid))
    return found


def describe(path: str, commands: dict[int, str]) -> str:
    """Return who holds a lock: ' /run/xtables.lock is held by process 7 (iptables)'.

    Args:
        path: the lock file.
        commands: what each holder runs, by process; empty where that cannot be seen.
    """
    if not commands:
        return f"nobody in sight holds {path}"
    who = [
        f"process {pid} ({command})" if pid > 0 else "a process of another pid namespace"
        for pid, command in commands.items()
    ]
    return f"{path} is held by {', '.join(who)}"
