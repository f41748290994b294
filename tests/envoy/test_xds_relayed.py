"""A real Envoy, the relay, and a control plane that comes and goes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.xds.discovery import Kind, Resource, read_request, read_subscription
from agent.xds.local.convert import convert
from agent.xds.resources import CLUSTER, LISTENER, NAME_TABLE
from agent.xds.snapshot import ServedStream, Snapshot, make_snapshot
from tests.envoy.xds_envoy import running_envoy
from tests.fakes.control_plane import ControlPlane, Stream, control_plane
from tests.fakes.relay_bench import bench

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


def resources(directory: Path, cluster: str) -> Snapshot:
    """Return a cluster, a listener, and a name table for the agent itself."""
    tcp_proxy = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
    text = f"""
        "@type": {CLUSTER}
        name: {cluster}
        ---
        "@type": {LISTENER}
        name: listener
        address: {{pipe: {{path: {directory}/listener}}}}
        filter_chains:
        - filters:
          - name: tcp
            typed_config: {{"@type": {tcp_proxy}, stat_prefix: x, cluster: {cluster}}}
    """
    version, found = convert({"x.yaml": "\n".join(line[8:] for line in text.splitlines()).encode()})
    table = Resource(NAME_TABLE, "", version, cluster.encode())
    return make_snapshot(version, [*found, table])


class Plane:
    """Serves a snapshot to one stream at a time."""

    def __init__(self, plane: ControlPlane, snapshot: Snapshot) -> None:
        self._plane = plane
        self._snapshot = snapshot
        #: What was said first of each type, per stream.
        self.firsts: list[dict[str, bytes]] = []

    async def serve(self) -> None:
        while True:
            stream = await self._plane.accept()
            self.firsts.append({})
            await self._answer(stream, ServedStream(stream.kind, self._snapshot))

    async def _answer(self, stream: Stream, served: ServedStream) -> None:
        while (raw := await stream.receive()) is not None:
            self.firsts[-1].setdefault(read_request(stream.kind, raw).type_url, raw)
            served.receive_request(raw)
            while (response := served.next_response()) is not None:
                await stream.send(response)


@contextlib.asynccontextmanager
async def serving_plane(snapshot: Snapshot, port: int = 0) -> AsyncIterator[tuple[Plane, int]]:
    async with control_plane(port=port) as plane:
        serving = Plane(plane, snapshot)
        task = asyncio.create_task(serving.serve())
        try:
            yield serving, plane.port
        finally:
            task.cancel()
            await asyncio.wait((task,))


@pytest.mark.parametrize("kind", Kind)
async def test_envoy_and_agent_come_back_with_all_they_have(kind: Kind, tmp_path: Path) -> None:
    """X2, X10: nothing is lost while there is no control plane, and the agent subscribes anew."""
    tables: asyncio.Queue[bytes | None] = asyncio.Queue()
    handlers = {NAME_TABLE: tables.put_nowait}
    async with contextlib.AsyncExitStack() as stack:
        async with serving_plane(resources(tmp_path, "one")) as (before, port):
            b = await stack.enter_async_context(
                bench(tmp_path, f"127.0.0.1:{port}", deliver=handlers, subscribe=(NAME_TABLE,))
            )
            envoy = await stack.enter_async_context(running_envoy(tmp_path, kind, b.path))
            await envoy.live()
            assert await tables.get() == b"one"

        assert set(await envoy.listeners()) == {"listener"}

        async with serving_plane(resources(tmp_path, "two"), port) as (after, _):
            async with asyncio.timeout(20):
                assert await tables.get() == b"two"

            async def has_followed() -> bool:
                return "two::" in await envoy.admin("clusters")

            await envoy.until(has_followed)
            assert b.relay.problem() is None

    assert list(before.firsts[0]) == [CLUSTER, LISTENER, NAME_TABLE]
    again = after.firsts[-1]
    assert set(again) == {CLUSTER, LISTENER, NAME_TABLE}
    if kind is Kind.DELTA:
        assert set(read_subscription(kind, again[CLUSTER]).initial_versions) == {"one"}
    else:
        assert read_request(kind, again[CLUSTER]).version == resources(tmp_path, "one").version
