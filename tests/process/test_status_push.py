"""Probes are answered while a push is under way: relay and status server share one loop."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from agent.status.probes import HttpProbe
from agent.status.settings import ProbeSettings
from agent.xds.discovery import Kind, write_request
from agent.xds.resources import CLUSTER
from tests.fakes.ads_client import AdsCall
from tests.fakes.control_plane import Stream, control_plane
from tests.fakes.probed import PATH, page
from tests.fakes.relay_bench import bench, response
from tests.fakes.status import status_server
from tests.fakes.web import Admin, Pages, web_server

PUSH_BYTES: Final = 20_000_000
PUSHES: Final = 5


async def push(stream: Stream, message: bytes) -> None:
    for _ in range(PUSHES):
        await stream.send(message)


async def take(call: AdsCall) -> list[int]:
    return [len(await call.receive()) for _ in range(PUSHES)]


@pytest.mark.slow
async def test_probes_are_answered_while_a_push_is_under_way(tmp_path: Path) -> None:
    """cases.md P12."""
    answer = response(Kind.DELTA, CLUSTER, b"x" * PUSH_BYTES)
    answered = []

    async with (
        web_server(Admin()) as admin_port,
        web_server(Pages({"/": page(text="fine")})) as port,
        status_server(
            admin_port=admin_port, probes=ProbeSettings({PATH: HttpProbe("/", port)})
        ) as status,
        control_plane() as plane,
        bench(tmp_path, plane.address) as relay,
    ):
        call = relay.client.open(Kind.DELTA)
        await call.send(write_request(Kind.DELTA, CLUSTER))
        stream = await plane.accept()
        await stream.receive()
        pushing = asyncio.create_task(push(stream, answer))
        taking = asyncio.create_task(take(call))
        while not (pushing.done() and taking.done()):
            answered.append((await status.ask(PATH)).status)
            answered.append((await status.ask("/healthz/ready")).status)
        received = await taking

    assert received == [len(answer)] * PUSHES
    assert len(answered) > PUSHES
    assert set(answered) == {200}
