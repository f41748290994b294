"""What becomes of a drain when the control plane changes an inbound listener meanwhile.

The relay passes such pushes on: one of them may deny somebody access.
"""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agent.lifecycle.drain import drain_target
from agent.xds.discovery import Kind
from agent.xds.local.convert import convert
from agent.xds.resources import LISTENER
from agent.xds.snapshot import Snapshot, make_snapshot
from tests.envoy.test_xds_refused import Plane, serving
from tests.envoy.xds_envoy import RunningEnvoy, running_envoy
from tests.fakes.relay_bench import bench

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

FILTERS = "type.googleapis.com/envoy.extensions.filters"


def inbound(directory: Path, text: str, **more: object) -> Snapshot:
    """Return a listener that answers with a text."""
    route = {
        "match": {"prefix": "/"},
        "direct_response": {"status": 200, "body": {"inline_string": text}},
    }
    manager = {
        "@type": f"{FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "inbound",
        "route_config": {"virtual_hosts": [{"name": "a", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{FILTERS}.http.router.v3.Router"}}
        ],
    }
    listener = {
        "@type": LISTENER,
        "name": "inbound",
        "traffic_direction": "INBOUND",
        "address": {"pipe": {"path": f"{directory}/inbound"}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
        **more,
    }
    return make_snapshot(*convert({"a.json": json.dumps(listener).encode()}))


async def ask(directory: Path) -> tuple[str, bool]:
    """Return what the listener answers, and whether it tells its client to leave."""
    connector = aiohttp.UnixConnector(str(directory / "inbound"))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get("http://any/") as response,
    ):
        return await response.text(), response.headers.get("connection") == "close"


@contextlib.asynccontextmanager
async def draining(directory: Path) -> AsyncIterator[tuple[Plane, RunningEnvoy]]:
    """Run an Envoy that is asked to drain once it serves."""
    plane = Plane(inbound(directory, "first"))
    async with (
        serving(plane) as server,
        bench(directory, server.address) as b,
        running_envoy(directory, Kind.DELTA, b.path) as envoy,
    ):
        await envoy.live()
        assert await ask(directory) == ("first", False)
        await envoy.admin(drain_target(is_sidecar=True).removeprefix("/"), method="POST")
        assert await ask(directory) == ("first", True)
        yield plane, envoy


@pytest.mark.parametrize(
    ("more", "says_goodbye"),
    [
        ({}, True),  # its filter chains alone, where policies and routes are
        ({"listener_filters_timeout": "1s"}, False),
    ],
)
async def test_a_drain_outlives_what_does_not_replace_its_listener(
    more: dict[str, Any], *, says_goodbye: bool, tmp_path: Path
) -> None:
    """And the change is in force at once."""
    async with draining(tmp_path) as (plane, envoy):
        await plane.replace(inbound(tmp_path, "second", **more))

        async def has_changed() -> bool:
            return (await ask(tmp_path))[0] == "second"

        await envoy.until(has_changed)
        assert await ask(tmp_path) == ("second", says_goodbye)
