"""What the DNS proxy does in a second, what forwarding adds, and what 50,000 names cost.

Method: proxy, upstream resolver and client are processes of their own; the proxy has one CPU to
itself, the others share another.

- hits: 16 queries under way at any time for 3 seconds. "the same names" are 200, whose replies are
  ready after the first time; "ever other names" go through all 50,000 and are made anew each time.
- forwarding: one query at a time, to the resolver itself and through the proxy, in turns, 2,000
  each; what it adds is the difference of the medians.
- names: Anonymous of /proc/PID/smaps_rollup before and after the table of 50,000 Kubernetes hosts;
  meanwhile a query follows the other, and the longest that one waits is what a probe would wait.

Targets: at least 10,000 hits/s with p99 of 5 ms at most, 0.5 ms added, 40 MB.
"""

import asyncio
import os
import re
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

# This folder holds modules that must not stand for packages of the same names.
sys.path.remove(str(Path(__file__).parent))

import dns.message

from agent.dns.race import Server
from agent.dns.resolv_conf import ResolvConf
from agent.dns.run import Proxy
from agent.dns.server import listening
from agent.dns.settings import DnsSettings
from agent.metrics import Metrics
from agent.protobuf.wire import message

NAMES = 50_000
SECONDS = 3.0
UNDER_WAY = 16
TURNS, QUERIES = 10, 200
LOOPBACK = "127.0.0.1"
SUFFIX = "svc.cluster.local"
UPSTREAM_NAME = "www.example.com"


def host(number: int) -> str:
    return f"service-{number}-of-an-app.namespace-{number % 500}.{SUFFIX}"


def table() -> bytes:
    """Return a NameTable as istiod sends it."""
    pairs = []
    for number in range(NAMES):
        short, namespace, _ = host(number).split(".", 2)
        ip = f"10.{96 + number // 65536}.{number // 256 % 256}.{number % 256}"
        info = message((1, ip), (2, "Kubernetes"), (3, short), (4, namespace))
        pairs.append(message((1, message((1, host(number)), (2, info)))))
    return b"".join(pairs)


