"""A real Envoy that gets its configuration from a socket, with its admin interface on another."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import envoy

from agent.xds.discovery import Kind

BINARY = Path(envoy.__file__).parent / "_bin" / "envoy"
API_TYPES = {Kind.SOTW: "GRPC", Kind.DELTA: "DELTA_GRPC"}
H2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
#: What the agent's own bootstrap lets through, without what a user adds.
PREFIXES = (
    "reporter=",
    "cluster_manager",
    "listener_manager",
    "server",
    "cluster.xds-grpc",
    "wasm",
)


def bootstrap(kind: Kind, xds_socket: str, admin_socket: str) -> dict[str, Any]:
    source = {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
    options = {
        "@type": f"type.googleapis.com/{H2}",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    patterns = [{"prefix": prefix} for prefix in PREFIXES]
    patterns.append({"safe_regex": {"regex": r"vhost\..*\.route\..*"}})  # type: ignore[dict-item]  # JSON
    return {
        "node": {"id": "sidecar~10.0.0.1~pod.ns~ns.svc.cluster.local", "cluster": "pod.ns"},
        "admin": {"address": {"pipe": {"path": admin_socket}}},
        "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": patterns}}},
        "dynamic_resources": {
            "lds_config": source,
            "cds_config": source,
            "ads_config": {
                "api_type": API_TYPES[kind],
                "set_node_on_first_message_only": True,
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
            },
        },
        "static_resources": {
            "clusters": [
                {
                    "name": "xds-grpc",
                    "alt_stat_name": "xds-grpc;",
                    "connect_timeout": "1s",
                    "max_requests_per_connection": 1,
                    "typed_extension_protocol_options": {H2: options},
                    "load_assignment": {
                        "cluster_name": "xds-grpc",
                        "endpoints": [
                            {
                                "lb_endpoints": [
                                    {"endpoint": {"address": {"pipe": {"path": xds_socket}}}}
                                ]
                            }
                        ],
                    },
                }
            ]
        },
    }


class RunningEnvoy:
    """The process and its admin interface."""

    def __init__(self, session: aiohttp.ClientSession, process: asyncio.subprocess.Process) -> None:
        self._session = session
        self._process = process

    async def admin(self, target: str, *, method: str = "GET") -> str:
        async with self._session.request(method, f"http://admin/{target}") as response:
            return await response.text()

    async def config(self, section: str) -> list[dict[str, Any]]:
        """Return the resources of one section of the configuration dump."""
        text = await self.admin(f"config_dump?resource={section}")
        found: list[dict[str, Any]] = json.loads(text).get("configs", [])
        return found

    async def listeners(self) -> dict[str, dict[str, Any]]:
        """Return the active dynamic listeners by name."""
        found = await self.config("dynamic_listeners")
        return {
            each["name"]: each["active_state"]["listener"]
            for each in found
            if "active_state" in each
        }

    async def until(self, check: Callable[[], Any], *, seconds: float = 20) -> Any:  # noqa: ANN401 - whatever is checked
        """Return what an asynchronous check gives once it is true; the process must live on."""
        async with asyncio.timeout(seconds):
            while True:
                assert self._process.returncode is None, "Envoy has died"
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    if result := await check():
                        return result
                await asyncio.sleep(0.02)

    async def live(self) -> None:
        async def is_live() -> bool:
            return (await self.admin("ready")).strip() == "LIVE"

        await self.until(is_live)


AnyEnvoy = TypeVar("AnyEnvoy", bound=RunningEnvoy)


@contextlib.asynccontextmanager
async def envoy_of(
    kind: type[AnyEnvoy], directory: Path, config: Mapping[str, object], wrapper: Sequence[str] = ()
) -> AsyncIterator[AnyEnvoy]:
    """Run Envoy on a configuration that has its admin interface at `admin` in the directory.

    `wrapper` comes before its command.
    """
    file = directory / "bootstrap.json"
    file.write_text(json.dumps(config))
    with (directory / "envoy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *wrapper,
            *(BINARY, "-c", file, "--concurrency", "1", "--disable-hot-restart", "-l", "warning"),
            *("--drain-strategy", "immediate"),
            stdout=log,
            stderr=log,
        )
    try:
        connector = aiohttp.UnixConnector(str(directory / "admin"))
        async with aiohttp.ClientSession(connector=connector) as session:
            yield kind(session, process)
    finally:
        process.terminate()
        await process.wait()


def running_envoy(
    directory: Path, kind: Kind, xds_socket: str, *, wrapper: Sequence[str] = ()
) -> AbstractAsyncContextManager[RunningEnvoy]:
    """Return an Envoy to run against a control plane on a Unix socket; see `envoy_of`."""
    config = bootstrap(kind, xds_socket, str(directory / "admin"))
    return envoy_of(RunningEnvoy, directory, config, wrapper)
