"""A real Envoy runs the modules that the agent has fetched for it. Section 3, T-X9, T-X10."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from agent.xds.discovery import Kind
from agent.xds.local.convert import convert
from agent.xds.resources import EXTENSION, LISTENER
from agent.xds.snapshot import Snapshot, make_snapshot
from tests.envoy.test_xds_relayed import serving_plane
from tests.envoy.xds_envoy import RunningEnvoy, running_envoy
from tests.fakes.modules import modules
from tests.fakes.registry import FakeRegistry, docker_config
from tests.fakes.relay_bench import bench
from tests.fakes.wasm_module import STATUS, module
from tests.fakes.web import Pages, web_server

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

TYPES = "type.googleapis.com/envoy.extensions.filters"
HTTP_WASM = f"{TYPES}.http.wasm.v3.Wasm"
HTTP_RBAC = f"{TYPES}.http.rbac.v3.RBAC"
SECRET = "ISTIO_META_WASM_IMAGE_PULL_SECRET"  # noqa: S105 - a name


def listener(directory: Path, name: str) -> dict[str, object]:
    """Return a listener with an extension of its name, that answers 200 behind it."""
    discovered = {
        "config_source": {"ads": {}, "resource_api_version": "V3"},
        "type_urls": [HTTP_WASM, HTTP_RBAC],
    }
    routes = {
        "virtual_hosts": [
            {
                "name": "all",
                "domains": ["*"],
                "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}],
            }
        ]
    }
    manager = {
        "@type": f"{TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "route_config": routes,
        "http_filters": [
            {"name": name, "config_discovery": discovered},
            {"name": "router", "typed_config": {"@type": f"{TYPES}.http.router.v3.Router"}},
        ],
    }
    return {
        "@type": LISTENER,
        "name": name,
        "address": {"pipe": {"path": f"{directory}/{name}"}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def extension(name: str, uri: str, policy: str, environment: dict[str, str]) -> dict[str, object]:
    remote = {"http_uri": {"uri": uri, "cluster": "_", "timeout": "5s"}, "sha256": "nil"}
    vm = {
        "runtime": "envoy.wasm.runtime.v8",
        "code": {"remote": remote},
        "environment_variables": {"key_values": environment},
    }
    config = {"name": name, "vm_config": vm, "failure_policy": policy}
    return {
        "@type": EXTENSION,
        "name": name,
        "typed_config": {"@type": HTTP_WASM, "config": config},
    }


def snapshot(directory: Path, registry: str, modules_url: str) -> Snapshot:
    environment = {SECRET: docker_config(registry, "user", "hidden"), "KEY": "kept"}
    resources = [
        *(listener(directory, name) for name in ("image", "file", "closed", "open")),
        extension("image", f"oci://{registry}/owner/image:v1", "FAIL_CLOSED", environment),
        extension("file", f"{modules_url}/a", "FAIL_CLOSED", environment),
        extension("closed", f"{modules_url}/none", "FAIL_CLOSED", environment),
        extension("open", f"{modules_url}/none", "FAIL_OPEN", environment),
    ]
    version, found = convert({"x.json": json.dumps(resources).encode()})
    return make_snapshot(version, found)


async def status(directory: Path, name: str) -> int:
    """Return what a client gets from a listener."""
    connector = aiohttp.UnixConnector(str(directory / name))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get("http://any/") as response,
    ):
        return response.status


@contextlib.asynccontextmanager
async def envoy_with_modules(directory: Path, kind: Kind) -> AsyncIterator[RunningEnvoy]:
    """Run Envoy behind the relay, with modules in a registry and on a server."""
    registry = FakeRegistry(user=("user", "hidden"))
    registry.push_docker("v1", module())
    pages = Pages({"/a": web.Response(body=module())})
    (directory / "cache").mkdir()
    async with contextlib.AsyncExitStack() as stack:
        registry_port = await stack.enter_async_context(web_server(registry))
        port = await stack.enter_async_context(web_server(pages))
        wasm = await stack.enter_async_context(modules(directory / "cache"))
        resources = snapshot(directory, f"127.0.0.1:{registry_port}", f"http://127.0.0.1:{port}")
        _, plane = await stack.enter_async_context(serving_plane(resources))
        relay = await stack.enter_async_context(
            bench(directory, f"127.0.0.1:{plane}", convert={EXTENSION: wasm.convert})
        )
        envoy = await stack.enter_async_context(running_envoy(directory, kind, relay.path))
        await envoy.live()
        yield envoy


@pytest.mark.parametrize("kind", Kind)
async def test_envoy_runs_what_the_agent_has_fetched(kind: Kind, tmp_path: Path) -> None:
    async with envoy_with_modules(tmp_path, kind) as envoy:
        seen = {name: await status(tmp_path, name) for name in ("image", "file", "closed", "open")}
        dump = await envoy.admin("config_dump?resource=ecds_filters")

    assert seen == {"image": STATUS, "file": STATUS, "closed": 403, "open": 200}
    assert dump.count(f"{tmp_path}/cache/") == 2
    assert '"KEY": "kept"' in dump
    assert "ISTIO_META" not in dump
