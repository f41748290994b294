"""Cost of the status server: readiness, large scrapes, probes beside them, and probes that hang.

Method: the server runs in a process of its own, pinned to one CPU; Envoy's ports, the application
and the callers run on another one. Where something is paced or timed, a process of its own does it.

- readiness: 16 connections, each asks again when it has its answer, for 3 seconds, by plain
  sockets. "per CPU second" divides by the server's own CPU time, so that a slow caller does not
  matter.
- scrape: Envoy's page has 100,000 lines (18 MB). Growth is the peak of RSS (VmHWM, cleared before)
  over RSS before; the median of five scrapes, after one that imports what is needed. MB/s are of
  Envoy's page. Beside an application in OpenMetrics, Envoy's part becomes OpenMetrics; a strict
  page is parsed line by line.
- probe: TCP probes at 200 a second, each begun when it is due, timed from then, for 4 seconds,
  while such scrapes follow each other.
- hanging: 10,000 HTTP probes of an application that never answers; half of them run into their
  time limit of 0.1 s, half have no limit and a caller that leaves after 0.05 s. Sockets are the
  server's open files, looked at every 20 ms.

Targets: growth at most 5 MB, at least 100 MB/s (plain); probe p99 at most 15 ms; readiness at least
25,000/s on one core; sockets bounded, none left.
"""

import asyncio
import os
import re
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple, cast

# This folder holds an iptables.py, which must not stand for the package of that name.
sys.path.remove(str(Path(__file__).parent))

from agent.http.client import stream
from agent.http.message import Headers, Reply, Request
from agent.http.server import Handler, listening
from agent.metrics import Metrics
from agent.status.probes import HttpProbe, Probe, TcpProbe
from agent.status.run import Hooks, serving
from agent.status.scrape import Target
from agent.status.settings import ProbeSettings, ScrapeSettings, StatusSettings

SECONDS = 3.0
CONNECTIONS = 16
SCRAPES = 5
PROBES = 800
PROBES_PER_SECOND = 200
PROBERS = 16
HANGING = 10_000
HANGING_AT_ONCE = 200
PROBE, HANGS, LIFECYCLE = (
    "/app-health/bench/readyz",
    "/app-health/bench/livez",
    "/app-lifecycle/bench/prestopz",
)
LIVE = (
    b"cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 1\n"
    b"server.state: 0\nlistener_manager.workers_started: 1\n"
)
READY = b"GET /healthz/ready HTTP/1.1\r\nHost: bench\r\n\r\n"
LINES = 100_000
OPENMETRICS = (("Content-Type", "application/openmetrics-text; version=1.0.0"),)
TEXT = (("Content-Type", "text/plain; version=0.0.4"),)


class Ports(NamedTuple):
    """Of what the server asks."""

    envoy: int
    application: int
    hanging: int


def make_page() -> bytes:
    """Return a page as Envoy has them in a large mesh; the digits keep it from packing too well."""
    return b"# TYPE istio_requests_total counter\n" + b"".join(
        b'istio_requests_total{reporter="destination",source_workload="w%d",source_app="front",'
        b'destination_service="reviews.default.svc.cluster.local",response_code="200",'
        b'flags="-"} %d\n' % (number, number * 2654435761 % 2**32)
        for number in range(LINES)
    )


async def serve(ports: Ports, *, strict: bool) -> None:
    """Be the status server: print the port, then serve until killed."""

    async def nothing() -> None:
        return

    hooks = Hooks(terminating=lambda: None, checks={}, details={}, drain=nothing, quit=lambda: None)
    probes: dict[str, Probe] = {
        PROBE: TcpProbe(ports.envoy, 1.0),
        HANGS: HttpProbe("/", ports.hanging, timeout_seconds=0.1),
        LIFECYCLE: HttpProbe("/", ports.hanging),
    }
    settings = StatusSettings(
        port=0,
        admin_host="127.0.0.1",
        admin_port=ports.envoy,
        envoy_enabled=True,
        probes=ProbeSettings(probes),
        scrape=ScrapeSettings(ports.envoy, (Target(ports.application, "/metrics"),), strict=strict),
    )
    async with serving(settings, hooks, Metrics()) as port:
        print(port, flush=True)
        await asyncio.Event().wait()


