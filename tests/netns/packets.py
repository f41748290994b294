"""A pod and its peer, joined by two links, and packets between them.

In the pod a worker listens on many ports, stands in for every process there, and sends as any
user; in the peer it receives whatever comes, whatever the destination. It answers with where each
packet arrived. It runs as `python packets.py PEER` inside the pod's namespace, and is told what to
do by lines of JSON.
"""

import ctypes
import json
import select
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from pyroute2 import IPRoute

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.netns.namespaces import NSENTER, ROOT, Namespace, namespace

#: Where the pod has listeners, TCP and UDP.
PORTS = (53, 80, 443, 8080, 9000, 15001, 15006, 15008, 15020, 15021, 15053, 15090)
#: Where the peer has: everything is redirected there.
PEER_PORT = 9
#: By interface: the pod's addresses and the peer's.
ADDRESSES = {
    "eth0": {"10.9.0.1": "10.9.0.2", "2001:db8:9::1": "2001:db8:9::2"},
    "eth1": {"10.9.1.1": "10.9.1.2", "2001:db8:91::1": "2001:db8:91::2"},
}
LENGTHS = {4: 24, 6: 64}
EVERYTHING = {4: "0.0.0.0/0", 6: "::/0"}
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
NO_DUPLICATE_DETECTION = 2  # IFA_F_NODAD: the address can be used at once
#: What TPROXY mode needs of the network. Source: traffic-capture.md section 10.
MARK, TABLE = 1337, 133
CATCH_ALL = f"""
table inet any {{
  chain prerouting {{
    type nat hook prerouting priority -100;
    meta l4proto {{ tcp, udp }} redirect to :{PEER_PORT}
  }}
}}
"""
IP_TRANSPARENT = 19
NEW_NETWORK = 0x40000000  # CLONE_NEWNET


class Packet(NamedTuple):
    """The first packet of a flow; `interface` is the one by which it comes in, if it does."""

    protocol: str
    source: str
    destination: str
    port: int
    uid: int = 0
    gid: int = 0
    interface: str = ""
    wait_seconds: float = 2.0


class Arrival(NamedTuple):
    """Where a packet arrived: 'pod' or 'peer' and the listener's port, or '' and 0 for nowhere."""

    place: str
    port: int


def version(address: str) -> int:
    return 6 if ":" in address else 4


class Wire:
    """Applies rules in the pod, and sends packets there or from outside."""

    def __init__(self, pod: Namespace, worker: "subprocess.Popen[str]") -> None:
        self.pod = pod
        self._worker = worker

    def send(self, packets: Sequence[Packet]) -> list[Arrival]:
        """Send packets one after the other; return where each arrived."""
        return [Arrival(*each) for each in self._ask("send", [list(each) for each in packets])]

    def run(self, *commands: tuple[str, str]) -> list[str]:
        """Run commands in the pod, each with its standard input; return what each prints."""
        answers = self._ask("run", commands)
        for command, (status, said) in zip(commands, answers, strict=True):
            assert status == 0, (command, said)
        return [said for _, said in answers]

    def _ask(self, what: str, argument: object) -> list[Any]:
        assert self._worker.stdin
        assert self._worker.stdout
        self._worker.stdin.write(json.dumps([what, argument]) + "\n")
        self._worker.stdin.flush()
        answer: list[Any] = json.loads(self._worker.stdout.readline())
        return answer


@contextmanager
def wired() -> Iterator[Wire]:
    """Make both namespaces, joined, and the worker; remove everything after."""
    with namespace("::6/128") as pod, namespace() as peer:
        _join(pod, peer)
        peer.run("nft", "-f", "-", text=CATCH_ALL)
        argv = [NSENTER, f"--net={pod.path}", sys.executable, __file__, peer.path]
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as worker:
            yield Wire(pod, worker)
            worker.communicate()


