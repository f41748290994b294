"""Starts without a control plane: what Envoy has accepted before is served. Cases X10 and X11."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from agent.protobuf.wire import message
from agent.xds.discovery import (
    REQUEST,
    Kind,
    Resource,
    read_response,
    write_request,
    write_response,
)
from agent.xds.resources import CLUSTER, LISTENER, SECRET, short_name
from agent.xds.settings import CacheSettings
from tests.fakes.ads_client import AdsCall
from tests.fakes.control_plane import control_plane
from tests.fakes.relay_bench import Bench, bench
from tests.waiting import until

NODE = "sidecar~10.0.0.1~pod.ns~ns.svc.cluster.local"
SERVING = ("xds_serving_cached", "")
REFUSED = "127.0.0.1:1"
AFTER_SECONDS = 0.1


@contextlib.asynccontextmanager
async def caching(
    directory: Path, address: str, after_seconds: float = AFTER_SECONDS
) -> AsyncIterator[Bench]:
    """Run a relay that keeps what is accepted, and dials again at once."""
    cache = CacheSettings(str(directory / "kept"), after_seconds)
    async with bench(directory, address, cache=cache, rng=lambda: 0.95) as made:
        yield made


def first(kind: Kind, type_url: str, *, has: bool = False, node: str = NODE) -> bytes:
    """Return Envoy's first request for a type; `has`: it has some of it."""
    number = REQUEST[kind]
    raw = write_request(kind, type_url, version="1" if has else "")
    if has and kind is Kind.DELTA:
        raw += message((number.initial_versions, message((1, "one"), (2, "1"))))
    return raw + message((number.node, message((1, node))))


def push(kind: Kind, type_url: str, *names: str, nonce: str = "n", size: int = 0) -> bytes:
    resources = [
        Resource(type_url, name, "1", message((1, name), (9, "x" * size))) for name in names
    ]
    return write_response(kind, type_url, version="1", nonce=nonce, resources=resources)


def both(kind: Kind) -> list[bytes]:
    """Return what makes a configuration."""
    return [push(kind, type_url, "one") for type_url in (CLUSTER, LISTENER)]


async def accept(call: AdsCall, kind: Kind, raw: bytes, error: str | None = None) -> None:
    head = read_response(raw)
    await call.send(
        write_request(kind, head.type_url, version=head.version, nonce=head.nonce, error=error)
    )


async def live(directory: Path, kind: Kind, *pushes: bytes, error: str | None = None) -> None:
    """Have Envoy get pushes and accept all but the last, which it refuses if there is an error."""
    async with control_plane() as plane, caching(directory, plane.address) as b:
        call = b.client.open(kind)
        for type_url in (CLUSTER, LISTENER, SECRET):
            await call.send(first(kind, type_url))
        stream = await plane.accept()
        for _ in range(3):
            await stream.receive()
        for raw in pushes:
            await stream.send(raw)
            await call.receive()
            await accept(call, kind, raw, error if raw is pushes[-1] else None)
            await stream.receive()


