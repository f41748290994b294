"""Cost of the status server: readiness requests, large scrapes, and probes beside them.

Method: the server runs in a process of its own, pinned to one CPU. Envoy's admin and metrics ports
and the callers are in this process, on another CPU.

- readiness: 8 connections, each asks again when it has its answer, for 3 seconds. "per CPU second"
  divides by the server's own CPU time, so that a slow caller does not matter.
- scrape: Envoy's page has 100,000 lines (19 MB). RSS is VmRSS before and after, peak is VmHWM,
  cleared before. The page is asked for plain, then compressed, five times each.
- probe: TCP probes of this process at 50 a second while such scrapes follow each other.

Targets: cases.md M1 (growth below 5 MiB) and P12 (p99 below 100 ms).
"""

import asyncio
import os
import re
import statistics
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

# This folder holds an iptables.py, which must not stand for the package of that name.
sys.path.remove(str(Path(__file__).parent))

from agent.http.client import fetch, stream
from agent.http.message import Headers, Reply, Request
from agent.http.server import Handler, listening
from agent.metrics import Metrics
from agent.status.probes import TcpProbe
from agent.status.run import Hooks, serving
from agent.status.settings import ProbeSettings, ScrapeSettings, StatusSettings

SECONDS = 3.0
CONNECTIONS = 8
SCRAPES = 5
PROBES = 100
PROBES_PER_SECOND = 50
PROBE = "/app-health/bench/readyz"
LIVE = (
    b"cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 1\n"
    b"server.state: 0\nlistener_manager.workers_started: 1\n"
)
READY = b"GET /healthz/ready HTTP/1.1\r\nHost: bench\r\n\r\n"
LINES = 100_000


def make_page() -> bytes:
    """Return a page as Envoy has them in a large mesh; the digits keep it from packing too well."""
    return b"".join(
        b'istio_requests_total{reporter="destination",source_workload="w%d",source_app="front",'
        b'destination_service="reviews.default.svc.cluster.local",response_code="200",'
        b'flags="-"} %d\n' % (number % 997, number * 2654435761 % 2**32)
        for number in range(LINES)
    )


async def serve(admin_port: int) -> None:
    """Be the status server: print the port, then serve until killed."""

    async def nothing() -> None:
        return

    hooks = Hooks(terminating=lambda: None, checks={}, details={}, drain=nothing, quit=lambda: None)
    settings = StatusSettings(
        port=0,
        admin_host="127.0.0.1",
        admin_port=admin_port,
        envoy_enabled=True,
        probes=ProbeSettings({PROBE: TcpProbe(admin_port, 1.0)}),
        scrape=ScrapeSettings(envoy_port=admin_port),
    )
    async with serving(settings, hooks, Metrics()) as port:
        print(port, flush=True)
        await asyncio.Event().wait()


def envoy(page: bytes) -> Handler:
    """Return Envoy's admin and metrics port."""

    async def answer(request: Request) -> Reply:
        if request.path == "/stats":
            return Reply(200, LIVE)
        return Reply(200, page, (("Content-Type", "text/plain"),))

    return answer


def pin(cpu: int) -> None:
    """Run on one CPU, the last one where there are not as many."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[min(cpu, len(cpus) - 1)]})


def status_kib(pid: int, name: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(value) for value in re.findall(rf"{name}:\s+(\d+) kB", text))


def clear_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ask_again(port: int, end: float) -> int:
    """Return how many answers one connection got until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    while time.monotonic() < end:
        writer.write(READY)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"not ready: {head!r}")
        count += 1
    writer.close()
    return count


async def readiness(port: int, pid: int) -> None:
    before, end = cpu_seconds(pid), time.monotonic() + SECONDS
    counts = await asyncio.gather(*(ask_again(port, end) for _ in range(CONNECTIONS)))
    total, used = sum(counts), cpu_seconds(pid) - before
    print(
        f"readiness  {total / SECONDS:,.0f} requests/s on one CPU, "
        f"{total / used:,.0f} per CPU second, {CONNECTIONS} connections"
    )


async def scrape_once(port: int, headers: Headers) -> int:
    size = 0
    async with stream(
        "GET", "127.0.0.1", port, "/metrics", headers=headers, timeout_seconds=60
    ) as incoming:
        async for piece in incoming:
            size += len(piece)
    return size


async def scrapes(port: int, pid: int, name: str, headers: Headers) -> None:
    rss = status_kib(pid, "VmRSS")
    clear_peak(pid)
    times = []
    size, used = 0, cpu_seconds(pid)
    for _ in range(SCRAPES):
        start = time.monotonic()
        size = await scrape_once(port, headers)
        times.append(time.monotonic() - start)
    used = (cpu_seconds(pid) - used) / SCRAPES
    print(
        f"scrape     {LINES:,} lines {name}: {size / 1e6:.1f} MB sent, "
        f"{statistics.median(times) * 1000:.0f} ms, {used * 1000:.0f} ms CPU, "
        f"RSS {(status_kib(pid, 'VmRSS') - rss) / 1024:+.1f} MiB, "
        f"peak +{(status_kib(pid, 'VmHWM') - rss) / 1024:.1f} MiB (base {rss / 1024:.1f})"
    )


async def probes(port: int) -> None:
    times: list[float] = []
    done = asyncio.Event()

    async def keep_scraping() -> None:
        while not done.is_set():
            await scrape_once(port, (("Accept-Encoding", "gzip"),))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_scraping())
        for _ in range(PROBES):
            start = time.monotonic()
            response = await fetch("GET", "127.0.0.1", port, PROBE, timeout_seconds=5)
            times.append(time.monotonic() - start)
            if response.status != 200:
                raise SystemExit(f"probe failed: {response}")
            await asyncio.sleep(1 / PROBES_PER_SECOND)
        done.set()
    times.sort()
    print(
        f"probe      during compressed scrapes: p50 {times[len(times) // 2] * 1000:.1f} ms, "
        f"p99 {times[len(times) * 99 // 100] * 1000:.1f} ms of {PROBES} at {PROBES_PER_SECOND}/s"
    )


async def main() -> None:
    async with AsyncExitStack() as stack:
        page = make_page()
        fake = listening(envoy(page), port=0, name="fake Envoy")
        admin_port = await stack.enter_async_context(fake)
        server = await asyncio.create_subprocess_exec(
            sys.executable, __file__, str(admin_port), stdout=asyncio.subprocess.PIPE
        )
        try:
            port = int(await cast("asyncio.StreamReader", server.stdout).readline())
            print(f"idle       RSS {status_kib(server.pid, 'VmRSS') / 1024:.1f} MiB")
            await readiness(port, server.pid)
            await scrape_once(port, ())  # imports what a scrape needs
            await scrapes(port, server.pid, "plain", ())
            await scrapes(port, server.pid, "gzip", (("Accept-Encoding", "gzip"),))
            await probes(port)
        finally:
            server.kill()
            await server.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        pin(1)
        asyncio.run(serve(int(sys.argv[1])))
    else:
        pin(0)
        asyncio.run(main())
