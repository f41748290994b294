"""A node for tests: a network namespace with a bridge, and the network namespaces of its pods.

Whoever stands on it is what a kubelet is on its node: its sockets are the node's. Nothing has a
name, and nothing is left; see agent/demo/process.py.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Final, NamedTuple

import grpc
from pyroute2 import IPRoute

from agent.demo.process import IFA_F_NODAD, Namespace, entered, namespace

BRIDGE: Final = "cni0"
#: Without one of its own a bridge takes on a port's, another one whenever a pod comes or goes, and
#: what the other pods send to the node is lost until they ask for its address again.
BRIDGE_MAC: Final = "02:00:00:00:00:01"
#: The node's addresses by IP version; those of its pods differ from them in the last number.
ADDRESSES: Final = {"4": "10.244.7.1", "6": "fd00:7::1"}
FAMILIES: Final = {"4": socket.AF_INET, "6": socket.AF_INET6}
#: Their lengths, and flags of addresses.
PREFIXES: Final = {"4": (24, 0), "6": (64, IFA_F_NODAD)}
NAME: Final = "node"
#: What the node has for pods that limit nothing.
RESOURCES: Final = {"cpu": "4", "memory": "8Gi"}


class Sandbox(NamedTuple):
    """What the containers of a pod share."""

    inside: Namespace
    ips: tuple[str, ...]


class Node:
    """A node; make it by `node`."""

    def __init__(self, inside: Namespace, maker: ThreadPoolExecutor) -> None:
        self.inside = inside
        self._numbers = count(2)
        #: pyroute2 wants a thread without an event loop, and a namespace dies with the thread that
        #: made it: one thread for all.
        self._maker = maker

    @contextlib.asynccontextmanager
    async def sandbox(self, sysctls: Mapping[str, str], versions: str) -> AsyncIterator[Sandbox]:
        """Make a pod's network; everything in it is killed afterwards.

        Args:
            sysctls: what is set in it, by name.
            versions: of IP, those that the pod has, its main one first: "4", "6", "46" or "64".
        """
        loop = asyncio.get_running_loop()
        stack = contextlib.ExitStack()
        made = self._sandbox(next(self._numbers), versions, sysctls)
        try:
            yield await loop.run_in_executor(self._maker, stack.enter_context, made)
        finally:
            await loop.run_in_executor(self._maker, stack.close)

    @contextlib.contextmanager
    def _sandbox(self, number: int, versions: str, sysctls: Mapping[str, str]) -> Iterator[Sandbox]:
        ips = {each: f"{ADDRESSES[each][:-1]}{number}" for each in versions}
        with namespace() as inside:
            self._connect(inside, ips, f"veth{number}")
            for name, value in sysctls.items():
                done = inside.run(["tee", f"/proc/sys/{name.replace('.', '/')}"], text=value)
                assert done.returncode == 0, done.stderr
            yield Sandbox(inside, tuple(ips.values()))

    def _connect(self, pod: Namespace, ips: Mapping[str, str], interface: str) -> None:
        with self.inside.netlink() as here, pod.netlink() as there:
            peer = {"ifname": "eth0", "net_ns_pid": pod.holder}
            here.link("add", ifname=interface, kind="veth", peer=peer)
            (bridge,) = here.link_lookup(ifname=BRIDGE)
            (near,) = here.link_lookup(ifname=interface)
            here.link("set", index=near, master=bridge, state="up")
            _address(there, "eth0", ips)
            for version in ips:
                family = FAMILIES[version]
                there.route("add", family=family, dst="default", gateway=ADDRESSES[version])


def _address(netlink: IPRoute, interface: str, ips: Mapping[str, str]) -> None:
    (index,) = netlink.link_lookup(ifname=interface)
    netlink.link("set", index=index, state="up")
    for version, ip in ips.items():
        length, flags = PREFIXES[version]
        netlink.addr("add", index=index, address=ip, prefixlen=length, flags=flags)


@contextlib.contextmanager
def threads_of_grpc() -> Iterator[None]:
    """Have gRPC start its threads here, before this thread goes elsewhere.

    They connect, and live for as long as anything of gRPC is left: threads that began on a node
    would connect from there in the tests after it.
    """

    async def channel() -> grpc.aio.Channel:
        return grpc.aio.insecure_channel("unix:/nowhere")

    with asyncio.Runner() as runner:
        unused = runner.run(channel())
        try:
            yield
        finally:
            runner.run(unused.close(None))


@contextlib.contextmanager
def standing_on_a_node() -> Iterator[Node]:
    """Yield a node that this thread stands on; nothing of it is left afterwards.

    Call it where no event loop runs.
    """
    with threads_of_grpc(), namespace() as inside, entered(inside.holder):
        with inside.netlink() as netlink:
            netlink.link("add", ifname=BRIDGE, kind="bridge", address=BRIDGE_MAC)
            _address(netlink, BRIDGE, ADDRESSES)
        with ThreadPoolExecutor(1) as maker:
            yield Node(inside, maker)
