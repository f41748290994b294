"""Network namespaces joined by a cable, and processes inside them.

A namespace has no name and no file: it lives as long as the process that holds it, like a pod by
its pause container, and that one dies with us. The kernel then removes it: interfaces, addresses,
rules and mounts.
"""

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from pyroute2 import IPRoute, NetlinkError

from agent.demo.addresses import CABLE
from agent.demo.commands import Credentials, enter, hold, identify_root
from agent.errors import SystemRefusedError

#: Usable at once, without the second of duplicate address detection. Linux, if_addr.h.
IFA_F_NODAD: Final = 0x02
#: What asks a program to stop.
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Linux, sched.h.
CLONE_NEWNET: Final = 0x40000000
#: Linux, prctl.h.
PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
#: What `nsenter` ends with where there is no such program.
NO_PROGRAM: Final = 127
#: How long a killed process may take to be gone.
KILLED_SECONDS: Final = 10


class Namespace(NamedTuple):
    """A network namespace, if asked for with a mount namespace of its own, and the way into it."""

    holder: int  #: the process that keeps it alive
    mounts: bool  #: whether processes enter the holder's mount namespace too
    directory: str  #: where processes start
    children: list[subprocess.Popen[bytes]]  #: started by `spawn`; reaped with the namespace

    def netlink(self) -> IPRoute:
        """Return an open netlink socket of this namespace; use it by `with`."""
        with entered(self.holder):  # pyroute2 itself would fork, whatever threads there are
            return IPRoute()

    def processes(self) -> list[int]:
        """Return the ids of the processes in this network namespace, its holder included.

        Nothing for one that is gone, or not made yet: those in our own namespace are never meant.
        """
        wanted = _network_of(self.holder)
        if wanted in (None, _network_of(os.getpid())):
            return []
        return [pid for pid in _pids() if _network_of(pid) == wanted]

    def has_ipv6(self) -> bool:
        """Return whether the kernel knows IPv6, and lets interfaces have it by default."""
        return self.run(["cat", "/proc/sys/net/ipv6/conf/default/disable_ipv6"]).stdout == "0\n"

    def spawn(
        self,
        argv: Sequence[str],
        *,
        credentials: Credentials | None = None,
        environ: Mapping[str, str] | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Return a started program; the process id is the program's own.

        It dies with this process, but for the first milliseconds, in which it becomes who it is to
        be. Ctrl-C on the terminal does not reach it.
        """
        child = subprocess.Popen(  # noqa: S603 - the caller's command line
            self._command(argv, credentials),
            bufsize=0,
            env=environ,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            process_group=0,
        )
        self.children.append(child)
        return child

    def run(
        self,
        argv: Sequence[str],
        *,
        credentials: Credentials | None = None,
        environ: Mapping[str, str] | None = None,
        text: str = "",
        timeout_seconds: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Return a finished program and its output; `text` is its standard input."""
        return subprocess.run(  # noqa: S603 - the caller's command line
            self._command(argv, credentials),
            env=environ,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
            process_group=0,
        )

    def _command(self, argv: Sequence[str], credentials: Credentials | None) -> list[str]:
        return enter(
            self.holder,
            argv,
            mounts=self.mounts,
            credentials=credentials,
            directory=self.directory,
        )


@contextlib.contextmanager
def namespace(*, mounts: bool = False, directory: str = "/") -> Iterator[Namespace]:
    """Yield a new namespace with its loopback up; everything in it is killed afterwards.

    Raises:
        SystemRefusedError: the kernel does not let us make one.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            holder = subprocess.Popen(  # noqa: S603 - our own command line
                hold(mounts=mounts),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=theirs.fileno(),
                cwd=directory,
                process_group=0,
            )
        made = Namespace(holder.pid, mounts, directory, [])
        try:
            _wait_until_made(ours)
            with made.netlink() as netlink:
                netlink.link("set", index=netlink.link_lookup(ifname="lo")[0], state="up")
            yield made
        finally:
            for pid in made.processes():
                kill(pid)
            for child in (*made.children, holder):
                _reap(child)


@contextlib.contextmanager
def entered(pid: int) -> Iterator[None]:
    """Have what this thread opens, and its children, be in the network of a process."""
    with contextlib.ExitStack() as stack:
        before, after = (
            os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            for path in ("/proc/thread-self/ns/net", f"/proc/{pid}/ns/net")
        )
        stack.callback(os.close, before)
        stack.callback(os.close, after)
        _set_network(after)
        stack.callback(_set_network, before)
        yield


def _set_network(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"setns: {os.strerror(error)}")


def _reap(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait(KILLED_SECONDS)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe:
            pipe.close()


def _wait_until_made(holder: socket.socket) -> None:
    """Return once the holder echoes: it does so from inside the new namespaces."""
    with contextlib.suppress(BrokenPipeError):
        holder.sendall(b"\n")
    answer = holder.recv(1000).decode(errors="replace")
    if answer != "\n":
        raise SystemRefusedError(f"cannot make a namespace: {' '.join(answer.split())}")


@contextlib.contextmanager
def network(*, mounts: bool = False, directory: str = "/") -> Iterator[tuple[Namespace, Namespace]]:
    """Yield a node and a pod, joined; everything in them is killed afterwards.

    The node's end is `veth0`, the pod's is `eth0`, with default routes to the node. Addresses of
    both families are usable at once.

    Args:
        mounts: give the pod a mount namespace of its own.
        directory: where processes in either start.
    """
    with (
        namespace(directory=directory) as node,
        namespace(directory=directory, mounts=mounts) as pod,
    ):
        try:
            connect(node, pod)
        except NetlinkError as error:
            raise SystemRefusedError(f"cannot join namespaces by a veth pair: {error}") from error
        yield node, pod


def connect(node: Namespace, pod: Namespace) -> None:
    """Join two namespaces by a virtual Ethernet pair."""
    ipv6 = pod.has_ipv6()
    with node.netlink() as here, pod.netlink() as there:
        here.link(
            "add", ifname="veth0", kind="veth", peer={"ifname": "eth0", "net_ns_pid": pod.holder}
        )
        for netlink, interface in ((here, "veth0"), (there, "eth0")):
            netlink.link("set", index=netlink.link_lookup(ifname=interface)[0], state="up")
        _address(here, "veth0", CABLE.node_ipv4, CABLE.node_ipv6 if ipv6 else "")
        _address(there, "eth0", CABLE.pod_ipv4, CABLE.pod_ipv6 if ipv6 else "")
        there.route("add", dst="default", gateway=CABLE.node_ipv4)
        if ipv6:
            there.route("add", family=socket.AF_INET6, dst="default", gateway=CABLE.node_ipv6)


def _address(netlink: IPRoute, interface: str, ipv4: str, ipv6: str) -> None:
    index = netlink.link_lookup(ifname=interface)[0]
    netlink.addr("add", index=index, address=ipv4, prefixlen=24)
    if ipv6:
        netlink.addr("add", index=index, address=ipv6, prefixlen=64, flags=IFA_F_NODAD)


class Output:
    """The lines that a child writes to its standard output, a pipe."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.pipe = child.stdout
        self.text = ""

    def wait_for(self, line: str, seconds: float) -> bool:
        """Return whether the line comes within the time; it and those before it are dropped."""
        deadline = time.monotonic() + seconds
        while f"{line}\n" not in self.text:
            patience = max(deadline - time.monotonic(), 0)
            if not self.pipe or not select.select([self.pipe], [], [], patience)[0]:
                return False
            chunk = os.read(self.pipe.fileno(), 65536)
            if not chunk:
                return False
            self.text += chunk.decode(errors="replace")
        self.text = self.text.partition(f"{line}\n")[2]
        return True


def is_in_chroot() -> bool:
    """Return whether our root directory is not that of our mount namespace.

    Whoever enters a mount namespace gets its root: there our files are elsewhere.
    """
    ours = Path("/").stat()
    found = subprocess.run(  # noqa: S603 - our own command line
        identify_root(os.getpid()), capture_output=True, text=True, check=False
    )
    if found.returncode:
        return found.returncode == NO_PROGRAM
    return found.stdout.strip() != f"{ours.st_dev}:{ours.st_ino}"


def how_ended(code: int) -> str:
    """Return a child's return code in words."""
    return f"exit {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def kill(pid: int) -> None:
    """Kill a process, whoever started it, and wait until it is gone; it may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    first_gone([pid], KILLED_SECONDS)


def first_gone(pids: Sequence[int], seconds: float) -> int | None:
    """Return the first process to be gone, whoever started it; None if none is in time."""
    with contextlib.ExitStack() as stack:
        handles = {}
        for pid in pids:
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                return pid
            stack.callback(os.close, handle)
            handles[handle] = pid
        gone = select.select(list(handles), [], [], seconds)[0]
    return handles[gone[0]] if gone else None


def block_signals() -> None:
    """Keep what asks us to stop until `supervise` or `wait_for_stop` takes it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {*STOPPING, signal.SIGCHLD})


