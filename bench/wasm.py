"""What Wasm modules cost: time until Envoy has the extension, and memory of agent and fetcher.

    bench/wasm.py [--megabytes N]

Method: the whole agent, without Envoy, between a control plane with TLS and a server of modules,
both on the loopback. The time is that from sending a response with one extension to its arrival at
a client on the agent's socket: the first (the subject is imported, the process that fetches
starts), the next one (the process is there), one whose module is on disk, and the first and second
in JSON's form. Memory is Anonymous and RSS of /proc/PID/smaps_rollup, of the agent before and after
and of the process that fetches just after a module, then of the agent once that has gone.
"""

import argparse
import asyncio
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from aiohttp import web

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from shared.pod import VOLUMES, compile_sources  # noqa: E402 - after the path

from agent.wasm.process import IDLE_SECONDS  # noqa: E402 - after the path
from agent.xds.discovery import Kind  # noqa: E402 - after the path
from agent.xds.resources import CLUSTER  # noqa: E402 - after the path
from tests.fakes.ads_client import AdsCall  # noqa: E402 - after the path
from tests.fakes.control_plane import (  # noqa: E402 - after the path
    SERVER_NAME,
    Stream,
    control_plane,
)
from tests.fakes.relay_bench import response  # noqa: E402 - after the path
from tests.fakes.wasm import MODULE, as_struct, ecds, wasm  # noqa: E402 - after the path
from tests.fakes.web import web_server  # noqa: E402 - after the path
from tests.process.test_xds_agent import AUTHORITY, Pod, running  # noqa: E402 - after the path

ROUNDS = 9
MEGABYTE = 1_000_000


def memory(pid: int) -> str:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kilobytes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE))
    anonymous, rss = (int(kilobytes[name]) * 1024 / MEGABYTE for name in ("Anonymous", "Rss"))
    return f"anonymous {anonymous:.1f} MB, RSS {rss:.1f} MB"


def processes(pod: Pod) -> tuple[int, int | None]:
    """Return the agent and the process that fetches, if there is one."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0") if path.exists() else []
        if b"proxy" in words and b"router" in words:
            pid = int(path.parent.name)
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            return pid, int(children[0]) if children else None
    raise SystemExit(f"no agent for port {pod.port}")


class Bench:
    """The agent between its two neighbours."""

    def __init__(self, stream: Stream, call: AdsCall, url: str) -> None:
        self._stream = stream
        self._call = call
        self._url = url
        self._number = 0

    async def warm_up(self) -> None:
        """Have the relay do what it does in every pod."""
        for _ in range(ROUNDS):
            await self._stream.send(response(Kind.DELTA, CLUSTER, bytes(10_000)))
            await self._call.receive()
        await asyncio.sleep(1)

    async def milliseconds(self, *, name: str = "", in_json: bool = False) -> float:
        """Return the time until an extension has arrived; a new module's, or that of a name."""
        self._number += 1
        extension = wasm(f"{self._url}/{name or self._number}", timeout=60)
        sent = {"x": as_struct(extension) if in_json else extension}
        began = time.perf_counter()
        await self._stream.send(ecds(Kind.DELTA, sent, nonce=str(self._number)))
        arrived = await self._call.receive()
        if b"wasm-default" in arrived:
            raise SystemExit("the module was not fetched")
        return (time.perf_counter() - began) * 1000


@asynccontextmanager
async def started(size: int) -> AsyncIterator[tuple[Bench, Pod]]:
    body = MODULE + bytes(size)

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body)

    with TemporaryDirectory(prefix="bench-wasm-", dir=VOLUMES) as folder:
        async with (
            web_server(answer) as port,
            control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
            running(Path(folder), plane, AGENT_WASM_DIRECTORY=folder) as (pod, client),
        ):
            call = client.open(Kind.DELTA)
            stream = await plane.accept()
            yield Bench(stream, call, f"http://127.0.0.1:{port}"), pod


async def main(size: int) -> None:
    async with started(size) as (bench, pod):
        await bench.warm_up()
        agent, _ = processes(pod)
        before = memory(agent)
        first = await bench.milliseconds()
        rest = [await bench.milliseconds() for _ in range(ROUNDS)]
        _, fetcher = processes(pod)
        fetching = memory(fetcher) if fetcher else "gone already"
        on_disk = [await bench.milliseconds(name="1") for _ in range(ROUNDS)]
        await asyncio.sleep(IDLE_SECONDS + 1)
        after = memory(agent)
        json_first = await bench.milliseconds(name="1", in_json=True)
        json_again = [await bench.milliseconds(name="1", in_json=True) for _ in range(ROUNDS)]
    again = statistics.median(rest)
    print(f"module of {size / MEGABYTE:g} MB: first {first:.0f} ms, next {again:.0f} ms")
    print(f"on disk {statistics.median(on_disk):.2f} ms")
    print(
        f"in JSON's form: first {json_first:.0f} ms, again {statistics.median(json_again):.2f} ms"
    )
    print(f"agent before   {before}")
    print(f"agent after    {after}")
    print(f"fetcher        {fetching}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=1.0)
    compile_sources()
    asyncio.run(main(int(parser.parse_args().megabytes * MEGABYTE)))