def _join(pod: Namespace, peer: Namespace) -> None:
    with IPRoute(netns=pod.name) as inside, IPRoute(netns=peer.name) as outside:
        for name, addresses in ADDRESSES.items():
            inside.link("add", ifname=name, kind="veth", peer=f"far-{name}")
            (far,) = inside.link_lookup(ifname=f"far-{name}")
            inside.link("set", index=far, net_ns_fd=peer.name)
            _configure(inside, name, list(addresses))
            _configure(outside, f"far-{name}", list(addresses.values()))
        for name, addresses in ADDRESSES.items():
            (far,) = outside.link_lookup(ifname=f"far-{name}")
            for mine, theirs in addresses.items():
                everything = {"dst": EVERYTHING[version(mine)], "family": FAMILIES[version(mine)]}
                outside.route("add", **everything, gateway=mine, oif=far, priority=far)
                if name == "eth0":
                    inside.route("add", **everything, gateway=theirs)
        for family in FAMILIES.values():
            inside.rule("add", family=family, fwmark=MARK, table=TABLE)
        for number, family in FAMILIES.items():
            local = {"dst": EVERYTHING[number], "oif": 1, "scope": "host", "table": TABLE}
            inside.route("add", family=family, type="local", **local)


def _configure(kernel: Any, name: str, addresses: Sequence[str]) -> None:  # noqa: ANN401 - pyroute2
    (index,) = kernel.link_lookup(ifname=name)
    kernel.link("set", index=index, state="up")
    for address in addresses:
        length = LENGTHS[version(address)]
        flags = NO_DUPLICATE_DETECTION if version(address) == 6 else 0
        kernel.addr("add", index=index, address=address, prefixlen=length, flags=flags)


class _Worker:
    """What runs inside."""

    def __init__(self, peer: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        here = Path("/proc/self/ns/net")
        self._here, self._there = here.open(), Path(peer).open()  # noqa: SIM115 - for its life
        self._source_ports = count(20000)  # none is used twice: no connection is taken for another
        self._listeners: dict[int, tuple[socket.socket, Arrival]] = {}
        self._poll = select.poll()
        for port in PORTS:
            self._listen("pod", port)
        self._enter(self._there)
        self._listen("peer", PEER_PORT)
        self._enter(self._here)

    def _enter(self, namespace: Any) -> None:  # noqa: ANN401 - a file
        assert self._libc.setns(namespace.fileno(), NEW_NETWORK) == 0

    def _listen(self, place: str, port: int) -> None:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            listener = socket.socket(socket.AF_INET6, kind)
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
            listener.bind(("::", port))
            if kind == socket.SOCK_STREAM:
                listener.listen()
            self._listeners[listener.fileno()] = listener, Arrival(place, port)
            self._poll.register(listener, select.POLLIN)

    def send(self, packets: list[list[Any]]) -> list[Arrival]:
        return [self._send(Packet(*each)) for each in packets]

    def _send(self, packet: Packet) -> Arrival:
        source_port = next(self._source_ports)
        with self._client(packet, source_port) as client:
            try:
                client.connect((packet.destination, packet.port))
            except BlockingIOError:
                pass
            except OSError:
                return Arrival("", 0)
            if packet.protocol == "udp":
                client.send(b"?")
            return self._arrival(source_port, packet.wait_seconds)

    def _client(self, packet: Packet, source_port: int) -> socket.socket:
        """Return a socket that belongs to the packet's user, in its namespace."""
        if packet.interface:
            self._enter(self._there)
        self._libc.setfsgid(packet.gid)
        self._libc.setfsuid(packet.uid)
        kind = socket.SOCK_STREAM if packet.protocol == "tcp" else socket.SOCK_DGRAM
        client = socket.socket(FAMILIES[version(packet.destination)], kind)
        self._libc.setfsuid(0)
        self._libc.setfsgid(0)
        client.setblocking(False)  # noqa: FBT003 - that is its argument
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # no TIME_WAIT
        if packet.interface:
            device = f"far-{packet.interface}".encode()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
            self._enter(self._here)
        client.bind((packet.source, source_port))
        return client

    def _arrival(self, source_port: int, wait_seconds: float) -> Arrival:
        for fd, _ in self._poll.poll(wait_seconds * 1000):
            listener, arrival = self._listeners[fd]
            if listener.type == socket.SOCK_DGRAM:
                _, peer = listener.recvfrom(100)
            else:
                connection, peer = listener.accept()
                connection.close()
            assert peer[1] == source_port
            return arrival
        return Arrival("", 0)

    def run(self, commands: list[list[str]]) -> list[tuple[int, str]]:
        found = []
        for command, text in commands:
            done = subprocess.run(
                shlex.split(command), input=text, capture_output=True, text=True, check=False
            )
            found.append((done.returncode, done.stdout + done.stderr))
        return found


def _main(peer: str) -> None:
    worker = _Worker(peer)
    for line in sys.stdin:
        what, argument = json.loads(line)
        answer = worker.send(argument) if what == "send" else worker.run(argument)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main(sys.argv[1])
