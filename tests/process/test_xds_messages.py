"""Messages that the relay does not take, and the largest it does. Source: sections 2.1 and 2.3."""

from pathlib import Path

import grpc
import pytest

from agent.xds.discovery import (
    Kind,
    write_request,
)
from agent.xds.resources import CLUSTER
from agent.xds.settings import MAX_HOURS, MAX_INT32, KeepaliveSettings
from tests.fakes.control_plane import control_plane
from tests.fakes.relay_bench import (
    ENVOY_ERROR,
    bench,
    response,
    streaming,
)


async def test_what_is_no_discovery_message_ends_the_stream(tmp_path: Path) -> None:
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        call = b.client.open(Kind.DELTA)
        await call.send(b"\xff")
        from_envoy = await call.status()
        await plane.accept()
        call = b.client.open(Kind.DELTA)
        await (await plane.accept()).send(b"\xff")
        from_control_plane = await call.status()
        problem = b.relay.problem()

    assert from_envoy[0] is from_control_plane[0] is grpc.StatusCode.INTERNAL
    assert from_envoy[1].startswith("message from Envoy cannot be read")
    assert from_control_plane[1].startswith("message from control plane cannot be read")
    assert from_control_plane[1] in str(problem)


async def test_a_message_of_envoy_has_a_largest_size_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        control_plane() as plane,
        bench(tmp_path, plane.address, max_receive_bytes=1000) as b,
    ):
        call = b.client.open(Kind.DELTA)
        await call.send(write_request(Kind.DELTA, CLUSTER, error="x" * 2000))
        await plane.accept()
        code, details = await call.status()
        await b.counts.reach(ENVOY_ERROR)
        problem = b.relay.problem()
        again = b.client.open(Kind.DELTA)
        await again.send(write_request(Kind.DELTA, CLUSTER))
        await (await plane.accept()).send(response(Kind.DELTA, CLUSTER))
        await again.receive()

        assert b.relay.problem() is None

    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details.startswith("message from Envoy has 20")
    assert details.endswith("more than ISTIO_GPRC_MAXRECVMSGSIZE=1000; raise it")
    assert details in caplog.text
    assert details in str(problem)


async def test_the_largest_limits_are_ones_that_grpc_takes(tmp_path: Path) -> None:
    """See settings.py: beyond them it raises OverflowError."""
    keepalive = KeepaliveSettings(MAX_HOURS * 3600.0, MAX_HOURS * 3600.0)
    async with (
        control_plane() as plane,
        bench(tmp_path, plane.address, max_receive_bytes=MAX_INT32, keepalive=keepalive) as b,
    ):
        await b.client.open(Kind.DELTA).send(write_request(Kind.DELTA, CLUSTER))
        await plane.accept()


async def test_a_push_has_none(tmp_path: Path) -> None:
    """Beyond gRPC's default of 4 MB in either direction, and large enough to be trimmed after."""
    push = response(Kind.DELTA, CLUSTER, b"x" * 6_000_000)
    async with streaming(tmp_path, Kind.DELTA) as (_, call, stream):
        await stream.send(push)

        assert await call.receive() == push
