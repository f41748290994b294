"""The relay when one of its sides, or what lies between, fails. Source: sections 2.10, 11.2."""

import asyncio
import contextlib
import gc
import logging
from pathlib import Path

import grpc
import pytest
from h2.connection import H2Connection

from agent.xds.discovery import (
    Kind,
    read_response,
    write_request,
)
from agent.xds.resources import CLUSTER
from agent.xds.settings import KeepaliveSettings
from tests.fakes.control_plane import Stream, control_plane
from tests.fakes.http2 import Asked, http2_server
from tests.fakes.link import GOAWAY_NO_ERROR, link
from tests.fakes.relay_bench import (
    CANCELLED,
    ENVOY_CANCELLED,
    ERROR,
    bench,
    response,
    streaming,
)

PUSH = response(Kind.DELTA, CLUSTER)
#: What an answer of gRPC's begins with where nothing is wrong yet.
GRPC = [(":status", "200"), ("content-type", "application/grpc")]


async def test_a_restarted_control_plane_is_found_again(tmp_path: Path) -> None:
    """T-X8, X10, R-2: its end never looks like an empty set, and is the stream's."""
    async with contextlib.AsyncExitStack() as stack:
        async with control_plane() as plane:
            b = await stack.enter_async_context(bench(tmp_path, plane.address))
            call = b.client.open(Kind.DELTA)
            await plane.accept()

        with pytest.raises(grpc.aio.AioRpcError):
            await call.receive()
        refused = b.client.open(Kind.DELTA)
        code, details = await refused.status()
        problem = b.relay.problem()

        async with control_plane(port=plane.port) as again:
            call = b.client.open(Kind.DELTA)
            await (await again.accept()).send(response(Kind.DELTA, CLUSTER))
            assert read_response(await call.receive()).type_url == CLUSTER

            assert code is grpc.StatusCode.UNAVAILABLE
            assert "failed to connect" in details
            assert plane.address in str(problem)
            assert b.counts[ERROR] >= 1
            assert b.relay.problem() is None


@pytest.mark.slow
async def test_a_storm_of_requests_and_pushes_does_not_deadlock(tmp_path: Path) -> None:
    """T-X15, X3, R-1: nobody reads what the other sends, and both go on."""
    request = write_request(Kind.SOTW, CLUSTER, error="x" * 2000)
    push = response(Kind.SOTW, CLUSTER, b"y" * 100_000)
    async with control_plane() as plane, bench(tmp_path, plane.address) as b, asyncio.timeout(60):
        call = b.client.open(Kind.SOTW)
        stream = await plane.accept()

        for _ in range(10_000):
            await call.send(request)
        _, pushed = await asyncio.gather(stream.send(push), call.receive())
        assert pushed == push
        for _ in range(10_000):
            assert await stream.receive() == request
        assert b.counts["xds_proxy_requests", ""] == 10_000


@pytest.mark.slow
async def test_an_envoy_that_does_not_read_slows_the_push_down(tmp_path: Path) -> None:
    """X3: responses wait at the control plane, and requests still pass."""
    request = write_request(Kind.SOTW, CLUSTER)
    push = response(Kind.SOTW, CLUSTER, b"y" * 1_000_000)

    async def push_all(stream: Stream) -> None:
        for _ in range(50):
            await stream.send(push)

    async with control_plane() as plane, bench(tmp_path, plane.address) as b, asyncio.timeout(60):
        call = b.client.open(Kind.SOTW)
        stream = await plane.accept()
        async with asyncio.TaskGroup() as group:
            group.create_task(push_all(stream))
            for _ in range(1000):
                await call.send(request)
                assert await stream.receive() == request
            held = b.counts["xds_proxy_responses", ""]
            for _ in range(50):
                assert await call.receive() == push

    assert held < 25


