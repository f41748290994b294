"""What the relay costs: time and CPU of a hop, memory of a large push, and of very many small ones.

    bench/relay.py [--rounds N] [--pushes N] [--seconds N]

Control plane (TLS on the loopback), relay and client are processes of their own, and this one
watches them. The hop is the median round trip through the relay less that without it, 200 bytes
each way; its CPU is what the relay's process used. A push's peak is the largest Anonymous of
/proc/PID/smaps_rollup less that before, read without pause; what is kept is read a second later.
Of small pushes 1,000 a second are sent and accepted, without a cache and with one; what has grown
is the difference between the means of Anonymous over the first and the last tenth of that time.
With COMPLIANCE_POLICY in the environment the relay is kept to it.
"""

import argparse
import asyncio
import functools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent.xds.discovery import (
    Kind,
    Resource,
    read_request,
    read_response,
    write_request,
    write_response,
)
from agent.xds.resources import CLUSTER

#: Where a pod has its files: in memory.
VOLUMES = Path("/dev/shm")  # noqa: S108 - what pods have
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

#: The fake control plane's.
SERVER_NAME = "istiod.istio-system.svc"
SMALL_BYTES = 200
BURST_BYTES = 2000
BURST_RATE = 1000
MEGABYTE = 1_000_000
#: Reading smaps stops the process that is read: not without pause.
SAMPLE_SECONDS = float(os.environ.get("SAMPLE", "0.002"))
PUSH_MEGABYTES = (60, 20)
TICKS = os.sysconf("SC_CLK_TCK")


def say(**facts: Any) -> None:  # noqa: ANN401 - JSON
    print(json.dumps(facts), flush=True)


def heard() -> Any:  # noqa: ANN401 - JSON
    return json.loads(sys.stdin.readline())


@functools.cache
def padded(size: int) -> bytes:
    """Return a push, made once: what that takes is not the relay's."""
    return packed(size, "1")


def packed(size: int, nonce: str) -> bytes:
    resource = Resource(CLUSTER, "x", "1", b"x" * size)
    return write_response(Kind.DELTA, CLUSTER, version="1", nonce=nonce, resources=[resource])


async def act_control_plane(directory: Path) -> None:
    """Serve whoever comes."""
    from tests.fakes.control_plane import Authority, control_plane  # noqa: PLC0415 - not in the relay

    authority = Authority()
    (directory / "root.pem").write_bytes(authority.root)
    async with control_plane(pair=authority.issue(SERVER_NAME)) as plane:
        say(port=plane.port)
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(answer(await plane.accept()))


async def answer(stream: Any) -> None:  # noqa: ANN401 - a fake's stream
    """Answer small requests in kind, one that says so with a push of its size, or with many."""
    small = padded(SMALL_BYTES - 130)
    async with asyncio.TaskGroup() as group:
        while (raw := await stream.receive()) is not None:
            _, push, size = raw.partition(b"push=")
            _, burst, seconds = raw.partition(b"burst=")
            if burst:
                group.create_task(send_burst(stream, float(seconds)))
            elif not read_request(Kind.DELTA, raw).nonce:
                await stream.send(padded(int(size)) if push else small)
    stream.end()


async def send_burst(stream: Any, seconds: float) -> None:  # noqa: ANN401 - as above
    begin = time.perf_counter()
    for number in range(int(BURST_RATE * seconds)):
        await stream.send(packed(BURST_BYTES, str(number)))
        if (ahead := begin + number / BURST_RATE - time.perf_counter()) > 0:
            await asyncio.sleep(ahead)


async def act_relay(directory: Path, port: int, *, cached: bool) -> None:
    from agent.xds.run import serving  # noqa: PLC0415 - only in the relay
    from agent.xds.settings import (  # noqa: PLC0415 - as above
        CacheSettings,
        CredentialSettings,
        UpstreamSettings,
        XdsSettings,
    )

    upstream = UpstreamSettings(
        address=f"127.0.0.1:{port}",
        tls=True,
        server_name=SERVER_NAME,
        credentials=CredentialSettings(root=str(directory / "root.pem")),
        metadata=(("clusterid", ""),),
        send_token=False,
        policy=os.environ.get("COMPLIANCE_POLICY", ""),
    )
    cache = CacheSettings(str(directory / "kept") if cached else "")
    settings = XdsSettings(str(directory / "XDS"), upstream, cache=cache)
    async with serving(settings, count=lambda *_args, **_labels: None):
        say(listening=True)
        await asyncio.Event().wait()


