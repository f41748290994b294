"""A real Envoy that starts while there is no control plane, and the hand-over to one. Case X11."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml
from aiohttp import web

from agent.xds import resources
from agent.xds.discovery import Kind
from agent.xds.local.convert import convert
from agent.xds.settings import CacheSettings
from agent.xds.snapshot import Snapshot, make_snapshot
from tests.envoy.test_xds_directory import HTTP, ROUTER
from tests.envoy.test_xds_relayed import serving_plane
from tests.envoy.xds_envoy import RunningEnvoy, running_envoy
from tests.fakes.control_plane import control_plane
from tests.fakes.relay_bench import Bench, bench

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

#: As istiod has it: whoever is named is waited for.
ADS: dict[str, Any] = {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
AFTER_SECONDS = 0.2


def cluster(directory: Path, name: str) -> list[dict[str, Any]]:
    """Return a cluster and its endpoint."""
    address = {"pipe": {"path": str(directory / name)}}
    return [
        {
            "@type": resources.CLUSTER,
            "name": name,
            "type": "EDS",
            "eds_cluster_config": {"eds_config": ADS},
        },
        {
            "@type": resources.ENDPOINT,
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    ]


def mesh(directory: Path, *names: str) -> Snapshot:
    """Return clusters, their endpoints, a listener, and routes that lead to the last cluster."""
    route = {"match": {"prefix": "/"}, "route": {"cluster": names[-1]}}
    manager = {
        "@type": f"{HTTP}.HttpConnectionManager",
        "stat_prefix": "in",
        "rds": {"config_source": ADS, "route_config_name": "routes"},
        "http_filters": [{"name": "router", "typed_config": {"@type": ROUTER}}],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    documents = [
        *(document for name in names for document in cluster(directory, name)),
        {
            "@type": resources.LISTENER,
            "name": "listener",
            "address": {"pipe": {"path": str(directory / "listener")}},
            "filter_chains": [chain],
        },
        {
            "@type": resources.ROUTE,
            "name": "routes",
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}],
        },
    ]
    return make_snapshot(*convert({"x.yaml": yaml.safe_dump_all(documents).encode()}))


@contextlib.asynccontextmanager
async def services(directory: Path, *names: str) -> AsyncIterator[None]:
    """Run services that answer with their names."""
    async with contextlib.AsyncExitStack() as stack:
        for name in names:
            application = web.Application()

            async def answer(_: web.Request, name: str = name) -> web.Response:
                return web.Response(text=name)

            application.router.add_get("/", answer)
            runner = web.AppRunner(application)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.UnixSite(runner, str(directory / name)).start()
        yield


class Load:
    """Requests to the listener, one after the other."""

    def __init__(self, directory: Path) -> None:
        self._path = str(directory / "listener")
        self.answers: list[str] = []

    async def ask(self, session: aiohttp.ClientSession) -> str:
        async with session.get("http://listener/") as response:
            text = await response.text()
        return f"{response.status} {text}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Ask all the time; `answers` has what came of it."""
        connector = aiohttp.UnixConnector(self._path)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def keep_asking() -> None:
                while True:
                    try:
                        self.answers.append(await self.ask(session))
                    except aiohttp.ClientError as error:
                        self.answers.append(str(error))

            task = asyncio.create_task(keep_asking())
            try:
                yield
            finally:
                task.cancel()
                await asyncio.wait((task,))


class Pod(NamedTuple):
    bench: Bench
    envoy: RunningEnvoy


@contextlib.asynccontextmanager
async def pod(directory: Path, kind: Kind, address: str) -> AsyncIterator[Pod]:
    """Run a relay that keeps what is accepted, and its Envoy."""
    cache = CacheSettings(str(directory / "kept"), AFTER_SECONDS)
    async with (
        bench(directory, address, cache=cache, rng=lambda: 0.9) as b,
        running_envoy(directory, kind, b.path) as envoy,
    ):
        yield Pod(b, envoy)


@pytest.mark.parametrize("kind", Kind)
async def test_a_pod_starts_without_a_control_plane_and_is_handed_over_to_one(
    kind: Kind, tmp_path: Path
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(services(tmp_path, "one", "two"))
        async with control_plane() as gone:
            pass
        async with (
            serving_plane(mesh(tmp_path, "zero", "two", "one"), gone.port),
            pod(tmp_path, kind, gone.address) as first,
        ):
            await first.envoy.live()

        made = await stack.enter_async_context(pod(tmp_path, kind, gone.address))
        await made.envoy.live()
        serving, old = made.bench.counts["xds_serving_cached", ""], made.bench.relay.problem()
        load = Load(tmp_path)
        await stack.enter_async_context(load.running())

        async def has_answers() -> bool:
            return len(load.answers) > 10

        await made.envoy.until(has_answers)
        came = serving_plane(mesh(tmp_path, "one", "two"), gone.port)
        await stack.enter_async_context(came)

        async def has_followed() -> bool:
            clusters = await made.envoy.admin("clusters")
            return load.answers[-1] == "200 two" and "zero::" not in clusters

        await made.envoy.until(has_followed)

        assert (serving, made.bench.counts["xds_serving_cached", ""]) == (1, 0)
        assert "serving cached configuration" in str(old)
        assert made.bench.relay.problem() is None
        assert set(load.answers) == {"200 one", "200 two"}