async def asked(b: Bench, kind: Kind, *type_urls: str) -> AdsCall:
    """Return the stream of an Envoy that has nothing."""
    call = b.client.open(kind)
    for type_url in type_urls:
        await call.send(first(kind, type_url))
    return call


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("other", Kind)
async def test_what_was_accepted_is_served_and_said_to_be_old(
    kind: Kind, other: Kind, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """X11: in either kind, whichever it came in."""
    pushes = [push(other, type_url, "one", "two") for type_url in (CLUSTER, LISTENER, SECRET)]
    await live(tmp_path, other, *pushes)

    async with caching(tmp_path, REFUSED) as b:
        before = b.counts[SERVING]
        call = await asked(b, kind, SECRET, LISTENER, CLUSTER)
        served = [read_response(await call.receive()) for _ in range(2)]
        problem, connection = b.relay.problem(), b.relay.connection()

        assert b.counts[SERVING] == 1

    assert before == 0
    assert [each.type_url for each in served] == [CLUSTER, LISTENER]
    assert [each.resource_count for each in served] == [2, 2]
    assert re.search(r"serving cached configuration that last changed \d+s ago", str(problem))
    assert REFUSED in str(problem)
    assert connection["problem"] == problem
    assert re.search(r"serving cached configuration age_seconds=\d+ resources=4", caplog.text)


@pytest.mark.parametrize("kind", Kind)
async def test_what_was_refused_is_never_served(kind: Kind, tmp_path: Path) -> None:
    good, bad = push(kind, CLUSTER, "good"), push(kind, CLUSTER, "bad", nonce="m")
    await live(tmp_path, kind, push(kind, LISTENER, "one"), good, bad, error="no such thing")

    async with caching(tmp_path, REFUSED) as b:
        served = await (await asked(b, kind, CLUSTER)).receive()

    assert b"good" in served
    assert b"bad" not in served


async def test_what_was_not_answered_is_not_served(tmp_path: Path) -> None:
    async with control_plane() as plane, caching(tmp_path, plane.address) as b:
        call = await asked(b, Kind.DELTA, CLUSTER)
        stream = await plane.accept()
        await stream.send(push(Kind.DELTA, CLUSTER, "one"))
        await call.receive()

    async with caching(tmp_path, REFUSED) as b:
        code, _ = await (await asked(b, Kind.DELTA, CLUSTER)).status()

    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.slow
@pytest.mark.parametrize("kind", Kind)
async def test_a_control_plane_that_is_there_again_gets_envoy_back(
    kind: Kind, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agent.xds")
    await live(tmp_path, kind, *both(kind))
    async with control_plane() as gone:
        pass
    async with caching(tmp_path, gone.address) as b:
        call = await asked(b, kind, CLUSTER, LISTENER)
        for _ in range(2):
            await accept(call, kind, await call.receive())
        async with control_plane(port=gone.port) as plane:
            ended = await call.status()
            still = b.relay.problem()
            again = b.client.open(kind)
            for type_url in (CLUSTER, LISTENER):
                await again.send(first(kind, type_url, has=True))
            stream = await plane.accept()
            await stream.send(push(kind, CLUSTER, "two"))
            relayed = await again.receive()

            assert b.counts[SERVING] == 0
            assert b.relay.problem() is None

    assert ended[0] is grpc.StatusCode.OK
    assert "details='control plane can be reached again'" in caplog.text
    assert "serving cached configuration" in str(still)
    assert b"two" in relayed
    assert "control plane has taken over from the cache" in caplog.text


async def test_a_control_plane_that_is_silent_is_stood_in_for_too(tmp_path: Path) -> None:
    await live(tmp_path, Kind.DELTA, *both(Kind.DELTA))

    async with control_plane() as plane, caching(tmp_path, plane.address) as b:
        call = await asked(b, Kind.DELTA, CLUSTER)
        stream = await plane.accept()
        served = await call.receive()
        await stream.closed.wait()

    assert b"one" in served


@pytest.mark.parametrize("kind", Kind)
async def test_an_envoy_that_has_a_configuration_keeps_it(kind: Kind, tmp_path: Path) -> None:
    """X10: it is told how the stream ended, at once, and nothing else."""
    await live(tmp_path, kind, *both(kind))

    async with caching(tmp_path, REFUSED, after_seconds=60) as b:
        call = b.client.open(kind)
        for type_url in (CLUSTER, LISTENER):
            await call.send(first(kind, type_url, has=True))

        with pytest.raises(grpc.aio.AioRpcError):
            await call.receive()
        assert (await call.status())[0] is grpc.StatusCode.UNAVAILABLE
        assert b.counts[SERVING] == 0


@pytest.mark.slow
async def test_who_asks_after_the_connection_was_refused_is_served_too(tmp_path: Path) -> None:
    await live(tmp_path, Kind.DELTA, *both(Kind.DELTA))

    async with caching(tmp_path, REFUSED, after_seconds=1) as b:
        call = b.client.open(Kind.DELTA)
        await until(lambda: "failed to connect" in str(b.relay.problem()))
        await call.send(first(Kind.DELTA, CLUSTER))

        assert b"one" in await call.receive()


@pytest.mark.slow
async def test_a_control_plane_that_refuses_is_not_waited_for_as_one_that_may_answer(
    tmp_path: Path,
) -> None:
    """X11: with the default, a pod has to be live within 3 seconds."""
    await live(tmp_path, Kind.DELTA, *both(Kind.DELTA))

    async with caching(tmp_path, REFUSED, after_seconds=600) as b:
        call = await asked(b, Kind.DELTA, CLUSTER)

        async with asyncio.timeout(10):
            assert b"one" in await call.receive()


async def test_without_anything_kept_nothing_is_different(tmp_path: Path) -> None:
    async with caching(tmp_path, REFUSED, after_seconds=60) as b:
        code, details = await (await asked(b, Kind.DELTA, CLUSTER)).status()

    assert code is grpc.StatusCode.UNAVAILABLE
    assert "failed to connect" in details


async def test_a_control_plane_that_is_back_in_time_is_asked(tmp_path: Path) -> None:
    await live(tmp_path, Kind.DELTA, *both(Kind.DELTA))
    async with control_plane() as gone:
        pass
    async with caching(tmp_path, gone.address, after_seconds=60) as b:
        call = await asked(b, Kind.DELTA, CLUSTER)
        await until(lambda: "failed to connect" in str(b.relay.problem()))
        async with control_plane(port=gone.port) as plane:
            code, details = await call.status()
            again = await asked(b, Kind.DELTA, CLUSTER)
            await (await plane.accept()).send(push(Kind.DELTA, CLUSTER, "two"))

            assert b"two" in await again.receive()
            assert b.counts[SERVING] == 0

    assert code is grpc.StatusCode.UNAVAILABLE
    assert "failed to connect" in details


async def test_a_control_plane_that_asks_for_time_is_stood_in_for_meanwhile(tmp_path: Path) -> None:
    await live(tmp_path, Kind.DELTA, *both(Kind.DELTA))

    async with control_plane() as plane, caching(tmp_path, plane.address) as b:
        refused = await asked(b, Kind.DELTA, CLUSTER)
        (await plane.accept()).end(grpc.StatusCode.RESOURCE_EXHAUSTED, "request rate limit")
        await refused.status()
        again = await asked(b, Kind.DELTA, CLUSTER)

        assert b"one" in await again.receive()
        assert plane.streams.empty()


async def test_an_envoy_that_leaves_while_nobody_answers_is_let_go(tmp_path: Path) -> None:
    await live(tmp_path, Kind.DELTA, *both(Kind.DELTA))

    async with caching(tmp_path, REFUSED, after_seconds=60) as b:
        call = await asked(b, Kind.DELTA, CLUSTER)
        await call.half_close()

        await call.status()


async def test_that_of_another_node_is_not_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await live(tmp_path, Kind.DELTA, *both(Kind.DELTA))

    async with caching(tmp_path, REFUSED) as b:
        call = b.client.open(Kind.DELTA)
        await call.send(first(Kind.DELTA, CLUSTER, node="another"))

        assert (await call.status())[0] is grpc.StatusCode.UNAVAILABLE

    assert "set aside" in caplog.text


@pytest.mark.parametrize("kind", Kind)
async def test_what_envoy_refuses_of_it_is_not_kept(
    kind: Kind, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await live(tmp_path, kind, *both(kind))
    async with caching(tmp_path, REFUSED) as b:
        call = await asked(b, kind, CLUSTER, LISTENER)
        await accept(call, kind, await call.receive())
        await accept(call, kind, await call.receive(), error="cannot bind")
        await until(lambda: "cannot bind" in caplog.text)

    async with caching(tmp_path, REFUSED) as b:
        code, _ = await (await asked(b, kind, LISTENER, CLUSTER)).status()

    assert code is grpc.StatusCode.UNAVAILABLE
    assert f"refused by Envoy type={short_name(LISTENER)}" in caplog.text


async def test_half_a_configuration_is_none(tmp_path: Path) -> None:
    await live(tmp_path, Kind.DELTA, push(Kind.DELTA, CLUSTER, "one"))

    async with caching(tmp_path, REFUSED) as b:
        code, _ = await (await asked(b, Kind.DELTA, CLUSTER)).status()

    assert code is grpc.StatusCode.UNAVAILABLE


async def test_large_pushes_are_kept_as_they_pass(tmp_path: Path) -> None:
    large = push(Kind.DELTA, CLUSTER, *(f"c{i}" for i in range(50)), size=100_000)
    more = push(Kind.DELTA, CLUSTER, "more", nonce="m")
    await live(tmp_path, Kind.DELTA, push(Kind.DELTA, LISTENER, "one"), large, more)

    async with caching(tmp_path, REFUSED) as b:
        served = await (await asked(b, Kind.DELTA, CLUSTER)).receive()

    assert read_response(served).resource_count == 51


async def test_what_cannot_be_kept_is_relayed_all_the_same_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept").write_text("no directory")
    raw = push(Kind.DELTA, CLUSTER, "one", size=1_000_000)

    async with control_plane() as plane, caching(tmp_path, plane.address) as b:
        call = await asked(b, Kind.DELTA, CLUSTER)
        stream = await plane.accept()
        await stream.receive()
        await stream.send(raw)
        assert await call.receive() == raw
        await until(lambda: "not keeping what Envoy accepts: " in str(b.relay.problem()))

    lines = [record for record in caplog.records if "not keeping" in record.message]
    assert len(lines) == 1
    assert "kept" in lines[0].message