def supervise(work: Callable[[], int]) -> int:
    """Return the exit code of work done in a child, or 128 and the signal that ended it.

    A signal that asks us to stop ends the child wherever it is, and we clean up in peace: whatever
    it had started is killed and reaped. A child that waits for the signal, by `block_signals` and
    `wait_for_stop`, ends with a code of its own. Needs `block_signals` before.
    """
    sys.stdout.flush()
    parent = os.getpid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    child = os.fork()
    if child == 0:
        _become_worker(parent)
        try:
            code = work()
            sys.stdout.flush()
        except BaseException:  # noqa: BLE001 - nothing of it may run our caller's code twice
            traceback.print_exc()
            code = 1
        os._exit(code)
    try:
        return _wait_for_worker(child)
    finally:
        _end_children()


def _wait_for_worker(child: int) -> int:
    while True:
        received = signal.sigwait({*STOPPING, signal.SIGCHLD})
        if received != signal.SIGCHLD:
            os.kill(child, signal.SIGTERM)
            os.kill(child, signal.SIGCONT)  # one that is stopped would never notice
        ended, status = os.waitpid(child, os.WNOHANG if received == signal.SIGCHLD else 0)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 + (-code if received == signal.SIGCHLD else received)


def _end_children() -> None:
    """Kill and reap all children; theirs become ours as they die, and are next."""
    parent = str(os.getpid())
    while children := [pid for pid in _pids() if _parent_of(pid) == parent]:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _parent_of(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return line.rpartition(")")[2].split()[1]  # proc(5): field 4, counted behind the name


def _become_worker(parent: int) -> None:
    """Die with the parent and by any signal; leave Ctrl-C on the terminal to the parent."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.setpgid(0, 0)
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*STOPPING, signal.SIGCHLD})


def wait_for_stop() -> None:
    """Return when the supervisor passes on that we are to stop; needs `block_signals` before."""
    signal.sigwait({signal.SIGTERM})


def _network_of(pid: int) -> tuple[int, int] | None:
    """Return what identifies a process's network namespace; None if there is no such process."""
    try:
        found = Path(f"/proc/{pid}/ns/net").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
