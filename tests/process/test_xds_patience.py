"""A control plane that hangs, asks for time, or comes back to a fleet. Cases X5 and X6."""

import asyncio
import contextlib
import logging
from pathlib import Path

import grpc
import pytest

from agent.xds.discovery import Kind, read_response, write_request
from agent.xds.resources import CLUSTER
from agent.xds.settings import PatienceSettings
from tests.fakes.control_plane import control_plane
from tests.fakes.relay_bench import ERROR, bench, response, streaming

#: Beyond what a window takes, so that it waits for the other side to read.
LARGE = write_request(Kind.DELTA, CLUSTER, error="x" * 3_000_000)


async def test_a_request_that_is_not_taken_resets_both_sides(tmp_path: Path) -> None:
    """X6."""
    patience = PatienceSettings(send_seconds=0.2)
    async with control_plane() as plane, bench(tmp_path, plane.address, patience=patience) as b:
        call = b.client.open(Kind.DELTA)
        stream = await plane.accept()
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for _ in range(4):
                await call.send(LARGE)

        code, details = await call.status()
        await stream.closed.wait()
        await b.counts.reach(ERROR)

    assert code is grpc.StatusCode.UNAVAILABLE
    assert details == "control plane does not read: a request has waited for 0.2s"


@pytest.mark.slow
async def test_requests_that_are_taken_reset_nothing(tmp_path: Path) -> None:
    patience = PatienceSettings(send_seconds=0.6)
    async with streaming(tmp_path, Kind.DELTA, patience=patience) as (_, call, stream):
        loop = asyncio.get_running_loop()
        ends = loop.time() + 0.8
        while loop.time() < ends:
            await call.send(LARGE)
            assert await stream.receive() == LARGE
        await stream.send(response(Kind.DELTA, CLUSTER))

        assert read_response(await call.receive()).type_url == CLUSTER


@pytest.mark.slow
async def test_silence_ends_a_stream_only_where_the_user_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    patience = PatienceSettings(silence_seconds=0.5)
    async with control_plane() as plane, bench(tmp_path, plane.address, patience=patience) as b:
        call = b.client.open(Kind.DELTA)
        stream = await plane.accept()
        for nonce in "123":
            await asyncio.wait((asyncio.create_task(stream.closed.wait()),), timeout=0.2)
            await stream.send(response(Kind.DELTA, CLUSTER, nonce=nonce))
            assert read_response(await call.receive()).nonce == nonce

        code, details = await call.status()
        await stream.closed.wait()

    assert code is grpc.StatusCode.UNAVAILABLE
    assert details == "control plane has sent nothing for 0.5s (AGENT_XDS_MAX_SILENCE)"
    assert details in caplog.text


@pytest.mark.slow
async def test_a_control_plane_that_asks_for_time_gets_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """X5: one line; the next stream begins when the base is over, and none that is gone by then."""
    caplog.set_level(logging.INFO, "agent.xds")
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        loop = asyncio.get_running_loop()
        refused = b.client.open(Kind.DELTA)
        (await plane.accept()).end(grpc.StatusCode.RESOURCE_EXHAUSTED, "request rate limit")
        status = await refused.status()
        began = loop.time()
        replaced, left, stays = calls = [b.client.open(Kind.DELTA) for _ in range(3)]
        for call in calls:
            await call.send(write_request(Kind.DELTA, CLUSTER))
        left.cancel()
        status_of_replaced = await replaced.status()
        stream = await plane.accept()
        waited = loop.time() - began
        await stream.send(response(Kind.DELTA, CLUSTER))

        assert read_response(await stays.receive()).type_url == CLUSTER
        assert plane.streams.empty()

    assert status == (grpc.StatusCode.RESOURCE_EXHAUSTED, "request rate limit")
    assert status_of_replaced == (grpc.StatusCode.OK, "")
    assert waited > 0.9
    lines = [each.message for each in caplog.records if "RESOURCE_EXHAUSTED" in each.message]
    assert len(lines) == 1
    assert lines[0].endswith("details='request rate limit' retry_in_seconds=1.0")


@pytest.mark.parametrize("chance", [0.0, 0.3])
async def test_a_fleet_whose_streams_have_ended_together_comes_back_one_by_one(
    chance: float, tmp_path: Path
) -> None:
    async with (
        control_plane() as plane,
        bench(tmp_path, plane.address, rng=lambda: chance) as b,
    ):
        loop = asyncio.get_running_loop()
        call = b.client.open(Kind.DELTA)
        stream = await plane.accept()
        await stream.send(response(Kind.DELTA, CLUSTER))
        await call.receive()
        stream.end(grpc.StatusCode.UNAVAILABLE, "restart")
        await call.status()
        began = loop.time()
        b.client.open(Kind.DELTA)
        await plane.accept()

        waited = loop.time() - began

    assert waited > chance * 0.9
