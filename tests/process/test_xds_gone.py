"""An Envoy that is gone without a word, as one that was killed or has crashed."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from agent.xds import run as xds
from agent.xds.discovery import Kind, write_request
from agent.xds.pace import Pace
from agent.xds.resources import CLUSTER
from agent.xds.server import Downstream
from agent.xds.settings import CredentialSettings, UpstreamSettings, XdsSettings
from tests.fakes.ads_client import AdsClient, ads_client
from tests.fakes.grpc_log import complaints, tasks_left
from tests.fakes.link import Link, unix_link
from tests.fakes.relay_bench import ENVOY_CANCELLED, ENVOY_ERROR, Counts
from tests.waiting import until


@contextlib.asynccontextmanager
async def killable(
    directory: Path, *, port: int = 1, local: str = ""
) -> AsyncIterator[tuple[Callable[[], Awaitable[AdsClient]], Link, Counts]]:
    """Run a relay; yield what makes a client, what makes it disappear, and what was counted."""
    upstream = UpstreamSettings(f"127.0.0.1:{port}", False, "", CredentialSettings(), ())  # noqa: FBT003 - TLS
    settings = XdsSettings(str(directory / "XDS"), upstream, local=local)
    counts = Counts()
    path = str(directory / "link")
    async with (
        contextlib.AsyncExitStack() as clients,
        xds.serving(settings, count=counts.add),
        unix_link(path, settings.socket_path) as between,
    ):
        yield lambda: clients.enter_async_context(ads_client(path)), between, counts


@contextlib.asynccontextmanager
async def silent_control_plane() -> AsyncIterator[int]:
    """Accept connections and say nothing, so that every stream goes on; yield the port."""

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for writer in writers:
            writer.transport.abort()


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 50])
async def test_nothing_is_left_to_be_broken_off_when_the_relay_closes_with_it(
    turns: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An Envoy that crashes ends the agent too."""
    caplog.set_level(logging.INFO)
    async with silent_control_plane() as port:
        async with killable(tmp_path, port=port) as (new_client, between, _):
            await (await new_client()).open(Kind.DELTA).send(write_request(Kind.DELTA, CLUSTER))
            await until(lambda: "stream opened" in caplog.text)
            between.kill()
            for _ in range(turns):
                await asyncio.sleep(0)
        left = tasks_left()

    assert left == []
    assert complaints(caplog) == []


async def test_its_end_is_counted_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with killable(tmp_path, local="builtin") as (new_client, between, counts):
        for number in range(20):
            call = (await new_client()).open(Kind.DELTA)
            await call.send(write_request(Kind.DELTA, CLUSTER))
            await call.receive()
            for _ in range(number):
                await asyncio.sleep(0)
            between.kill()
            await counts.reach(ENVOY_CANCELLED, number + 1)

    assert complaints(caplog) == []


async def nothing(*_: object) -> None:
    """Read or write it."""


class Opened:
    """A session that is opened when told to."""

    def __init__(self) -> None:
        self.opening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_closed = False

    async def open(self, *_: object) -> "Opened":
        await self.opening
        return self

    def pumps(self) -> tuple[xds.Pump, ...]:
        return ()

    async def close(self) -> None:
        self.is_closed = True


async def test_what_is_opened_in_the_moment_of_its_end_is_closed() -> None:
    relay = xds.Relay("", lambda *_, **__: None, lambda *_, **__: None, Pace(lambda: 0.0))
    backend = Opened()
    serving = asyncio.create_task(relay.serve(backend, Kind.DELTA, Downstream(nothing, nothing, 0)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    backend.opening.set_result(None)
    await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving

    assert backend.is_closed


@pytest.mark.slow
async def test_what_it_did_not_take_is_not_worth_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """That the write has failed, or that nothing more is read: either may show first."""
    resources = tmp_path / "resources"
    resources.mkdir()
    text = f'{{"@type": "{CLUSTER}", "name": "one", "alt_stat_name": "{"x" * 8_000_000}"}}'
    (resources / "a.json").write_text(text)
    async with killable(tmp_path, local=str(resources)) as (new_client, between, counts):
        between.answer_bytes = 100_000
        for number in range(10):
            await (await new_client()).open(Kind.SOTW).send(write_request(Kind.SOTW, CLUSTER))
            await between.stuck.wait()
            between.kill()
            await until(lambda: counts[ENVOY_ERROR] + counts[ENVOY_CANCELLED] > number)  # noqa: B023 - called at once
            between.thaw()

    assert complaints(caplog) == []
