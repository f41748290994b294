"""SDS streams that are broken off, by either end, leave grpc nothing to log a traceback of."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from agent.errors import SecretError
from agent.identity.secret import Roots, Secret
from agent.identity.server import Recorder, SdsServer
from tests.fakes.grpc_log import complaints, tasks_left
from tests.fakes.link import Link, unix_link
from tests.fakes.sds_client import SdsCall, sds_client

#: More than the buffers between the two hold.
LONG = Roots(b"x" * 8_000_000)


class Source:
    """Has three kinds of secrets: those that are there, those that take for ever, and none."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def get(self, name: str) -> Secret:
        self.asked.set()
        if name == "slow":
            await asyncio.Event().wait()
        if name == "none":
            raise SecretError("no such secret")
        return LONG if name == "long" else Roots(b"root")


class Bench(NamedTuple):
    server: SdsServer
    source: Source
    link: Link
    call: SdsCall


def nothing(*_: object, **__: object) -> None:
    """Count nothing."""


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Bench]:
    """Serve an Envoy that has one stream, and a secret by it."""
    source = Source()
    server = SdsServer(source.get, None, Recorder(nothing, nothing, nothing))
    path, link = f"{directory}/sds", f"{directory}/link"
    async with (
        sds_client(link) as client,
        unix_link(link, path) as between,
        asyncio.TaskGroup() as tasks,
        server.serving(path, tasks),
    ):
        between.answer_bytes = 1_000_000
        call = client.open()
        await call.fetch("ROOTCA")
        yield Bench(server, source, between, call)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 50])
@pytest.mark.parametrize("name", ["ROOTCA", "slow", "none"])
@pytest.mark.parametrize("killed", [False, True])
async def test_whatever_a_stream_waits_for_it_ends_with_the_server(
    name: str, turns: int, *, killed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as bench:
        bench.source.asked.clear()
        await bench.call.ask(name)
        await bench.source.asked.wait()
        if killed:
            bench.link.kill()
        for _ in range(turns):
            await asyncio.sleep(0)

    assert tasks_left() == []
    assert complaints(caplog) == []


async def test_envoy_is_told_why(tmp_path: Path) -> None:
    async with sds_client(f"{tmp_path}/sds") as client:
        async with serving(tmp_path):
            call = client.open()
            await call.fetch("ROOTCA")

        assert await call.status() == (
            grpc.StatusCode.UNAVAILABLE,
            "agent is shutting down",
        )


async def test_one_that_read_no_more_and_was_killed_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as bench:
        await bench.call.ask("long")
        await bench.link.stuck.wait()
        bench.link.kill()

    assert tasks_left() == []
    assert complaints(caplog) == []


@pytest.mark.slow
async def test_one_that_hangs_holds_nothing_up(tmp_path: Path) -> None:
    """It was stopped, or is being debugged; grpc alone would wait for it."""
    async with serving(tmp_path) as bench:
        await bench.call.ask("long")
        await bench.link.stuck.wait()

    assert not (tmp_path / "sds").exists()
