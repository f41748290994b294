"""A control plane in several places. Case S6."""

import asyncio
from pathlib import Path

import grpc

from agent.xds.discovery import Kind, read_response, write_request
from agent.xds.resources import CLUSTER
from agent.xds.settings import PatienceSettings
from tests.fakes.control_plane import control_plane
from tests.fakes.link import link
from tests.fakes.relay_bench import ENVOY_CANCELLED, bench, response
from tests.waiting import until

#: Nobody listens there.
REFUSED = "127.0.0.1:1"


async def test_where_the_first_place_refuses_the_second_serves_the_same_stream(
    tmp_path: Path,
) -> None:
    """S6: Envoy does not even notice."""
    async with control_plane() as plane, bench(tmp_path, REFUSED, others=(plane.address,)) as b:
        call = b.client.open(Kind.DELTA)
        await (await plane.accept()).send(response(Kind.DELTA, CLUSTER))

        assert read_response(await call.receive()).type_url == CLUSTER
        assert b.relay.problem() is None


async def test_a_name_with_several_addresses_is_as_good(tmp_path: Path) -> None:
    async with control_plane() as plane, bench(tmp_path, f"ipv4:{REFUSED},{plane.address}") as b:
        call = b.client.open(Kind.DELTA)
        await (await plane.accept()).send(response(Kind.DELTA, CLUSTER))

        assert read_response(await call.receive()).type_url == CLUSTER


async def test_the_place_that_was_reached_is_dialled_first(tmp_path: Path) -> None:
    async with control_plane() as one, control_plane() as two:
        async with bench(tmp_path, REFUSED, others=(two.address, one.address)) as b:
            first = b.client.open(Kind.DELTA)
            stream = await two.accept()
            await stream.send(response(Kind.DELTA, CLUSTER))
            await first.receive()
            stream.end()
            await first.status()
            b.client.open(Kind.DELTA)
            await two.accept()

        assert one.streams.empty()


async def test_a_place_that_has_no_answer_gives_way_to_the_next(tmp_path: Path) -> None:
    async with (
        control_plane() as one,
        control_plane() as two,
        bench(tmp_path, one.address, others=(two.address,)) as b,
    ):
        refused = b.client.open(Kind.DELTA)
        (await one.accept()).end(grpc.StatusCode.UNAVAILABLE, "not ready")
        status = await refused.status()
        problem = b.relay.problem()
        again = b.client.open(Kind.DELTA)
        await (await two.accept()).send(response(Kind.DELTA, CLUSTER))
        await again.receive()

    assert status == (grpc.StatusCode.UNAVAILABLE, "not ready")
    assert f"control plane {one.address}: UNAVAILABLE: not ready" in str(problem)


async def test_a_place_that_hangs_gives_way_to_the_next_and_is_a_problem_meanwhile(
    tmp_path: Path,
) -> None:
    """S6, X6: it takes the stream, and does nothing more."""
    patience = PatienceSettings(silence_seconds=0.2)
    async with (
        control_plane() as one,
        control_plane() as two,
        bench(tmp_path, one.address, others=(two.address,), patience=patience) as b,
    ):
        hung = b.client.open(Kind.DELTA)
        _, details = await hung.status()
        problem = b.relay.problem()
        again = b.client.open(Kind.DELTA)
        async with asyncio.timeout(5):
            stream = await two.accept()
        await stream.send(response(Kind.DELTA, CLUSTER))
        await again.receive()

    assert problem == f"control plane {one.address}: UNAVAILABLE: {details}"


async def test_a_newer_stream_replaces_one_whose_places_are_being_dialled(tmp_path: Path) -> None:
    async with control_plane() as plane, link(plane.port) as between:
        between.freeze()
        async with bench(tmp_path, between.address, others=(plane.address, REFUSED)) as b:
            older = b.client.open(Kind.DELTA)
            await older.send(write_request(Kind.DELTA, CLUSTER))
            await until(lambda: b.relay.connection()["state"] != "disconnected")
            b.client.open(Kind.DELTA)

            code, _ = await older.status()

            assert code is grpc.StatusCode.OK
            assert plane.streams.empty()  # the first place is still being waited for


async def test_who_leaves_while_places_are_dialled_leaves_no_connection(tmp_path: Path) -> None:
    async with control_plane() as plane, link(plane.port) as between:
        between.freeze()
        async with bench(tmp_path, between.address, others=(REFUSED,)) as b:
            call = b.client.open(Kind.DELTA)
            await call.send(write_request(Kind.DELTA, CLUSTER))
            await between.connected.wait()
            await until(lambda: b.relay.connection()["state"] != "disconnected")
            call.cancel()

            await b.counts.reach(ENVOY_CANCELLED)
            between.thaw()
            await asyncio.wait_for(between.disconnected.wait(), 10)


async def test_where_no_place_can_be_reached_each_is_tried_and_the_stream_says_so(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, REFUSED, others=("127.0.0.1:2",)) as b:
        statuses = [await b.client.open(Kind.DELTA).status() for _ in range(3)]
        problem = b.relay.problem()

    assert {code for code, _ in statuses} == {grpc.StatusCode.UNAVAILABLE}
    assert "failed to connect" in str(problem)
