"""Cost of injection: of one pod, and of the webhook under load.

Method:
- one pod: 1,000 reviews of a pod with two containers and four probes, answered in this process one
  after the other: from the body's bytes to the answer's document, patch included.
- load: `agent injector` in a process of its own, pinned to one CPU, over HTTPS on kept
  connections. 200 reviews a second for 10 seconds, each sent at its time whether or not those
  before it were answered; the latency is from that time to the whole answer. CPU is the injector's
  own, of one core.
- malformed: 2,000 reviews with bytes lost, doubled and changed, 50 at a time; each must be
  answered, and every refusal say why. Then a good one.

Targets: one pod within 5 ms, p99 within 25 ms at 200/s on one core, no crash.
"""

import asyncio
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

# This folder holds a dns.py, which must not stand for the package of that name.
sys.path.remove(str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import aiohttp

from agent.inject.configuration import Configuration
from agent.inject.webhook.review import Context, answer
from tests.fakes.injection import make_pod, make_settings
from tests.fakes.injector import Keys, make_review

PODS = 1_000
RATE = 200
SECONDS = 10
MALFORMED = 2_000
AT_A_TIME = 50
JSON_TYPE = {"Content-Type": "application/json"}
POD = make_pod(
    {
        "name": "web",
        "image": "web:1",
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
        "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}},
        "env": [{"name": f"V{number}", "value": "x" * 30} for number in range(20)],
    },
    {
        "name": "log",
        "image": "log:1",
        "readinessProbe": {"tcpSocket": {"port": 9000}},
        "startupProbe": {"grpc": {"port": 9001}},
    },
    annotations={"proxy.istio.io/config": "concurrency: 2\nproxyMetadata: {A: b}"},
)
BODY = json.dumps(make_review(POD)).encode()


def one_pod() -> list[float]:
    """Return the milliseconds that each review takes."""
    context = Context(Configuration(), make_settings(), native="true")
    answer(BODY, {}, context)
    taken = []
    for _ in range(PODS):
        start = time.perf_counter()
        answer(BODY, {}, context)
        taken.append((time.perf_counter() - start) * 1000)
    return taken


@asynccontextmanager
async def injector(keys: Keys, cpu: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Yield an injector pinned to a CPU, and its port."""
    process = await asyncio.create_subprocess_exec(
        *("taskset", "-c", str(cpu), sys.executable, "-m", "agent", "injector"),
        *("--address", "localhost", "--port", "0", "--monitoring-port", "0"),
        *("--drain", "0s", "--native-sidecars", "true", "--log_output_level", "default:info"),
        *("--tlsCertFile", str(keys.certificate), "--tlsKeyFile", str(keys.key)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        if process.stdout is None:
            raise RuntimeError("a pipe was asked for")
        line = (await process.stdout.readline()).decode()
        found = re.search(r"listening port=(\d+)", line)
        if found is None:
            raise RuntimeError(f"the injector says {line!r}")
        drain = asyncio.create_task(discard(process.stdout))
        yield process, int(found[1])
    finally:
        process.terminate()
        await process.wait()
    await drain


async def discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass


async def load(session: aiohttp.ClientSession, url: str) -> list[float]:
    """Return the milliseconds from each review's time to its answer."""
    taken: list[float] = []

    async def ask(due: float) -> None:
        async with session.post(url, data=BODY, headers=JSON_TYPE) as reply:
            await reply.read()
            if reply.status != 200:
                raise RuntimeError(f"answer {reply.status}")
        taken.append((time.perf_counter() - due) * 1000)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(RATE * SECONDS):
            due = start + number / RATE
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            tasks.create_task(ask(due))
    return taken


def malformed() -> list[bytes]:
    """Return reviews with bytes lost, doubled and changed."""
    chance = random.Random(7)  # noqa: S311 - the same each time
    found = []
    for _ in range(MALFORMED):
        data = bytearray(BODY)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            piece = data[at : at + chance.randint(1, 30)]
            match chance.randrange(3):
                case 0:
                    del data[at : at + len(piece)]
                case 1:
                    data[at:at] = piece
                case _:
                    data[at] = chance.randrange(256)
        found.append(bytes(data))
    return found


async def hostile(session: aiohttp.ClientSession, url: str) -> tuple[int, int]:
    """Return how many malformed reviews were refused with a reason, and how many were usable."""
    refused = usable = 0
    bodies = malformed()

    async def ask(body: bytes) -> None:
        nonlocal refused, usable
        async with session.post(url, data=body, headers=JSON_TYPE) as reply:
            response = (await reply.json())["response"]
        if response["allowed"]:
            usable += 1
        elif response["status"]["message"]:
            refused += 1

    for start in range(0, MALFORMED, AT_A_TIME):
        await asyncio.gather(*map(ask, bodies[start : start + AT_A_TIME]))
    return refused, usable


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(name: str, taken: list[float]) -> None:
    taken.sort()
    shares = (0.5, 0.99)
    p50, p99 = (taken[int(len(taken) * share)] for share in shares)
    print(f"{name:28} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   max {taken[-1]:6.2f} ms")


async def main() -> None:
    taken = one_pod()
    report("one pod", taken)
    print(f"{'':28} mean {statistics.mean(taken):5.2f} ms   patch and answer included")
    cpus = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as directory:
        keys = Keys(Path(directory))
        if len(cpus) > 1:
            os.sched_setaffinity(0, cpus[1:])
        async with injector(keys, cpus[0]) as (process, port):
            connector = aiohttp.TCPConnector(ssl=keys.client(), limit=20)
            async with aiohttp.ClientSession(connector=connector) as session:
                url = f"https://localhost:{port}/inject"
                before = cpu_seconds(process.pid)
                report(f"{RATE} reviews/s, {SECONDS} s", await load(session, url))
                share = (cpu_seconds(process.pid) - before) / SECONDS
                print(f"{'':28} {share:.0%} of one core")
                refused, usable = await hostile(session, url)
                print(
                    f"{f'{MALFORMED} malformed reviews':28} {refused} refused with a reason, "
                    f"{usable} still usable, {MALFORMED - refused - usable} without an answer"
                )
                async with session.post(url, data=BODY, headers=JSON_TYPE) as reply:
                    allowed = (await reply.json())["response"]["allowed"]
                print(f"{'':28} then a good one: allowed {allowed}")


if __name__ == "__main__":
    asyncio.run(main())