def envoy(page: bytes) -> Handler:
    """Return Envoy's admin and metrics port."""

    async def answer(request: Request) -> Reply:
        return Reply(200, LIVE) if request.path == "/stats" else Reply(200, page, TEXT)

    return answer


async def application(request: Request) -> Reply:
    """Be an application that answers in the format it is asked for."""
    if "openmetrics" in request.header("accept"):
        return Reply(200, b"# TYPE app gauge\napp 1\n# EOF\n", OPENMETRICS)
    return Reply(200, b"# TYPE app gauge\napp 1\n", TEXT)


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take a request and never answer."""
    try:
        while await reader.read(65536):
            pass
    except OSError:
        pass
    finally:
        writer.close()


def pin(cpu: int) -> None:
    """Run on one CPU, the last one where there are not as many."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[min(cpu, len(cpus) - 1)]})


class Server:
    """The process, seen from outside."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port

    def kib(self, name: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(value) for value in re.findall(rf"{name}:\s+(\d+) kB", text))

    def clear_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def open_files(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())


@asynccontextmanager
async def running(ports: Ports, *, strict: bool = False) -> AsyncIterator[Server]:
    """Run a server until the block is left."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "serve", *map(str, ports), str(int(strict)),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        port = int(await cast("asyncio.StreamReader", process.stdout).readline())
        yield Server(process.pid, port)
    finally:
        process.kill()
        await process.wait()


# Callers, in processes of their own; each prints one line.


def ask_again(port: int) -> None:
    """Ask for readiness on some connections, and print how many answers there were."""
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    count, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        for client in clients:
            client.sendall(READY)
        for client in clients:
            answer = client.recv(4096)
            if not (answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\n")):
                raise SystemExit(f"not ready: {answer!r}")
        count += len(clients)
    print(count)


def probe_in_time(port: int) -> None:
    """Probe at a fixed rate, and print how long each took from when it was due, in seconds."""
    request = f"GET {PROBE} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n".encode()
    begin = time.monotonic() + 0.1

    def probe(number: int) -> float:
        due = begin + number / PROBES_PER_SECOND
        time.sleep(max(due - time.monotonic(), 0.0))
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(request)
            answer = client.recv(4096)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"probe failed: {answer!r}")
        return time.monotonic() - due

    with ThreadPoolExecutor(PROBERS) as pool:  # one that waits must not hold up the next
        print(*pool.map(probe, range(PROBES)))


