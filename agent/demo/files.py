"""Directories of the demo, and a mount namespace in which the sidecar's user reaches them.

Run as a program, `python files.py UID PATH...`, it changes the mount namespace it runs in so that
an unprivileged user reaches each path, whatever lies above it; a clone under /root is the usual
case. It needs the standard library only, and nothing of ours: that is what it makes reachable.

The first directory on the way that others may not enter is covered by a tmpfs that they may, and
what is needed from below is bound back to its own place. The files are the same ones, and neither
their modes nor anybody else's view of them change.
"""

import ctypes
import importlib.util
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

PREFIX: Final = "mesh-agent-"
PACKAGES: Final = ("agent", "bootstrap", "iptables")
#: Flags of mount(2). Linux, mount.h.
MS_BIND: Final = 4096
MS_REC: Final = 16384


def new_directory() -> Path:
    """Return a new directory for one run; its name says which process it belongs to."""
    pid = os.getpid()
    path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{pid}-{_started(pid)}-"))
    path.chmod(0o755)
    return path


def abandoned() -> list[Path]:
    """Return the directories of runs whose process is gone: named by us, and owned by us."""
    found = []
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        name = re.fullmatch(rf"{PREFIX}(\d+)-(\d+)-\w{{8}}", path.name)
        if name and _is_own_directory(path) and name[2] != _started(name[1]):
            found.append(path)
    return found


def _is_own_directory(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _started(pid: int | str) -> str:
    """Return when a process was started, in clock ticks since boot; "" if there is none."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return line.rpartition(")")[2].split()[19]  # proc(5): field 22, counted behind the name


def users(directory: Path) -> list[int]:
    """Return the other processes whose working directory lies in a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                working = (entry / "cwd").readlink()
            except OSError:
                continue
            if working.is_relative_to(directory):
                found.append(int(entry.name))
    return found


def remove(directory: Path) -> None:
    """Remove a run's directory."""
    shutil.rmtree(directory, ignore_errors=True)


def make_root(root: Path, *, volumes: Iterable[str], texts: Mapping[str, str], uid: int) -> None:
    """Make a container's root directory.

    Args:
        root: where; must not exist.
        volumes: directories that `uid` may write to, relative to `root`.
        texts: files by relative path.
        uid: owner of the volumes, of its group of the same number.
    """
    for volume in volumes:
        (root / volume).mkdir(parents=True)
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # whatever the umask
    for volume in volumes:
        os.chown(root / volume, uid, uid)


def find_envoy(default: str) -> str:
    """Return the path of Envoy: the default if it is there, else the one of the Python package.

    "" if neither exists.
    """
    package = importlib.util.find_spec("envoy")
    locations = (package and package.submodule_search_locations) or ()
    candidates = (default, *(f"{location}/_bin/envoy" for location in locations))
    return next((path for path in candidates if os.access(path, os.X_OK)), "")


def program() -> list[str]:
    """Return the command that starts this agent, as it is installed.

    A path with a space cannot stand in a script's first line.
    """
    script = Path(sys.executable).with_name("agent")
    is_usable = script.exists() and " " not in str(script)
    return [str(script)] if is_usable else [sys.executable, "-m", "agent"]


def own_paths() -> list[str]:
    """Return all that this agent needs to be read in order to run: Python and our packages."""
    found = [sys.prefix, sys.base_prefix, *program()[:1]]
    found += (str(link) for link in _links(Path(sys.executable)))
    for name in PACKAGES:
        package = importlib.util.find_spec(name)
        if package and package.origin:
            found += (package.origin, str(Path(package.origin).parent))
    return found


def _links(path: Path) -> Iterator[Path]:
    """Yield a path and, as long as it is a symbolic link, where it leads."""
    yield path
    while path.is_symlink():
        path = Path(os.path.normpath(path.parent / path.readlink()))
        yield path


def make_reachable(paths: Iterable[str]) -> None:
    """Let everybody in this mount namespace get to each path.

    The paths behind symbolic links come first, so that a link is found to work afterwards. What is
    needed as a whole is never covered: whoever closed it must open it.
    """
    spelled = sorted({Path(path) for path in paths})
    real = sorted({path.resolve() for path in spelled})
    opened = [(path, os.open(path, os.O_PATH)) for path in (*real, *spelled)]
    for path, original in opened:
        above = (each for each in reversed(path.parents) if each not in real + spelled)
        closed = next((each for each in above if not _is_open(each)), None)
        if closed:
            _mount("tmpfs", closed, "tmpfs", 0, "mode=0755")
        if not path.exists():
            _make_mount_point(path, is_directory=stat.S_ISDIR(os.fstat(original).st_mode))
            _mount(f"/proc/self/fd/{original}", path, "", MS_BIND | MS_REC, "")


def _is_open(directory: Path) -> bool:
    """Return whether everybody may enter; what is not there yet will be made so."""
    return not directory.exists() or bool(directory.stat().st_mode & stat.S_IXOTH)


def _make_mount_point(path: Path, *, is_directory: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_directory:
        path.mkdir()
    else:
        path.touch()


def _mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = (source.encode(), os.fsencode(target), kind.encode())
    if libc.mount(*words, ctypes.c_ulong(flags), options.encode()) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"mount: {os.strerror(error)}", str(target))


def unreadable(paths: Iterable[str], uid: int) -> list[str]:
    """Return the paths that a user cannot read, or not execute where root can.

    What lies below another of them is left out. This process is that user afterwards.
    """
    wanted = [(path, os.R_OK | (os.X_OK if os.access(path, os.X_OK) else 0)) for path in paths]
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    closed = {Path(path) for path, mode in wanted if not os.access(path, mode)}
    return [str(path) for path in sorted(closed) if closed.isdisjoint(path.parents)]


def main(argv: list[str]) -> int:
    """Make each path reachable; say which is not, for its own mode."""
    uid, paths = int(argv[1]), argv[2:]
    os.umask(0o022)
    make_reachable(paths)
    closed = " ".join(unreadable(paths, uid))
    if closed:
        sys.stderr.write(f"uid {uid} cannot read files of the demo; run: chmod -R o+rX {closed}\n")
    return 1 if closed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