async def round_trips(call: Any, rounds: int) -> list[float]:  # noqa: ANN401 - a fake's call
    request = write_request(Kind.DELTA, CLUSTER, error="x" * (SMALL_BYTES - 70))
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        await call.send(request)
        await call.receive()
        seconds.append(time.perf_counter() - started)
    return seconds


async def accept_burst(call: Any, seconds: float) -> float:  # noqa: ANN401 - a fake's call
    """Have pushes sent for so long, and accept each; return how long it took."""
    started = time.perf_counter()
    await call.send(write_request(Kind.DELTA, CLUSTER, error=f"burst={seconds}"))
    for _ in range(int(BURST_RATE * seconds)):
        nonce = read_response(await call.receive()).nonce
        await call.send(write_request(Kind.DELTA, CLUSTER, nonce=nonce))
    return time.perf_counter() - started


async def act_client(directory: Path, port: int) -> None:
    """Do what standard input says: time round trips, or take a push."""
    import grpc  # noqa: PLC0415 - not in the process that watches

    from tests.fakes.ads_client import AdsClient, ads_client  # noqa: PLC0415 - as above

    secured = grpc.ssl_channel_credentials((directory / "root.pem").read_bytes())
    options: list[tuple[str, object]] = [
        ("grpc.ssl_target_name_override", SERVER_NAME),
        ("grpc.max_receive_message_length", -1),
    ]
    async with (
        grpc.aio.secure_channel(f"127.0.0.1:{port}", secured, options) as channel,
        ads_client(str(directory / "XDS")) as client,
    ):
        calls = {
            "direct": AdsClient(channel).open(Kind.DELTA),
            "relayed": client.open(Kind.DELTA),
        }
        for call in calls.values():
            await round_trips(call, 200)
        say(ready=True)
        while order := await asyncio.to_thread(heard):
            call = calls[order["way"]]
            if "rounds" in order:
                say(seconds=await round_trips(call, order["rounds"]))
            elif "burst" in order:
                say(seconds=await accept_burst(call, order["burst"]))
            else:
                await call.send(write_request(Kind.DELTA, CLUSTER, error=f"push={order['size']}"))
                say(received=len(await call.receive()))