def pin(cpu: int) -> None:
    """Run on one CPU, the last one where there are not as many."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[min(cpu, len(cpus) - 1)]})


def anonymous_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"Anonymous:\s+(\d+) kB", text)
    return int(found[1]) / 1024 if found else 0.0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def serve(upstream_port: int) -> None:
    """Be the proxy: print the port; take the table when told to; serve until killed."""
    settings = DnsSettings(enabled=True, namespace="namespace-7", domain=f"namespace-7.{SUFFIX}")
    proxy = Proxy(settings, Metrics())
    async with listening(LOOPBACK, 0, proxy.reply) as own:
        proxy.use(ResolvConf((Server(LOOPBACK, upstream_port),), f"namespace-7.{SUFFIX}"))
        await proxy.replace(b"")
        print(own[0].port, flush=True)
        loop = asyncio.get_running_loop()
        paths: asyncio.Queue[str] = asyncio.Queue()
        loop.add_reader(sys.stdin, lambda: paths.put_nowait(sys.stdin.readline().strip()))
        while path := await paths.get():
            started = time.perf_counter()
            await proxy.replace(Path(path).read_bytes())  # noqa: ASYNC240 - from memory, once
            print(time.perf_counter() - started, flush=True)


def be_upstream() -> None:
    """Be the resolver: print the port, then answer every query alike."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((LOOPBACK, 0))
        print(sock.getsockname()[1], flush=True)
        while True:
            wire, peer = sock.recvfrom(4096)
            head = wire[:2] + b"\x81\x80\0\1\0\1\0\0\0\0"
            sock.sendto(head + wire[12:] + b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\1\2\3\4", peer)


@contextmanager
def child(*argv: str, cpu: int) -> Iterator[subprocess.Popen[str]]:
    """Run this script as something else; its first line is its port."""
    command = [sys.executable, __file__, str(cpu), *argv]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline() if process.stdout else ""


def queries(names: Iterable[str]) -> list[bytes]:
    return [dns.message.make_query(name, "A").to_wire()[2:] for name in names]


def client(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect((LOOPBACK, port))
    sock.settimeout(5)
    return sock


def hits(port: int, pid: int, what: str, names: Iterable[str]) -> None:
    asked = cycle(queries(names))
    clock = time.perf_counter
    times: list[float] = []
    sent = [0.0] * UNDER_WAY
    before, end = cpu_seconds(pid), clock() + SECONDS
    with client(port) as sock:
        for number in range(UNDER_WAY):
            sent[number] = clock()
            sock.send(number.to_bytes(2, "big") + next(asked))
        while (now := clock()) < end:
            reply = sock.recv(4096)
            number = reply[1]
            times.append(now - sent[number])
            sent[number] = now
            sock.send(reply[:2] + next(asked))
    used = cpu_seconds(pid) - before
    p99 = statistics.quantiles(times, n=100)[98]
    print(
        f"hits, {what:17} {len(times) / SECONDS:8,.0f}/s on one CPU, "
        f"{len(times) / used:,.0f} per CPU second, p99 {p99 * 1000:.2f} ms"
    )


def round_trips(port: int, tail: bytes) -> list[float]:
    clock = time.perf_counter
    times = []
    with client(port) as sock:
        for number in range(QUERIES):
            started = clock()
            sock.send(number.to_bytes(2, "big") + tail)
            sock.recv(4096)
            times.append(clock() - started)
    return times


def forwarding(port: int, upstream_port: int, pid: int) -> None:
    (tail,) = queries([UPSTREAM_NAME])
    direct: list[float] = []
    through: list[float] = []
    used = 0.0
    for _ in range(TURNS):
        direct += round_trips(upstream_port, tail)
        before = cpu_seconds(pid)
        through += round_trips(port, tail)
        used += cpu_seconds(pid) - before
    alone, both = statistics.median(direct) * 1000, statistics.median(through) * 1000
    print(
        f"forwarding              adds {both - alone:.3f} ms at the median "
        f"({alone:.3f} to the resolver, {both:.3f} through the proxy), "
        f"{used / len(through) * 1e6:.0f} us of CPU"
    )


def names(port: int, process: subprocess.Popen[str], folder: Path) -> None:
    path = folder / "table"
    path.write_bytes(table())
    round_trips(port, queries([UPSTREAM_NAME])[0])  # everything is loaded and warm
    before = anonymous_mb(process.pid)
    if process.stdin:
        process.stdin.write(f"{path}\n")
        process.stdin.flush()
    longest = 0.0
    tail = queries(["missing"])[0]
    with client(port) as sock:
        while not select.select([process.stdout], [], [], 0)[0]:
            started = time.perf_counter()
            sock.send(b"\0\1" + tail)
            sock.recv(4096)
            longest = max(longest, time.perf_counter() - started)
    seconds = float(line(process))
    print(
        f"{NAMES:,} names            {anonymous_mb(process.pid) - before:.1f} MB, read in "
        f"{seconds:.2f} s; the longest wait meanwhile {longest * 1000:.1f} ms"
    )


def bench() -> None:
    pin(1)
    with (
        TemporaryDirectory() as folder,
        child("upstream", cpu=1) as upstream,
        child("proxy", upstream_port := line(upstream).strip(), cpu=0) as proxy,
    ):
        port = int(line(proxy))
        names(port, proxy, Path(folder))
        hits(port, proxy.pid, "the same names", map(host, range(200)))
        hits(port, proxy.pid, "ever other names", map(host, range(NAMES)))
        forwarding(port, int(upstream_port), proxy.pid)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [cpu, "upstream"]:
            pin(int(cpu))
            be_upstream()
        case [cpu, "proxy", upstream_port]:
            pin(int(cpu))
            asyncio.run(serve(int(upstream_port)))
        case _:
            bench()
