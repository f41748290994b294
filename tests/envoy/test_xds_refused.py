"""A real Envoy refuses a listener, and the agent says which and why."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.http.client import fetch, stream
from agent.xds.discovery import Kind
from agent.xds.local.convert import convert
from agent.xds.resources import LISTENER
from agent.xds.snapshot import ServedStream, Snapshot, make_snapshot
from tests.envoy.xds_envoy import running_envoy
from tests.fakes.control_plane import ControlPlane, Stream, control_plane
from tests.fakes.relay_bench import bench
from tests.fakes.status import Agent, status_server

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

TCP_PROXY = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"


def snapshot(directory: Path, *, is_good: bool, number: int) -> Snapshot:
    """Return two listeners, of which the first may have no filter chains."""
    proxy = {"@type": TCP_PROXY, "stat_prefix": str(number), "cluster": "none"}
    chains = [{"filters": [{"name": "tcp", "typed_config": proxy}]}]
    listeners = [
        {
            "@type": LISTENER,
            "name": name,
            "address": {"pipe": {"path": f"{directory}/{name}"}},
            "filter_chains": found,
        }
        for name, found in (("first", chains if is_good else []), ("second", chains))
    ]
    return make_snapshot(*convert({"a.json": json.dumps(listeners).encode()}))


class Plane:
    """Serves the snapshots that it is told to, to one stream."""

    def __init__(self, first: Snapshot) -> None:
        self._snapshot = first
        self._served: tuple[Stream, ServedStream] | None = None

    async def serve(self, plane: ControlPlane) -> None:
        stream = await plane.accept()
        served = ServedStream(stream.kind, self._snapshot)
        self._served = stream, served
        while (raw := await stream.receive()) is not None:
            served.receive_request(raw)
            await self._send()

    async def replace(self, snapshot: Snapshot) -> None:
        assert self._served
        self._served[1].replace(snapshot)
        await self._send()

    async def _send(self) -> None:
        assert self._served
        stream, served = self._served
        while (response := served.next_response()) is not None:
            await stream.send(response)


@contextlib.asynccontextmanager
async def serving(plane: Plane) -> AsyncIterator[ControlPlane]:
    async with control_plane() as server:
        task = asyncio.create_task(plane.serve(server))
        try:
            yield server
        finally:
            task.cancel()
            await asyncio.wait((task,))


@pytest.mark.parametrize("kind", Kind)
async def test_why_envoy_refuses_a_listener_is_told(kind: Kind, tmp_path: Path) -> None:
    plane = Plane(snapshot(tmp_path, is_good=True, number=1))
    agent = Agent()
    async with (
        status_server(agent=agent) as status,
        serving(plane) as server,
        bench(tmp_path, server.address, observe=agent.metrics.observe) as b,
    ):
        agent.documents |= {"syncz": b.relay.document, "syncz/watch": b.relay.watch}

        async def types() -> Any:  # noqa: ANN401 - JSON
            answer = await fetch("GET", "127.0.0.1", status.port, "/debug/syncz", timeout_seconds=5)
            return json.loads(answer.body)["types"]

        async with (
            stream(
                "GET", "127.0.0.1", status.port, "/debug/syncz/watch", timeout_seconds=30
            ) as incoming,
            running_envoy(tmp_path, kind, b.path) as envoy,
        ):
            lines = (json.loads(line) async for piece in incoming for line in piece.splitlines())
            begin = await anext(lines)
            told = [await anext(lines) for _ in range(2)]
            await envoy.live()
            good = await types()
            await plane.replace(snapshot(tmp_path, is_good=False, number=2))
            told.append(await anext(lines))
            bad = await types()
            await plane.replace(snapshot(tmp_path, is_good=True, number=3))
            told.append(await anext(lines))
            mended = await types()

    assert begin["types"] == {}
    assert {name: each["state"] for name, each in good.items()} == {
        "cds": "SYNCED",
        "lds": "SYNCED",
    }
    assert [(each["type"], each["result"]) for each in told] == [
        ("cds", "ACK"),
        ("lds", "ACK"),
        ("lds", "NACK"),
        ("lds", "ACK"),
    ]
    assert told[1]["names"] == {"added": ["first", "second"]}
    assert told[2]["names"] == {"changed": ["first", "second"]}
    refusal = told[2]["error"]
    assert "first: error adding listener" in refusal
    assert "no filter chains specified" in refusal
    assert bad["lds"]["state"] == "STALE"
    assert bad["lds"]["last_nack"]["error"] == refusal
    assert bad["lds"]["acknowledged"] == good["lds"]["sent"]
    assert mended["lds"]["state"] == "SYNCED"
    assert all(each["milliseconds"] > 0 for each in told)
    assert b.counts["pilot_total_xds_rejects", "lds"] == 1
    assert 'xds_proxy_push_ack_seconds_count{type="lds"} 2\n' in agent.metrics.render()
