"""What AGENT_XDS_CACHE costs while pushes pass, and what it gives at a start without istiod.

    bench/cache.py [--starts N] [--pushes N]

Start: in a network namespace of its own, a pod is started once with a control plane, and then N
times without one, in /dev/shm as a pod's volume is; time is from exec of the agent until port 15021
answers 200, with the defaults: what the agent waits for the control plane is included. Pushes: a
relay in a process of its own, with and without a cache, passes pushes of 5,000 resources that are
accepted; its peak is the largest Anonymous of /proc/PID/smaps_rollup above that before, what is
kept is read 2 seconds later, CPU is that of the whole process. Burst: 2,000 pushes of 2 KB as fast
as they are taken.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from relay import MEGABYTE, ROOT, SERVER_NAME, Actor, act_relay
from shared import pod

from agent.protobuf.wire import message
from agent.xds.discovery import Kind, Resource, write_request, write_response
from agent.xds.resources import CLUSTER, ENDPOINT

RESOURCES = 5000
BURST = 2000
PUSH_MEGABYTES = (20, 60)
#: A burst is kept for good after a second.
SETTLE_SECONDS = 2


class Relay(Actor):
    """A relay in a process of its own, and both its ends in this one."""

    def __init__(self, directory: str, port: int, *, cached: bool) -> None:
        command = [sys.executable, __file__, "--relay", directory, str(port), str(int(cached))]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if self._process.stdout is None:
            raise RuntimeError("no pipe")
        self.pid = self._process.pid
        self._process.stdout.readline()


@asynccontextmanager
async def relayed(*, cached: bool) -> AsyncIterator[tuple["Pushes", Relay]]:
    from tests.fakes.ads_client import ads_client  # noqa: PLC0415 - not in the relay
    from tests.fakes.control_plane import Authority, control_plane  # noqa: PLC0415 - as above

    with TemporaryDirectory(dir=pod.VOLUMES) as name:
        authority = Authority()
        Path(name, "root.pem").write_bytes(authority.root)  # noqa: ASYNC240 - nothing waits for it
        async with control_plane(pair=authority.issue(SERVER_NAME)) as plane:
            relay = Relay(name, plane.port, cached=cached)
            try:
                async with ads_client(f"{name}/XDS") as client:
                    call = client.open(Kind.DELTA)
                    node = message((1, message((1, "sidecar~10.0.0.1~pod.ns~domain"))))
                    for type_url in (CLUSTER, ENDPOINT):
                        await call.send(write_request(Kind.DELTA, type_url) + node)
                    stream = await plane.accept()
                    for _ in range(2):
                        await stream.receive()
                    yield Pushes(stream, call), relay
            finally:
                relay.stop()


class Pushes:
    """Sends pushes and accepts them."""

    def __init__(self, stream: object, call: object) -> None:
        from tests.fakes.ads_client import AdsCall  # noqa: PLC0415 - not in the relay
        from tests.fakes.control_plane import Stream  # noqa: PLC0415 - as above

        if not isinstance(stream, Stream) or not isinstance(call, AdsCall):
            raise TypeError
        self._stream, self._call = stream, call
        self._nonce = 0

    async def push(self, type_url: str, count: int, size: int) -> float:
        """Return the seconds that a push took."""
        self._nonce += 1
        resources = [
            Resource(type_url, f"outbound|80||service-{i}.ns.svc.cluster.local", "", b"x" * size)
            for i in range(count)
        ]
        raw = write_response(
            Kind.DELTA, type_url, version="", nonce=str(self._nonce), resources=resources
        )
        del resources
        started = time.perf_counter()
        sending = asyncio.create_task(self._stream.send(raw))
        del raw
        await self._call.receive()
        seconds = time.perf_counter() - started
        await sending
        await self._call.send(write_request(Kind.DELTA, type_url, nonce=str(self._nonce)))
        await self._stream.receive()
        return seconds


async def measure_pushes(pushes: int, *, cached: bool) -> None:
    label = "with cache" if cached else "without"
    async with relayed(cached=cached) as (control, relay):
        await control.push(CLUSTER, 10, 100)
        await asyncio.sleep(SETTLE_SECONDS)
        for megabytes in PUSH_MEGABYTES:
            base, peaks, kept, seconds, cpu = relay.anonymous_bytes(), [], [], [], []
            for _ in range(pushes):
                before = relay.cpu_seconds()
                with relay.watched() as peak:
                    size = megabytes * MEGABYTE // RESOURCES
                    seconds.append(await control.push(CLUSTER, RESOURCES, size))
                    await asyncio.sleep(SETTLE_SECONDS)
                cpu.append(relay.cpu_seconds() - before)
                peaks.append((peak[0] - base) / MEGABYTE / megabytes)
                kept.append((relay.anonymous_bytes() - base) / MEGABYTE)
            print(
                f"push of {megabytes} MB in {RESOURCES} resources, {label}: "
                f"{statistics.median(seconds) * 1000:.0f} ms to the client, CPU "
                f"{statistics.median(cpu) * 1000:.0f} ms, peak above base worst {max(peaks):.2f}x, "
                f"kept after {SETTLE_SECONDS} s worst {max(kept):.1f} MB"
            )
        base, before = relay.anonymous_bytes(), relay.cpu_seconds()
        seconds = [await control.push(ENDPOINT, 1, 2000) for _ in range(BURST)]
        await asyncio.sleep(SETTLE_SECONDS)
        each = (relay.cpu_seconds() - before) / BURST
        print(
            f"burst of {BURST} pushes of 2 KB, {label}: {statistics.median(seconds) * 1e6:.0f} us "
            f"to the client, CPU {each * 1e6:.0f} us each, grown by "
            f"{(relay.anonymous_bytes() - base) / MEGABYTE:.1f} MB"
        )


def measure_starts(count: int) -> None:
    pod.enter_namespace()
    pod.compile_sources()
    with TemporaryDirectory(dir=pod.VOLUMES) as name:
        folder = pod.make_pod(Path(name))
        cache = {"AGENT_XDS_CACHE": "true"}
        command = [pod.AGENT, *pod.ARGUMENTS]
        root = str(folder / "var/run/secrets/istio")
        with (
            pod.server(str(Path(__file__).parent / "shared/control_plane.py"), root, f"{name}/ads"),
            pod.started(command, folder, cache) as first,
        ):
            time.sleep(SETTLE_SECONDS)
        without = []
        for _ in range(count):
            with pod.started(command, folder, cache) as run:
                without.append(run.milliseconds)
    print(
        f"exec to 15021 = 200, without a control plane, from the cache, {count} times: median "
        f"{statistics.median(without):.0f} ms, slowest {max(without):.0f} ms (goal 3000); with one,"
        f" once: {first.milliseconds:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--pushes", type=int, default=3)
    parser.add_argument("--relay", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.relay:
        directory, port, cached = arguments.relay
        asyncio.run(act_relay(Path(directory), int(port), cached=cached == "1"))
        return
    for cached in (False, True):
        asyncio.run(measure_pushes(arguments.pushes, cached=cached))
    measure_starts(arguments.starts)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
