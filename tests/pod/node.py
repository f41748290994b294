"""A node for tests: a network namespace with a bridge, and the network namespaces of its pods.

Whoever stands on it is what a kubelet is on its node: its sockets are the node's. Nothing has a
name, and nothing is left; see agent/demo/process.py.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Final, NamedTuple

from pyroute2 import IPRoute

from agent.demo.process import Namespace, entered, namespace

BRIDGE: Final = "cni0"
ADDRESS: Final = "10.244.7.1"
NAME: Final = "node"
#: What the node has for pods that limit nothing.
RESOURCES: Final = {"cpu": "4", "memory": "8Gi"}


class Sandbox(NamedTuple):
    """What the containers of a pod share."""

    inside: Namespace
    ip: str


class Node:
    """A node; make it by `node`."""

    def __init__(self, inside: Namespace, maker: ThreadPoolExecutor) -> None:
        self.inside = inside
        self.address = ADDRESS
        self._numbers = count(2)
        #: pyroute2 wants a thread without an event loop, and a namespace dies with the thread that
        #: made it: one thread for all.
        self._maker = maker

    @contextlib.asynccontextmanager
    async def sandbox(self, sysctls: Mapping[str, str]) -> AsyncIterator[Sandbox]:
        """Make a pod's network; everything in it is killed afterwards."""
        ip = f"{ADDRESS.rpartition('.')[0]}.{next(self._numbers)}"
        loop = asyncio.get_running_loop()
        stack = contextlib.ExitStack()
        made = self._sandbox(ip, sysctls)
        try:
            yield await loop.run_in_executor(self._maker, stack.enter_context, made)
        finally:
            await loop.run_in_executor(self._maker, stack.close)

    @contextlib.contextmanager
    def _sandbox(self, ip: str, sysctls: Mapping[str, str]) -> Iterator[Sandbox]:
        with namespace() as inside:
            self._connect(inside, ip, f"veth{ip.rpartition('.')[2]}")
            for name, value in sysctls.items():
                done = inside.run(["tee", f"/proc/sys/{name.replace('.', '/')}"], text=value)
                assert done.returncode == 0, done.stderr
            yield Sandbox(inside, ip)

    def _connect(self, pod: Namespace, ip: str, interface: str) -> None:
        with self.inside.netlink() as here, pod.netlink() as there:
            peer = {"ifname": "eth0", "net_ns_pid": pod.holder}
            here.link("add", ifname=interface, kind="veth", peer=peer)
            (bridge,) = here.link_lookup(ifname=BRIDGE)
            (near,) = here.link_lookup(ifname=interface)
            here.link("set", index=near, master=bridge, state="up")
            _address(there, "eth0", ip)
            there.route("add", dst="default", gateway=ADDRESS)


def _address(netlink: IPRoute, interface: str, ip: str) -> None:
    (index,) = netlink.link_lookup(ifname=interface)
    netlink.link("set", index=index, state="up")
    netlink.addr("add", index=index, address=ip, prefixlen=24)


@contextlib.contextmanager
def standing_on_a_node() -> Iterator[Node]:
    """Yield a node that this thread stands on; nothing of it is left afterwards.

    Call it where no event loop runs.
    """
    with namespace() as inside, entered(inside.holder):
        with inside.netlink() as netlink:
            netlink.link("add", ifname=BRIDGE, kind="bridge")
            _address(netlink, BRIDGE, ADDRESS)
        with ThreadPoolExecutor(1) as maker:
            yield Node(inside, maker)
