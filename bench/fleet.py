"""How a fleet comes back after its control plane was restarted: a histogram of arrivals.

    bench/fleet.py [--agents N] [--down SECONDS]

1,000 relays, in few processes, each with a client that behaves as Envoy: it sends one request, and
after the end of a stream comes back as Envoy does, which is after a random time below 500 ms, a
bound that doubles up to 30 s with each stream without a response. The control plane, in clear on
the loopback, is killed and starts anew, at once or after a while; the arrivals of streams at it
are counted in tenths of a second, from the first one until 95 % are there: those that come last
are the few whose Envoy has waited for long already. Target: no tenth has more than three times the
mean.
"""

import argparse
import asyncio
import collections
import gc
import json
import logging
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

PROCESSES = 4
BIN_SECONDS = 0.1
BASE_SECONDS, LONGEST_SECONDS = 0.5, 30.0
PATIENCE_SECONDS = 120
DESCRIPTORS = 65536
MOST = 0.95


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


async def act_control_plane(port: int) -> None:
    """Answer each stream's first request; print when each stream came, by CLOCK_MONOTONIC."""
    from agent.xds.discovery import Kind, write_response  # noqa: PLC0415 - by role
    from agent.xds.resources import CLUSTER  # noqa: PLC0415 - by role
    from tests.fakes.control_plane import Stream, control_plane  # noqa: PLC0415 - by role

    empty = write_response(Kind.DELTA, CLUSTER, version="1", nonce="1", resources=())

    async def answer(stream: Stream) -> None:
        at = time.monotonic()
        await stream.receive()
        say(at=at)
        await stream.send(empty)

    gc.disable()  # thousands of streams: a pause of its own would look like a burst
    async with control_plane(port=port) as plane:
        say(port=plane.port)
        kept = set()
        while True:
            stream = await plane.accept()
            kept.add(asyncio.create_task(answer(stream)))


async def act_agents(port: int, count: int) -> None:
    """Run relays and their Envoys."""
    from agent.xds.run import serving  # noqa: PLC0415 - by role
    from agent.xds.settings import (  # noqa: PLC0415 - by role
        CredentialSettings,
        UpstreamSettings,
        XdsSettings,
    )

    upstream = UpstreamSettings(
        address=f"127.0.0.1:{port}",
        tls=False,
        server_name="istiod",
        credentials=CredentialSettings(),
        metadata=(),
        send_token=False,
    )
    answers = 0

    def answered() -> None:
        """Let the collector pass over what lasts, as an agent does once it is up.

        In a process with hundreds of them its pauses would look like bursts.
        """
        nonlocal answers
        answers += 1
        if answers == count:
            gc.freeze()

    async with AsyncExitStack() as stack:
        directory = stack.enter_context(TemporaryDirectory(prefix="bench-fleet-"))
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                path = f"{directory}/{number}/XDS"
                relay = serving(
                    XdsSettings(path, upstream),
                    count=lambda *_args, **_labels: None,
                    rng=random.random,
                )
                await stack.enter_async_context(relay)
                group.create_task(act_envoy(path, answered))


async def act_envoy(path: str, answered: Callable[[], None]) -> None:
    """Keep a stream open, as Envoy does; say of each that it was answered."""
    from agent.xds.discovery import Kind, write_request  # noqa: PLC0415 - by role
    from agent.xds.resources import CLUSTER  # noqa: PLC0415 - by role
    from tests.fakes.ads_client import ads_client  # noqa: PLC0415 - by role

    bound = BASE_SECONDS
    async with ads_client(path) as client:
        while True:
            call = client.open(Kind.DELTA)
            try:
                await call.send(write_request(Kind.DELTA, CLUSTER))
                await call.receive()
                answered()
                bound = BASE_SECONDS
                await call.rest()
            except Exception:  # noqa: BLE001, S110 - Envoy comes back whatever it was
                pass
            await asyncio.sleep(random.random() * bound)  # noqa: S311 - nothing secret
            bound = min(bound * 2, LONGEST_SECONDS)


class Plane:
    """The control plane's process."""

    def __init__(self, port: int = 0) -> None:
        self.process = spawn("control-plane", str(port))
        self.port = int(self._said()["port"])

    def arrivals(self, count: int) -> list[float]:
        """Return when that many streams came."""
        return [self._said()["at"] for _ in range(count)]

    def _said(self) -> dict[str, float]:
        line = self.process.stdout.readline() if self.process.stdout else ""
        said: dict[str, float] = json.loads(line)
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def spawn(*role: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, __file__, "--role", *role]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def show(title: str, killed: float, arrivals: list[float]) -> None:
    """Print a histogram."""
    arrivals.sort()
    first, last = arrivals[0], arrivals[-1]
    most = arrivals[: int(len(arrivals) * MOST)]
    bins = collections.Counter(int((at - first) / BIN_SECONDS) for at in most)
    print(f"{title}: {len(arrivals)} agents, the first one {first - killed:.1f} s after the end,")
    print(
        f"the last one {last - first:.1f} s later; of the first {MOST:.0%}, in tenths of a second:"
    )
    for number in range(max(bins) + 1):
        print(f"  {number * BIN_SECONDS:5.1f} s {bins[number]:4d} {'#' * (bins[number] // 4)}")
    mean, largest = len(most) / (max(bins) + 1), max(bins.values())
    print(f"  mean {mean:.0f}, largest {largest}: {largest / mean:.1f} times the mean")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--down", type=float, nargs="*", default=[0.0, 2.0, 5.0])
    parser.add_argument("--role", nargs="*", default=[])
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
    if arguments.role[:1] == ["control-plane"]:
        asyncio.run(act_control_plane(int(arguments.role[1])))
        return
    if arguments.role[:1] == ["agents"]:
        logging.disable()  # of thousands of streams that end
        asyncio.run(act_agents(*map(int, arguments.role[1:])))
        return
    plane = Plane()
    share = arguments.agents // PROCESSES
    agents = [spawn("agents", str(plane.port), str(share)) for _ in range(PROCESSES)]
    try:
        plane.arrivals(share * PROCESSES)
        time.sleep(2)
        for down in arguments.down:
            killed = time.monotonic()
            plane.kill()
            time.sleep(down)
            plane = Plane(plane.port)
            show(f"down for {down:g} s", killed, plane.arrivals(share * PROCESSES))
            time.sleep(2)
    finally:
        for process in (*agents, plane.process):
            process.kill()


if __name__ == "__main__":
    main()