async def called(caller: str, port: int) -> list[float]:
    """Return the numbers that a caller prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, caller, str(port), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    return [float(word) for word in printed.split()]


# Measurements.


async def readiness(server: Server) -> None:
    before = server.cpu_seconds()
    (total,) = await called("ask_again", server.port)
    used = server.cpu_seconds() - before
    print(
        f"readiness  {total / SECONDS:,.0f} requests/s on one CPU, "
        f"{total / used:,.0f} per CPU second, {CONNECTIONS} connections"
    )


async def scrape_once(server: Server, headers: Headers) -> int:
    size = 0
    async with stream(
        "GET", "127.0.0.1", server.port, "/metrics", headers=headers, timeout_seconds=60
    ) as incoming:
        async for piece in incoming:
            size += len(piece)
    return size


async def scrapes(server: Server, name: str, page_bytes: int, headers: Headers) -> None:
    await scrape_once(server, headers)
    rss, used = server.kib("VmRSS"), server.cpu_seconds()
    server.clear_peak()
    times, size = [], 0
    for _ in range(SCRAPES):
        start = time.monotonic()
        size = await scrape_once(server, headers)
        times.append(time.monotonic() - start)
    used = (server.cpu_seconds() - used) / SCRAPES
    middle = statistics.median(times)
    print(
        f"scrape     {name:<19} {page_bytes / 1e6 / middle:5.0f} MB/s, {middle * 1000:4.0f} ms, "
        f"{used * 1000:4.0f} ms CPU, {size / 1e6:4.1f} MB sent, "
        f"growth {(server.kib('VmHWM') - rss) * 1024 / 1e6:.1f} MB (base {rss / 1024:.1f} MiB)"
    )


async def probes(server: Server, name: str, headers: Headers) -> None:
    done = asyncio.Event()
    count = 0

    async def keep_scraping() -> None:
        nonlocal count
        while not done.is_set():
            await scrape_once(server, headers)
            count += 1

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_scraping())
        times = sorted(await called("probe_in_time", server.port))
        done.set()
    print(
        f"probe      during {count} scrapes, {name}: p50 {times[len(times) // 2] * 1000:.1f} ms, "
        f"p99 {times[len(times) * 99 // 100] * 1000:.1f} ms, most {times[-1] * 1000:.1f} ms, "
        f"{PROBES} at {PROBES_PER_SECOND}/s"
    )


async def hanging(server: Server) -> None:
    """Probe an application that never answers; sockets are the server's open files."""
    idle, most, rss = server.open_files(), 0, server.kib("VmRSS")
    left, answered, ended = HANGING, 0, asyncio.Event()

    async def probe_on() -> None:
        nonlocal left, answered
        while left > 0:
            left -= 1
            is_answered = await ask_hanging(server.port, leaves=left % 2 == 1)
            answered += is_answered

    async def look() -> None:
        nonlocal most
        while not ended.is_set():
            most = max(most, server.open_files())
            await asyncio.sleep(0.02)

    start = time.monotonic()
    async with asyncio.TaskGroup() as looking:
        looking.create_task(look())
        async with asyncio.TaskGroup() as tasks:
            for _ in range(HANGING_AT_ONCE):
                tasks.create_task(probe_on())
        ended.set()
    took = time.monotonic() - start
    give_up = start + took + 30
    while server.open_files() > idle and time.monotonic() < give_up:  # noqa: ASYNC110 - another's
        await asyncio.sleep(0.1)
    rest = time.monotonic() - start - took
    print(
        f"hanging    {HANGING:,} probes in {took:.1f} s, {answered:,} answered in time: "
        f"at most {most} open files, {idle} before, {server.open_files()} after {rest:.1f} s, "
        f"RSS {(server.kib('VmRSS') - rss) / 1024:+.1f} MiB"
    )


async def ask_hanging(port: int, *, leaves: bool) -> bool:
    """Return whether one probe was answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    path = LIFECYCLE if leaves else HANGS
    writer.write(f"GET {path} HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n".encode())
    answer = b""
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(0.05 if leaves else 10):
            answer = await reader.read()
    writer.close()
    return answer.startswith(b"HTTP/1.1 500")


async def main() -> None:
    async with AsyncExitStack() as stack:
        page = make_page()
        start = stack.enter_async_context
        silent = await start(await asyncio.start_server(hang, "127.0.0.1", 0, backlog=1024))
        ports = Ports(
            await start(listening(envoy(page), port=0, name="fake Envoy")),
            await start(listening(application, port=0, name="fake application")),
            silent.sockets[0].getsockname()[1],
        )
        accepts = {name: ("Accept-Encoding", name) for name in ("gzip", "zstd")}
        new = ("Accept", "application/openmetrics-text;version=1.0.0")
        async with running(ports) as server:
            print(f"idle       RSS {server.kib('VmRSS') / 1024:.1f} MiB")
            await readiness(server)
            await scrapes(server, "plain", len(page), ())
            await scrapes(server, "gzip", len(page), (accepts["gzip"],))
            await scrapes(server, "zstd", len(page), (accepts["zstd"],))
            await scrapes(server, "OpenMetrics", len(page), (new,))
            await probes(server, "plain", ())
            await probes(server, "gzip", (accepts["gzip"],))
            await hanging(server)
        async with running(ports, strict=True) as server:
            await scrapes(server, "strict", len(page), ())
            await scrapes(server, "strict, OpenMetrics", len(page), (new,))
            await probes(server, "strict", ())


if __name__ == "__main__":
    if len(sys.argv) == 1:
        pin(0)
        asyncio.run(main())
    elif sys.argv[1] == "serve":
        pin(1)
        asyncio.run(serve(Ports(*map(int, sys.argv[2:5])), strict=sys.argv[5] == "1"))
    else:
        pin(0)
        {"ask_again": ask_again, "probe_in_time": probe_in_time}[sys.argv[1]](int(sys.argv[2]))