class Actor:
    """A process of its own."""

    def __init__(self, role: str, directory: str, port: int = 0) -> None:
        command = [sys.executable, __file__, "--act", role, directory, str(port)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipes")
        self._process, self._orders, self._answers = process, process.stdin, process.stdout
        self.pid = process.pid
        self.first = self.answer()

    def answer(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self._answers.readline())

    def order(self, **what: Any) -> Any:  # noqa: ANN401 - JSON
        self._orders.write(json.dumps(what) + "\n")
        self._orders.flush()
        return self.answer()

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def anonymous_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no line 'Anonymous'")

    @contextmanager
    def watched(self) -> Iterator[list[int]]:
        """Provide a list whose only item is the largest Anonymous meanwhile."""
        peak = [self.anonymous_bytes()]
        stop = threading.Event()

        def sample() -> None:
            while not stop.wait(SAMPLE_SECONDS):
                peak[0] = max(peak[0], self.anonymous_bytes())

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            yield peak
        finally:
            stop.set()
            sampler.join()


def measure_hop(relay: Actor, client: Actor, rounds: int) -> None:
    """Interleave both ways, so that a busy machine is busy for both."""
    seconds: dict[str, list[float]] = {"direct": [], "relayed": []}
    cpu = 0.0
    for _ in range(10):
        for way in seconds:
            before = relay.cpu_seconds()
            seconds[way] += client.order(way=way, rounds=rounds // 10)["seconds"]
            cpu += relay.cpu_seconds() - before
    direct, relayed = (statistics.median(found) * 1000 for found in seconds.values())
    print(f"round trip of {SMALL_BYTES} B, p50: direct {direct:.2f} ms, relayed {relayed:.2f} ms")
    print(f"hop at {SMALL_BYTES} B, p50: {relayed - direct:.2f} ms (required 0.35, stretch 0.30)")
    each = cpu / len(seconds["relayed"]) * 1e6
    print(f"CPU of the relay per round trip: {each:.0f} us (required 450, stretch 380)")


def measure_push(relay: Actor, client: Actor, megabytes: int, pushes: int) -> None:
    size = megabytes * MEGABYTE
    base = relay.anonymous_bytes()
    peaks, kept = [], []
    seconds: dict[str, list[float]] = {"direct": [], "relayed": []}
    for _ in range(pushes):
        with relay.watched() as peak:
            for way, found in seconds.items():
                started = time.perf_counter()
                client.order(way=way, size=size)
                found.append(time.perf_counter() - started)
        time.sleep(1)
        peaks.append((peak[0] - base) / size)
        kept.append((relay.anonymous_bytes() - base) / MEGABYTE)
    print(
        f"push of {megabytes} MB, {pushes} times: peak above base worst {max(peaks):.2f}x, median "
        f"{statistics.median(peaks):.2f}x (required 3.6, stretch 3.3); kept after 1 s worst "
        f"{max(kept):.1f} MB (required 4, stretch 2)"
    )
    direct, relayed = (megabytes / statistics.median(found) for found in seconds.values())
    print(
        f"  {relayed:.0f} MB/s from control plane to client (goal 120), {direct:.0f} without relay"
    )


def measure_burst(relay: Actor, client: Actor, seconds: float) -> None:
    samples: list[float] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(seconds / 100):
            samples.append(relay.anonymous_bytes() / MEGABYTE)

    sampler = threading.Thread(target=sample)
    cpu = relay.cpu_seconds()
    sampler.start()
    took = client.order(way="relayed", burst=seconds)["seconds"]
    cpu = relay.cpu_seconds() - cpu
    stop.set()
    sampler.join()
    share = len(samples) // 10
    first, last = statistics.mean(samples[:share]), statistics.mean(samples[-share:])
    print(
        f"{BURST_RATE * seconds:.0f} pushes of {BURST_BYTES} B in {took:.1f} s: "
        f"{BURST_RATE * seconds / took:.0f} a second, CPU {100 * cpu / took:.0f} % of a core; "
        f"grown by {last - first:.1f} MB, {first:.1f} to {last:.1f} (goal: none)"
    )


@contextmanager
def acting(*, cached: bool) -> Iterator[tuple[Actor, Actor]]:
    """Provide relay and client, with a control plane behind them."""
    actors: list[Actor] = []
    with TemporaryDirectory(dir=VOLUMES) as name:
        try:
            actors.append(Actor("control-plane", name))
            port = actors[0].first["port"]
            relay, client = "cached-relay" if cached else "relay", "client"
            actors += (Actor(role, name, port) for role in (relay, client))
            yield actors[1], actors[2]
        finally:
            for actor in actors:
                actor.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--pushes", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--act", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.act:
        role, name, port = arguments.act
        directory = Path(name)
        if role == "control-plane":
            asyncio.run(act_control_plane(directory))
        elif role.endswith("relay"):
            asyncio.run(act_relay(directory, int(port), cached=role.startswith("cached")))
        else:
            asyncio.run(act_client(directory, int(port)))
        return
    with acting(cached=False) as (relay, client):
        base = relay.anonymous_bytes() / MEGABYTE
        print(f"base: {base:.1f} MB anonymous, 3 of them this script")
        measure_hop(relay, client, arguments.rounds)
        for megabytes in PUSH_MEGABYTES:
            measure_push(relay, client, megabytes, arguments.pushes)
    for cached in (False, True):
        with acting(cached=cached) as (relay, client):
            print("with a cache: " if cached else "without a cache: ", end="")
            measure_burst(relay, client, arguments.seconds)


if __name__ == "__main__":
    main()
