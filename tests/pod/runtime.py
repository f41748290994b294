"""A container runtime for tests, run as a program: what runc does for a kubelet, in little.

    python runtime.py run SPEC FD     a container, in namespaces of its own; we are its shim
    python runtime.py exec SPEC PID   a further program in a container whose first process is PID

SPEC is JSON; see containers.py. The shim writes the container's process id to the file descriptor
FD once its program runs, or what kept it from running; it dies with whoever started it, takes the
container along, and ends with the container's exit code, 128 and the signal if one ended it.

A container gets a mount, a process and a host name namespace, and enters the network namespace of
its pod. Its root is an overlay of its image's layers. Needs root and the standard library only.
"""

import ctypes
import json
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

#: Linux, sched.h.
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWPID: Final = 0x20000000
#: Linux, mount.h.
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH: Final = 2
SYS_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}
#: Linux, prctl.h and capability.h.
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
CAPABILITY_VERSION: Final = 0x20080522
#: Of /proc, whoever one is: the usual runtimes' list.
READ_ONLY: Final = ("bus", "fs", "irq", "sys")
DEVICES: Final = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}  # major 1

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    """Call a function of the C library that says by -1 that it failed."""
    passed = [os.fsencode(each) if isinstance(each, str) else each for each in arguments]
    if getattr(libc, name)(*passed) == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"{name} {arguments}: {os.strerror(error)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    call("mount", source, target, kind, ctypes.c_ulong(flags), data)


def bind(source: str, target: str, *, read_only: bool) -> None:
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        mount("", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def enter(pid: int, kind: str) -> None:
    descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
    call("setns", descriptor, 0)
    os.close(descriptor)


def run(spec: dict[str, Any], report: int) -> int:
    """Run a container until it ends; return its exit code."""
    os.set_inheritable(report, False)  # noqa: FBT003 - positional only
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    groups = open_groups(spec)
    enter(spec["network"], "net")
    call("unshare", CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID)
    failed, says = os.pipe()  # closed by execve
    child = os.fork()
    if child == 0:
        start(says, lambda: make_root(spec), groups, spec)
    os.close(says)
    with os.fdopen(failed) as reader:
        why = reader.read()
    os.write(report, (why or str(child)).encode())
    os.close(report)
    return wait(child)


def execute(spec: dict[str, Any], pid: int) -> int:
    """Run a program in a container; return its exit code. SIGTERM kills it."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    groups = open_groups(spec)
    for kind in ("net", "uts", "pid", "mnt"):  # the last one hides /proc
        enter(pid, kind)
    child = os.fork()
    if child == 0:
        start(2, lambda: None, groups, spec)
    # reaped by us, it holds up nobody: a container is gone when all of its processes are
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    return wait(child)


def wait(child: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def open_groups(spec: dict[str, Any]) -> list[int]:
    """Return what a process joins the container's control groups by."""
    groups = spec["groups_of_limits"].values()
    return [os.open(f"{each}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for each in groups]


def start(
    says: int, prepare: Callable[[], None], groups: list[int], spec: dict[str, Any]
) -> NoReturn:
    """Become the container's program; what is in the way is written to `says`."""
    try:
        for group in groups:
            os.write(group, b"0")
        prepare()
        os.chdir(spec["directory"])
        become(spec)
        os.execvpe(spec["argv"][0], spec["argv"], spec["environ"])  # noqa: S606 - its whole purpose
    except OSError as error:
        os.write(says, f"{error}\n".encode())
    finally:
        os._exit(127)


def make_root(spec: dict[str, Any]) -> None:
    """Make the container's file system and leave every other."""
    scratch = spec["scratch"]
    mount("", "/", flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", scratch, "tmpfs", data="mode=0755")
    root = f"{scratch}/root"
    Path(root).mkdir()
    for number, (target, lower) in enumerate(spec["layers"]):
        upper, work = f"{scratch}/upper{number}", f"{scratch}/work{number}"
        Path(upper).mkdir()
        Path(work).mkdir()
        where = f"lowerdir={':'.join(lower)},upperdir={upper},workdir={work}"
        mount("overlay", f"{root}{target}".rstrip("/"), "overlay", data=where)
    for name in ("dev", "proc", "sys"):
        Path(root, name).mkdir(exist_ok=True)
    make_devices(f"{root}/dev")
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name in READ_ONLY:
        bind(f"{root}/proc/{name}", f"{root}/proc/{name}", read_only=True)
    mount("sysfs", f"{root}/sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    show_groups(f"{root}/sys/fs/cgroup", spec)
    sources = [os.open(source, os.O_PATH | os.O_CLOEXEC) for source, _, _ in spec["mounts"]]
    outside = os.open("/", os.O_DIRECTORY | os.O_CLOEXEC)
    os.chdir(root)
    call("syscall", SYS_PIVOT_ROOT[os.uname().machine], ".", ".")
    for source, (_, target, read_only) in zip(sources, spec["mounts"], strict=True):
        make_mount_point(target, is_directory=stat.S_ISDIR(os.fstat(source).st_mode))
        bind(f"/proc/self/fd/{source}", target, read_only=read_only)
        os.close(source)
    os.fchdir(outside)
    call("umount2", ".", MNT_DETACH)
    os.close(outside)
    if spec["read_only"]:
        for target, _ in reversed(spec["layers"]):
            mount("", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)
    call("sethostname", spec["hostname"], len(spec["hostname"]))


def show_groups(folder: str, spec: dict[str, Any]) -> None:
    """Show a container its own control groups where it expects those of the machine."""
    if spec["groups_of_limits"]:
        mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0755")
    for controller, group in spec["groups_of_limits"].items():
        Path(folder, controller).mkdir()
        bind(group, f"{folder}/{controller}", read_only=True)


def make_devices(folder: str) -> None:
    mount("tmpfs", folder, "tmpfs", MS_NOSUID, "mode=0755")
    for name, minor in DEVICES.items():
        os.mknod(f"{folder}/{name}", 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        Path(folder, name).chmod(0o666)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        Path(folder, name).symlink_to(f"/proc/self/fd{target}")
    Path(folder, "shm").mkdir()
    Path(folder, "shm").chmod(0o1777)


def make_mount_point(target: str, *, is_directory: bool) -> None:
    path = Path(target)
    if is_directory:
        path.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def become(spec: dict[str, Any]) -> None:
    """Take the container's user and give up all else; only root keeps capabilities by execve."""
    kept = set(spec["capabilities"])
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in set(range(last + 1)) - kept:
        call("prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
    inherit_none()
    os.setgroups(spec["groups"])
    os.setresgid(*[spec["gid"]] * 3)
    os.setresuid(*[spec["uid"]] * 3)
    if spec["no_new_privileges"]:
        call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # forgotten when the user changed
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)


def inherit_none() -> None:
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; the higher half again
    call("capget", header, sets)
    sets[2] = sets[5] = 0
    call("capset", header, sets)


def main(argv: list[str]) -> int:
    spec = json.loads(argv[2])
    return (run if argv[1] == "run" else execute)(spec, int(argv[3]))


if __name__ == "__main__":
    os._exit(main(sys.argv))
