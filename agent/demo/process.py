"""Network namespaces joined by a cable, and processes inside them.

A namespace has no name and no file: it lives as long as the process that holds it, like a pod by
its pause container, and that one dies with us. The kernel then removes it: interfaces, addresses,
rules and mounts.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from pyroute2 import IPRoute

from agent.demo.commands import Credentials, enter, hold
from agent.errors import SystemRefusedError

#: Usable at once, without the second of duplicate address detection. Linux, if_addr.h.
IFA_F_NODAD: Final = 0x02
#: How long a killed process may take to be gone.
KILLED_SECONDS: Final = 10


class Cable(NamedTuple):
    """The addresses at both ends of a virtual Ethernet pair, each in a /24 or a /64."""

    node_ipv4: str = "10.244.7.1"
    pod_ipv4: str = "10.244.7.2"
    node_ipv6: str = "fd00:10:244:7::1"
    pod_ipv6: str = "fd00:10:244:7::2"


class Namespace(NamedTuple):
    """A network namespace, if asked for with a mount namespace of its own, and the way into it."""

    holder: int  #: the process that keeps it alive
    mounts: bool  #: whether processes enter the holder's mount namespace too
    directory: str  #: where processes start

    def netlink(self) -> IPRoute:
        """Return an open netlink socket of this namespace; use it by `with`."""
        return IPRoute(netns=f"/proc/{self.holder}/ns/net")

    def processes(self) -> list[int]:
        """Return the ids of the processes in this network namespace, its holder included.

        Nothing for one that is gone, or not made yet: those in our own namespace are never meant.
        """
        wanted = _network_of(self.holder)
        if wanted in (None, _network_of(os.getpid())):
            return []
        pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        return [pid for pid in pids if _network_of(pid) == wanted]

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
        return subprocess.Popen(  # noqa: S603 - the caller's command line
            self._command(argv, credentials),
            env=environ,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            process_group=0,
        )

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
        made = Namespace(holder.pid, mounts, directory)
        try:
            _wait_until_made(ours)
            with made.netlink() as netlink:
                netlink.link("set", index=netlink.link_lookup(ifname="lo")[0], state="up")
            yield made
        finally:
            for pid in made.processes():
                kill(pid)
            holder.kill()
            holder.wait(KILLED_SECONDS)


def _wait_until_made(holder: socket.socket) -> None:
    """Return once the holder echoes: it does so from inside the new namespaces."""
    with contextlib.suppress(BrokenPipeError):
        holder.sendall(b"\n")
    answer = holder.recv(1000).decode(errors="replace")
    if answer != "\n":
        raise SystemRefusedError(f"cannot make a namespace: {' '.join(answer.split())}")


@contextlib.contextmanager
def network(
    cable: Cable | None = None, *, mounts: bool = False, directory: str = "/"
) -> Iterator[tuple[Namespace, Namespace]]:
    """Yield a node and a pod, joined; everything in them is killed afterwards.

    The node's end is `veth0`, the pod's is `eth0`, with default routes to the node. Addresses of
    both families are usable at once.

    Args:
        cable: other addresses than the usual ones.
        mounts: give the pod a mount namespace of its own.
        directory: where processes in either start.
    """
    with (
        namespace(directory=directory) as node,
        namespace(directory=directory, mounts=mounts) as pod,
    ):
        connect(node, pod, cable or Cable())
        yield node, pod


def connect(node: Namespace, pod: Namespace, cable: Cable) -> None:
    """Join two namespaces by a virtual Ethernet pair."""
    with node.netlink() as here, pod.netlink() as there:
        here.link(
            "add", ifname="veth0", kind="veth", peer={"ifname": "eth0", "net_ns_pid": pod.holder}
        )
        for netlink, interface in ((here, "veth0"), (there, "eth0")):
            netlink.link("set", index=netlink.link_lookup(ifname=interface)[0], state="up")
        _address(here, "veth0", cable.node_ipv4, cable.node_ipv6)
        _address(there, "eth0", cable.pod_ipv4, cable.pod_ipv6)
        there.route("add", dst="default", gateway=cable.node_ipv4)
        if has_ipv6():
            there.route("add", family=socket.AF_INET6, dst="default", gateway=cable.node_ipv6)


def _address(netlink: IPRoute, interface: str, ipv4: str, ipv6: str) -> None:
    index = netlink.link_lookup(ifname=interface)[0]
    netlink.addr("add", index=index, address=ipv4, prefixlen=24)
    if has_ipv6():
        netlink.addr("add", index=index, address=ipv6, prefixlen=64, flags=IFA_F_NODAD)


def has_ipv6() -> bool:
    """Return whether the kernel knows IPv6 at all."""
    return os.access("/proc/net/if_inet6", os.F_OK)


def kill(pid: int) -> None:
    """Kill a process, whoever started it, and wait until it is gone; it may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid, KILLED_SECONDS)


def wait_until_gone(pid: int, seconds: float) -> bool:
    """Return whether a process, whoever started it, is gone within the time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def _network_of(pid: int) -> tuple[int, int] | None:
    """Return what identifies a process's network namespace; None if there is no such process."""
    try:
        found = Path(f"/proc/{pid}/ns/net").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
