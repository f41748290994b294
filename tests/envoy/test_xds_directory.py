"""AGENT_LOCAL_XDS=<directory> with a real Envoy: what it shows is what the files say."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from agent.xds import resources
from agent.xds.discovery import Kind
from agent.xds.run import Relay, serving
from agent.xds.settings import CredentialSettings, UpstreamSettings, XdsSettings
from tests.envoy.xds_envoy import RunningEnvoy, running_envoy

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

HTTP = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
ADS: dict[str, Any] = {"ads": {}, "resource_api_version": "V3"}


def cluster(name: str) -> dict[str, Any]:
    """Return a cluster whose endpoints come by EDS."""
    return {
        "@type": resources.CLUSTER,
        "name": name,
        "type": "EDS",
        "eds_cluster_config": {"eds_config": ADS},
    }


def endpoints(name: str, port: int) -> dict[str, Any]:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {
        "@type": resources.ENDPOINT,
        "cluster_name": name,
        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
    }


def listener(socket_path: Path) -> dict[str, Any]:
    """Return a listener on a Unix socket whose routes come by RDS."""
    manager = {
        "@type": f"{HTTP}.HttpConnectionManager",
        "stat_prefix": "test",
        "rds": {"config_source": ADS, "route_config_name": "routes"},
        "http_filters": [{"name": "router", "typed_config": {"@type": ROUTER}}],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    return {
        "@type": resources.LISTENER,
        "name": "listener",
        "address": {"pipe": {"path": str(socket_path)}},
        "filter_chains": [chain],
    }


def routes(cluster_name: str) -> dict[str, Any]:
    route = {"match": {"prefix": "/"}, "route": {"cluster": cluster_name}}
    return {
        "@type": resources.ROUTE,
        "name": "routes",
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}],
    }


def whole(directory: Path, name: str, port: int) -> list[dict[str, Any]]:
    """Return a cluster, its endpoint, a listener, and the route between them."""
    return [cluster(name), endpoints(name, port), listener(directory / "listener"), routes(name)]


class Scene(NamedTuple):
    """A directory, and the Envoy that is configured from it."""

    files: Path
    relay: Relay
    envoy: RunningEnvoy

    def write(self, name: str, *documents: Mapping[str, Any]) -> None:
        (self.files / name).write_text(yaml.safe_dump_all(documents))

    async def clusters(self) -> dict[str, str]:
        """Return the address of each cluster that came from the directory."""
        text = await self.envoy.admin("clusters")
        found = {}
        for line in text.splitlines():
            name, address, *rest = line.split("::")
            if rest[:1] == ["cx_active"] and name != "xds-grpc":
                found[name] = address
        return found

    async def target(self) -> str:
        """Return the cluster that the route leads to."""
        for each in await self.envoy.config("dynamic_route_configs"):
            host = each["route_config"]["virtual_hosts"][0]
            return str(host["routes"][0]["route"]["cluster"])
        return ""


@contextlib.asynccontextmanager
async def scene(directory: Path, kind: Kind) -> AsyncIterator[Scene]:
    """Start with clusters, endpoints, a listener and routes to the cluster `old`."""
    files = directory / "resources"
    files.mkdir()
    (files / "all.yaml").write_text(yaml.safe_dump_all(whole(directory, "old", 1001)))
    upstream = UpstreamSettings(
        address="", tls=False, server_name="", credentials=CredentialSettings(), metadata=()
    )
    settings = XdsSettings(str(directory / "XDS"), upstream, local=str(files))
    async with (
        serving(settings, count=lambda *_args, **_labels: None) as relay,
        running_envoy(directory, kind, settings.socket_path) as envoy,
    ):
        yield Scene(files, relay, envoy)


@pytest.mark.parametrize("kind", Kind)
async def test_envoy_shows_what_the_files_say_and_follows_them(kind: Kind, tmp_path: Path) -> None:
    async with scene(tmp_path, kind) as s:
        await s.envoy.live()
        assert await s.clusters() == {"old": "127.0.0.1:1001"}
        assert set(await s.envoy.listeners()) == {"listener"}
        assert await s.target() == "old"

        s.write("all.yaml", *whole(tmp_path, "new", 1002))

        async def has_followed() -> bool:
            return await s.clusters() == {"new": "127.0.0.1:1002"}

        await s.envoy.until(has_followed)
        assert await s.target() == "new"
        assert s.relay.problem() is None


@pytest.mark.parametrize("kind", Kind)
async def test_endpoints_move_without_touching_anything_else(kind: Kind, tmp_path: Path) -> None:
    async with scene(tmp_path, kind) as s:
        await s.envoy.live()
        before = await s.envoy.admin("stats?filter=update_success")
        s.write("all.yaml", *whole(tmp_path, "old", 1003))

        async def has_moved() -> bool:
            return await s.clusters() == {"old": "127.0.0.1:1003"}

        await s.envoy.until(has_moved)
        assert await s.envoy.admin("stats?filter=update_success") == before


@pytest.mark.parametrize("kind", Kind)
async def test_a_broken_file_changes_nothing_in_envoy(kind: Kind, tmp_path: Path) -> None:
    async with scene(tmp_path, kind) as s:
        await s.envoy.live()
        (s.files / "all.yaml").write_text("- '@type': nonsense")

        async def is_known() -> bool:
            return "all.yaml:1: there is no type 'nonsense'" in (s.relay.problem() or "")

        await s.envoy.until(is_known)
        assert await s.clusters() == {"old": "127.0.0.1:1001"}
        assert set(await s.envoy.listeners()) == {"listener"}


@pytest.mark.parametrize("kind", Kind)
async def test_what_envoy_refuses_is_said_and_takes_nothing_away(
    kind: Kind, tmp_path: Path
) -> None:
    async with scene(tmp_path, kind) as s:
        await s.envoy.live()
        refused = listener(tmp_path / "listener")
        refused["filter_chains"][0]["filters"][0]["name"] = ""
        del refused["address"]
        s.write("all.yaml", cluster("new"), endpoints("new", 1002), refused, routes("new"))

        async def is_known() -> bool:
            return "Envoy refused Listener" in (s.relay.problem() or "")

        await s.envoy.until(is_known)
        # The listener that stays in force may still name the cluster, so that stays, too.
        assert set(await s.envoy.listeners()) == {"listener"}
        assert set(await s.clusters()) == {"old", "new"}

        s.write("all.yaml", *whole(tmp_path, "new", 1002))

        async def has_recovered() -> bool:
            return s.relay.problem() is None and set(await s.clusters()) == {"new"}

        await s.envoy.until(has_recovered)
