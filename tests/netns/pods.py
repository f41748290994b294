"""A pod with a link to a node, each a network namespace, and programs to connect in them."""

import atexit
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pyroute2 import IPRoute

from tests.netns.namespaces import NSENTER, ROOT, Namespace, namespace

#: Connects from a source, '-' for any, and prints what it is sent, or what went wrong.
ASK = """
import socket, sys
protocol, host, port, source = sys.argv[1:]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
with socket.socket(family, kind) as client:
    client.settimeout(5)
    if source != "-":
        client.bind((source, 0))
    try:
        client.connect((host, int(port)))
        client.send(b"?")
        print(client.recv(100).decode())
    except OSError as error:
        print(type(error).__name__)
"""


SETPRIV = shutil.which("setpriv") or "setpriv"  # the command's own PATH may lack it


class Pod(NamedTuple):
    """Two ends of a link; the pod's default routes lead to the node."""

    inside: Namespace
    node: Namespace


@contextmanager
def linked_pod() -> Iterator[Pod]:
    """Make a pod (10.9.0.1, 2001:db8::1) and a node (10.9.0.2, 2001:db8::2)."""
    with namespace() as inside, namespace() as node:
        with IPRoute(netns=inside.name) as kernel:
            kernel.link("add", ifname="eth0", kind="veth", peer="far")
            (far,) = kernel.link_lookup(ifname="far")
            kernel.link("set", index=far, net_ns_fd=node.name)
        for made, name, last in ((inside, "eth0", 1), (node, "far", 2)):
            with IPRoute(netns=made.name) as kernel:
                (index,) = kernel.link_lookup(ifname=name)
                kernel.link("set", index=index, state="up")
                kernel.addr("add", index=index, address=f"10.9.0.{last}", prefixlen=24)
                nodad = 2
                kernel.addr(
                    "add", index=index, address=f"2001:db8::{last}", prefixlen=64, flags=nodad
                )
        with IPRoute(netns=inside.name) as kernel:
            kernel.route("add", dst="default", gateway="10.9.0.2")
            kernel.route("add", dst="default", family=10, gateway="2001:db8::2")
        yield Pod(inside, node)


#: Of the system: a clone may lie where only root can look.
PYTHON = str(Path(sys.executable).resolve())


@cache
def readable() -> str:
    """Return a directory with what `python -m iptables` needs, which every user may read."""
    directory = Path(tempfile.mkdtemp(prefix="mesh-agent-tests-"))
    atexit.register(shutil.rmtree, directory)
    directory.chmod(0o755)
    shutil.copytree(ROOT / "iptables", directory / "iptables")
    for path in (directory / "iptables").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return str(directory)


def become(uid: int, gid: int) -> tuple[str, ...]:
    """Return what a command is put behind to run as another user."""
    return (SETPRIV, f"--reuid={uid}", f"--regid={gid}", "--clear-groups")


@contextmanager
def running(
    where: Namespace, code: str, *argv: str, wrapper: tuple[str, ...] = ()
) -> Iterator[None]:
    """Run Python code that prints 'ready' and ends with its standard input."""
    command = [
        NSENTER,
        f"--net={where.path}",
        *wrapper,
        PYTHON if wrapper else sys.executable,
        "-c",
        code,
        *argv,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout
        assert program.stdout.readline() == b"ready\n"
        yield
        program.communicate()


def ask(
    where: Namespace,
    target: str,
    *,
    user: tuple[str, ...],
    protocol: str = "tcp",
    source: str = "-",
) -> str:
    """Return what a connection is told; the target is 'host port', the user from `become`."""
    argv = (PYTHON, "-c", ASK, protocol, *target.split(), source)
    return where.run(*argv, wrapper=user).stdout.strip()
