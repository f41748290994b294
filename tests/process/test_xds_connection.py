"""What the relay says of the control plane, for whoever asks why the pod is not ready."""

import time
from pathlib import Path

import grpc

from agent.xds.discovery import Kind
from agent.xds.resources import CLUSTER
from tests.fakes.control_plane import control_plane
from tests.fakes.relay_bench import ERROR, bench, response
from tests.waiting import until

#: Nobody listens there.
REFUSED = "127.0.0.1:1"


async def test_the_connection_is_described_from_first_to_last(tmp_path: Path) -> None:
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        start = b.relay.connection()
        call = b.client.open(Kind.DELTA)
        stream = await plane.accept()
        await until(lambda: b.relay.connection()["state"] == "connecting")
        waiting = b.relay.connection()
        await stream.send(response(Kind.DELTA, CLUSTER))
        await call.receive()
        answered = b.relay.connection()
        stream.end(grpc.StatusCode.INTERNAL, "no such cluster")
        await call.status()
        await b.counts.reach(ERROR)
        ended = b.relay.connection()

    nothing = {"address": plane.address, "problem": None, "last_error": None}
    assert start == {**nothing, "state": "disconnected"}
    assert waiting["problem"] == f"control plane {plane.address}: no answer yet"
    assert answered == {**nothing, "state": "connected"}
    assert ended["state"] == "disconnected"
    error = ended["last_error"]
    assert isinstance(error, dict)
    assert error["reason"] == "no such cluster"
    assert abs(error["time"] - time.time()) < 60


async def test_of_several_places_the_one_is_named_that_answers(tmp_path: Path) -> None:
    async with control_plane() as plane, bench(tmp_path, REFUSED, others=(plane.address,)) as b:
        start = b.relay.connection()
        call = b.client.open(Kind.DELTA)
        await (await plane.accept()).send(response(Kind.DELTA, CLUSTER))
        await call.receive()
        answered = b.relay.connection()

    assert start["address"] == REFUSED
    assert (answered["address"], answered["state"]) == (plane.address, "connected")