@pytest.mark.slow
async def test_a_control_plane_that_never_reads_ends_the_stream_in_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D-20: at a bound in bytes, and the log says so."""
    request = write_request(Kind.SOTW, CLUSTER, error="x" * 3_000_000)
    async with control_plane() as plane, bench(tmp_path, plane.address) as b, asyncio.timeout(60):
        call = b.client.open(Kind.SOTW)
        await plane.accept()

        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for _ in range(40):
                await call.send(request)
        await call.status()
        await b.counts.reach(ERROR)
        problem = b.relay.problem()

    assert "control plane does not read" in str(problem)
    assert "control plane does not read" in caplog.text


@pytest.mark.parametrize(
    ("code", "details", "counted"),
    [
        (grpc.StatusCode.OK, "", CANCELLED),
        (grpc.StatusCode.CANCELLED, "bye", CANCELLED),
        (grpc.StatusCode.INTERNAL, "boom", ERROR),
        (grpc.StatusCode.UNAUTHENTICATED, "authentication failure", ERROR),
        # X5: Envoy's own back-off is what heeds it.
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "request rate limit exceeded", ERROR),
    ],
)
async def test_the_status_of_the_control_plane_reaches_envoy(
    code: grpc.StatusCode,
    details: str,
    counted: tuple[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """T-X16."""
    caplog.set_level(logging.INFO, "agent.xds")
    async with streaming(tmp_path, Kind.DELTA) as (b, call, stream):
        await stream.send(response(Kind.DELTA, CLUSTER))
        stream.end(code, details)

        assert read_response(await call.receive()).type_url == CLUSTER
        assert await call.status() == (code, details)
        await b.counts.reach(counted)

    ends = [record for record in caplog.records if "stream ended" in record.message]
    assert len(ends) == 1
    assert ends[0].levelno == (logging.WARNING if counted == ERROR else logging.INFO)


def push_and_crash(connection: H2Connection, asked: Asked) -> None:
    connection.send_headers(asked.stream, GRPC)
    connection.send_data(asked.stream, b"\0" + len(PUSH).to_bytes(4, "big") + PUSH)
    trailers = [("grpc-status", "14"), ("grpc-message", "out of memory")]
    connection.send_headers(asked.stream, trailers, end_stream=True)


def end_without_status(connection: H2Connection, asked: Asked) -> None:
    connection.send_headers(asked.stream, GRPC)
    connection.send_data(asked.stream, b"", end_stream=True)


async def test_a_stream_that_ends_while_a_request_is_sent_ends_for_envoy_too(
    tmp_path: Path,
) -> None:
    """What came before its end arrives, and so does why it has ended."""
    async with (
        http2_server(push_and_crash, at_once=True) as plane,
        bench(tmp_path, f"127.0.0.1:{plane.port}") as b,
        asyncio.timeout(10),
    ):
        call = b.client.open(Kind.DELTA)
        await call.send(write_request(Kind.DELTA, CLUSTER))
        received = await call.receive()
        status = await call.status()

    assert received == PUSH
    assert status == (grpc.StatusCode.UNAVAILABLE, "out of memory")


async def test_a_stream_that_ends_without_a_status_ends_for_envoy_too(tmp_path: Path) -> None:
    """As one does behind a proxy that knows no gRPC."""
    async with (
        http2_server(end_without_status, at_once=True) as plane,
        bench(tmp_path, f"127.0.0.1:{plane.port}") as b,
        asyncio.timeout(10),
    ):
        status = await b.client.open(Kind.DELTA).status()

    assert status == (
        grpc.StatusCode.INTERNAL,
        "control plane has ended the stream without a status",
    )


@pytest.mark.parametrize("last_words", [b"", GOAWAY_NO_ERROR])
async def test_a_connection_that_is_closed_in_good_order_is_expected(
    last_words: bytes, tmp_path: Path
) -> None:
    """T-X16, X2: a maximum connection age, or a link that is cut; the next stream works."""
    async with (
        control_plane() as plane,
        link(plane.port) as between,
        bench(tmp_path, between.address) as b,
    ):
        call = b.client.open(Kind.DELTA)
        await plane.accept()
        between.cut(last_words)

        assert (await call.status())[0] is grpc.StatusCode.UNAVAILABLE
        await b.counts.reach(CANCELLED)
        b.client.open(Kind.DELTA)
        await plane.accept()


async def test_a_control_plane_that_does_not_answer_is_a_problem_until_it_does(
    tmp_path: Path,
) -> None:
    """It accepts the connection, and all that follows is an end in good order, or nothing."""
    async with (
        control_plane() as plane,
        link(plane.port) as between,
        bench(tmp_path, between.address) as b,
    ):
        nobody_came = b.relay.problem()
        call = b.client.open(Kind.DELTA)
        await plane.accept()
        silent = b.relay.problem()
        between.cut(GOAWAY_NO_ERROR)
        await call.status()
        await b.counts.reach(CANCELLED)
        left = b.relay.problem()
        call = b.client.open(Kind.DELTA)
        stream = await plane.accept()
        silent_again = b.relay.problem()
        await stream.send(response(Kind.DELTA, CLUSTER))
        await call.receive()
        answered = b.relay.problem()
        stream.end()
        await call.status()

        assert b.relay.problem() is None  # it had answered, and ended in good order

    where = f"control plane {between.address}: "
    assert (nobody_came, answered) == (None, None)
    assert silent == f"{where}no answer yet"
    assert left is not None
    assert left.startswith(f"{where}UNAVAILABLE: ")
    assert silent_again is not None
    assert silent_again.startswith(f"{where}no answer yet, and the last stream ended with UNAVAIL")


@pytest.mark.slow
async def test_a_link_that_went_silent_is_noticed_by_keepalive(tmp_path: Path) -> None:
    """X2."""
    keepalive = KeepaliveSettings(interval_seconds=1, timeout_seconds=1)
    permissive = (("grpc.http2.min_ping_interval_without_data_ms", 100),)
    async with (
        control_plane(options=permissive) as plane,
        link(plane.port) as between,
        bench(tmp_path, between.address, keepalive=keepalive) as b,
    ):
        call = b.client.open(Kind.DELTA)
        await plane.accept()
        between.freeze()

        code, _ = await asyncio.wait_for(call.status(), 30)

    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.slow
async def test_a_control_plane_that_does_not_answer_a_connection_is_given_up(
    tmp_path: Path,
) -> None:
    """D-1: five seconds instead of twenty."""
    async with control_plane() as plane, link(plane.port) as between:
        between.freeze()
        async with bench(tmp_path, between.address) as b:
            started = asyncio.get_running_loop().time()
            call = b.client.open(Kind.DELTA)

            code, _ = await asyncio.wait_for(call.status(), 15)

            assert code is grpc.StatusCode.UNAVAILABLE
            assert asyncio.get_running_loop().time() - started > 1
            assert b.relay.problem() is not None


async def test_envoy_is_watched_while_the_control_plane_is_dialled(tmp_path: Path) -> None:
    """D-1."""
    async with control_plane() as plane, link(plane.port) as between:
        between.freeze()
        async with bench(tmp_path, between.address) as b:
            call = b.client.open(Kind.DELTA)
            await call.send(write_request(Kind.DELTA, CLUSTER))
            await between.connected.wait()
            await call.half_close()

            assert await call.status() == (grpc.StatusCode.OK, "")
            await b.counts.reach(ENVOY_CANCELLED)


@pytest.mark.slow
async def test_no_connection_outlives_its_stream(tmp_path: Path) -> None:
    """Section 2.5, whoever has ended it; gRPC leaves that to the collector of garbage."""
    async with (
        control_plane() as plane,
        link(plane.port) as between,
        bench(tmp_path, between.address) as b,
    ):
        for side in ("Envoy", "control plane"):
            call = b.client.open(Kind.DELTA)
            await call.send(write_request(Kind.DELTA, CLUSTER))
            stream = await plane.accept()
            await stream.send(response(Kind.DELTA, CLUSTER))
            await call.receive()
            between.disconnected.clear()
            gc.disable()
            try:
                if side == "Envoy":
                    call.cancel()
                else:
                    stream.end()

                await asyncio.wait_for(between.disconnected.wait(), 10)
            finally:
                gc.enable()


async def test_a_connection_is_begun_before_envoy_comes_and_ends_though_it_never_does(
    tmp_path: Path,
) -> None:
    async with control_plane() as plane, link(plane.port) as between:
        async with bench(tmp_path, between.address):
            await asyncio.wait_for(between.connected.wait(), 10)
        gc.disable()
        try:
            await asyncio.wait_for(between.disconnected.wait(), 10)
        finally:
            gc.enable()
