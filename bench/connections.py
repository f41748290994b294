"""Time per new captured connection: the iptables tools' rules against nftables' own.

Method: in a network namespace of its own whose default route leads nowhere, the injector's rules
are installed by each backend in turn, and one process, as an application's user, connects to
addresses elsewhere while it listens on Envoy's outbound port: each connection is redirected,
accepted and reset. Without rules the same process connects to that port itself. Rounds of all
backends are interleaved; a figure is the median of the rounds' means, in microseconds from
connect() to the accepted socket. The address families share a listener. What rules cost is the
difference to the first line, part of it being connection tracking, which NAT needs.
"""

import ctypes
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Sequence

from pyroute2 import IPRoute
from shared.pod import AGENT, compile_sources, enter_namespace

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 9
CONNECTIONS = 1000  # of each family, each round
INJECTED = (
    "istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*",
    "-x", "", "-b", "*", "-d", "15090,15021,15020", "--dual-stack", "--reconcile",
)  # fmt: skip
BACKENDS = {
    "iptables, legacy": ("--force-iptables-binary=legacy",),
    "iptables, nft": ("--force-iptables-binary=nft",),
    "native nftables": ("--native-nftables",),
}
OUTBOUND_PORT = 15001
APPLICATION = 5000
HERE = {socket.AF_INET: ("127.0.0.1", OUTBOUND_PORT), socket.AF_INET6: ("::1", OUTBOUND_PORT)}
ELSEWHERE = {socket.AF_INET: ("192.0.2.1", 80), socket.AF_INET6: ("2001:db8:1::1", 80)}
RESET = struct.pack("=ii", 1, 0)  # SO_LINGER for no seconds


def join_nowhere() -> None:
    """Make a link whose other end is nobody's, and default routes over it."""
    with IPRoute() as kernel:
        kernel.link("add", ifname="eth0", kind="veth", peer="far")
        for name in ("far", "eth0"):
            (index,) = kernel.link_lookup(ifname=name)
            kernel.link("set", index=index, state="up")
        kernel.addr("add", index=index, address="10.9.0.1", prefixlen=24)
        kernel.addr("add", index=index, address="2001:db8::1", prefixlen=64, flags=2)  # no DAD
        kernel.route("add", dst="0.0.0.0/0", oif=index)
        kernel.route("add", dst="::/0", family=socket.AF_INET6, oif=index)


def change_rules(backend: Sequence[str], *more: str) -> None:
    subprocess.run([AGENT, *INJECTED, *backend, *more], check=True, stdout=subprocess.DEVNULL)


def microseconds(listener: socket.socket, family: int, target: tuple[str, int]) -> float:
    """Return the mean time from connect() to the accepted socket."""
    taken = 0.0
    for _ in range(CONNECTIONS):
        client = socket.socket(family, socket.SOCK_STREAM)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        started = time.perf_counter()
        client.connect(target)
        accepted, _ = listener.accept()
        taken += time.perf_counter() - started
        client.close()
        accepted.close()
    return taken / CONNECTIONS * 1e6


def measure(listener: socket.socket, targets: dict[int, tuple[str, int]]) -> list[float]:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.setfsuid(APPLICATION)
    libc.setfsgid(APPLICATION)
    try:
        return [microseconds(listener, family, target) for family, target in targets.items()]
    finally:
        libc.setfsuid(os.getuid())
        libc.setfsgid(os.getgid())


def main() -> None:
    enter_namespace()
    compile_sources()
    join_nowhere()
    listener = socket.create_server(
        ("::", OUTBOUND_PORT), family=socket.AF_INET6, dualstack_ipv6=True
    )
    taken: dict[str, list[list[float]]] = {name: [] for name in ("no rules", *BACKENDS)}
    for _ in range(ROUNDS):
        taken["no rules"].append(measure(listener, HERE))
        for name, backend in BACKENDS.items():
            change_rules(backend)
            taken[name].append(measure(listener, ELSEWHERE))
            change_rules(backend, "--cleanup-only")
    print(f"{'microseconds per connection':28} {'IPv4':>8} {'IPv6':>8}")
    for name, rounds in taken.items():
        ipv4, ipv6 = (statistics.median(means) for means in zip(*rounds, strict=True))
        print(f"{name:28} {ipv4:8.1f} {ipv6:8.1f}")


if __name__ == "__main__":
    main()
