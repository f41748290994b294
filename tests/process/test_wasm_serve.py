"""The process that fetches, without a process: orders in, outcomes out. Section 3.4."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from aiohttp.abc import ResolveResult

from agent.wasm.fetch.client import Surroundings
from agent.wasm.fetch.registry.image import OCI_MANIFEST
from agent.wasm.fetch.run import serve
from agent.wasm.order import (
    Converted,
    Fetched,
    FetchOrder,
    Refused,
    StructOrder,
    read_outcome,
    write_order,
)
from agent.wasm.settings import FetchSettings
from tests.fakes.fetching import Names, fetching
from tests.fakes.registry import FakeRegistry
from tests.fakes.wasm import MODULE, as_struct, wasm
from tests.fakes.web import Hanging, Pages, web_server


class SilentNames(Names):
    """A resolver whose servers do not answer: as the system's, it holds a thread meanwhile."""

    def __init__(self) -> None:
        super().__init__({})
        self.is_over = threading.Event()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        await asyncio.get_running_loop().run_in_executor(None, self.is_over.wait)
        return await super().resolve(host, port, family)


@asynccontextmanager
async def served(
    directory: Path, names: Names
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield what an agent has in hand of the process."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    streams = await asyncio.open_connection(sock=theirs)
    surroundings = Surroundings({}, lambda: 0.5, asyncio.sleep, names)
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(*streams, FetchSettings(str(directory)), surroundings))
        yield reader, writer
        writer.close()
    streams[1].close()


async def test_names_that_nobody_resolves_hold_up_no_other_order(tmp_path: Path) -> None:
    names = SilentNames()
    pages = Pages({"/a": web.Response(body=MODULE)})
    async with web_server(pages) as port, served(tmp_path, names) as (reader, writer):
        try:
            for number in range(40):
                order = FetchOrder(f"http://{number}.example.com/a", "", 60, None)
                writer.write(write_order(number, order))
            good = FetchOrder(f"http://127.0.0.1:{port}/a", "", 60, None)
            writer.write(write_order(99, good))

            async with asyncio.timeout(20):
                number, outcome = read_outcome(await reader.readline())
        finally:
            names.is_over.set()

    assert number == 99
    assert isinstance(outcome, Fetched)


async def test_orders_end_with_whoever_gave_them(tmp_path: Path) -> None:
    hanging = Hanging()
    async with (
        web_server(hanging) as port,
        asyncio.timeout(20),
        served(tmp_path, Names({})) as (_, writer),
    ):
        writer.write(write_order(1, FetchOrder(f"http://127.0.0.1:{port}/a", "", 60, None)))
        await hanging.asked.wait()


async def test_what_a_registry_says_is_not_all_logged(tmp_path: Path) -> None:
    registry = FakeRegistry()
    registry.push("v1", OCI_MANIFEST, [("x" * 100_000, b"")])
    async with web_server(registry) as port, served(tmp_path, Names({})) as (reader, writer):
        order = FetchOrder(f"oci://127.0.0.1:{port}/owner/image:v1", "", 60, None)
        writer.write(write_order(1, order))
        _, outcome = read_outcome(await reader.readline())

    assert isinstance(outcome, Refused)
    assert len(outcome.reason) == 1000


async def test_an_extension_in_json_is_converted(tmp_path: Path) -> None:
    struct = as_struct(wasm())
    async with fetching(tmp_path) as bench:
        good = await bench.fetcher.carry_out(
            StructOrder(struct.type_url, struct.value.SerializeToString())
        )
        bad = await bench.fetcher.carry_out(StructOrder(struct.type_url, b"\xff"))

    assert good == Converted(wasm().SerializeToString())
    assert isinstance(bad, Refused)
