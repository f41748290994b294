"""A real Envoy whose agent has refused extensions in its place. Section 2.8, deviation D-8."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from envoy.extensions.filters.http.wasm.v3.wasm_pb2 import Wasm

from agent.wasm.cache import Want
from agent.xds.discovery import Kind, Request, read_request, read_subscription, write_response
from agent.xds.local.convert import convert
from agent.xds.resources import CLUSTER, EXTENSION, LISTENER
from tests.envoy.test_wasm_envoy import HTTP_RBAC, HTTP_WASM, listener, status
from tests.envoy.xds_envoy import running_envoy
from tests.fakes.control_plane import Stream, control_plane
from tests.fakes.modules import modules
from tests.fakes.relay_bench import bench
from tests.fakes.wasm import MODULE, ecds
from tests.fakes.wasm_module import STATUS, module
from tests.fakes.web import Pages, web_server
from tests.waiting import until

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


class StrictPlane:
    """One stream of a control plane that drops what carries an old nonce, as istiod does."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._nonces: dict[str, str] = {}

    async def push(self, type_url: str, *resources: dict[str, Any]) -> str:
        """Send a set; return its nonce."""
        files = {"x.json": json.dumps(resources).encode()} if resources else {}
        version, found = convert(files)
        nonce = self._next_nonce(type_url)
        await self._stream.send(
            write_response(Kind.SOTW, type_url, version=version, nonce=nonce, resources=found)
        )
        return nonce

    async def begin(self, *listeners: dict[str, Any]) -> None:
        """Send what Envoy asks for at first: no cluster, and these listeners."""
        await self.asked(CLUSTER)
        await self.push(CLUSTER)
        await self.asked(LISTENER)
        await self.push(LISTENER, *listeners)

    async def push_broken_extension(self) -> str:
        nonce = self._next_nonce(EXTENSION)
        await self._stream.send(ecds(Kind.SOTW, {"a": Wasm()}, nonce=nonce))
        return nonce

    async def asked(self, type_url: str) -> tuple[Request, frozenset[str]]:
        """Return the next request of a type, and which resources it is for."""
        async with asyncio.timeout(20):
            while (raw := await self._stream.receive()) is not None:
                request = read_request(Kind.SOTW, raw)
                is_old = request.nonce and request.nonce != self._nonces.get(request.type_url)
                if request.type_url == type_url and not is_old:
                    return request, frozenset(read_subscription(Kind.SOTW, raw).names)
        raise AssertionError("the stream has ended")

    def _next_nonce(self, type_url: str) -> str:
        number = int(self._nonces.get(type_url, "0")) + 1
        self._nonces[type_url] = str(number)
        return str(number)


def extension(name: str) -> dict[str, Any]:
    """Return one that allows all."""
    return {"@type": EXTENSION, "name": name, "typed_config": {"@type": HTTP_RBAC}}


async def test_envoy_can_ask_for_more_after_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    async with (
        control_plane() as control,
        modules(tmp_path / "cache") as wasm,
        bench(tmp_path, control.address, convert={EXTENSION: wasm.convert}) as relay,
        running_envoy(tmp_path, Kind.SOTW, relay.path) as envoy,
    ):
        plane = StrictPlane(await control.accept())
        await plane.begin(listener(tmp_path, "a"))
        assert (await plane.asked(EXTENSION))[1] == {"a"}
        accepted = await plane.push(EXTENSION, extension("a"))
        assert (await plane.asked(EXTENSION))[0].nonce == accepted

        refused = await plane.push_broken_extension()
        assert "neither remote nor local" in str((await plane.asked(EXTENSION))[0].error)
        await plane.push(LISTENER, listener(tmp_path, "a"), listener(tmp_path, "b"))
        request, names = await plane.asked(EXTENSION)
        assert (request.nonce, names) == (refused, frozenset("ab"))
        latest = await plane.push(EXTENSION, extension("a"), extension("b"))
        assert (await plane.asked(EXTENSION))[0].nonce == latest

        async def both_are_there() -> bool:
            return set(await envoy.listeners()) == {"a", "b"}

        await envoy.until(both_are_there)
        assert [await status(tmp_path, name) for name in "ab"] == [200, 200]


def plugin(name: str, url: str) -> dict[str, Any]:
    """Return an extension that runs a module."""
    code = {"remote": {"http_uri": {"uri": url, "cluster": "_", "timeout": "10s"}}}
    vm = {"runtime": "envoy.wasm.runtime.v8", "code": code}
    config = {"name": name, "vm_config": vm, "failure_policy": "FAIL_CLOSED"}
    return {
        "@type": EXTENSION,
        "name": name,
        "typed_config": {"@type": HTTP_WASM, "config": config},
    }


async def test_a_module_that_envoy_refuses_leaves_the_one_before(tmp_path: Path) -> None:
    """Its file too, which Envoy reads again with each listener that has the extension."""
    pages = Pages({"/good": web.Response(body=module()), "/bad": web.Response(body=MODULE)})
    (tmp_path / "cache").mkdir()
    async with (
        web_server(pages) as port,
        control_plane() as control,
        modules(tmp_path / "cache", expiry_seconds=0.001, purge_seconds=0.001) as wasm,
        bench(tmp_path, control.address, convert={EXTENSION: wasm.convert}) as relay,
        running_envoy(tmp_path, Kind.SOTW, relay.path) as envoy,
    ):
        plane = StrictPlane(await control.accept())
        await plane.begin(listener(tmp_path, "a"))
        await plane.asked(EXTENSION)
        await plane.push(EXTENSION, plugin("a", f"http://127.0.0.1:{port}/good"))
        assert (await plane.asked(EXTENSION))[0].error is None
        await envoy.live()
        assert await status(tmp_path, "a") == STATUS

        await plane.push(EXTENSION, plugin("a", f"http://127.0.0.1:{port}/bad"))
        assert "Unable to create Wasm plugin" in str((await plane.asked(EXTENSION))[0].error)
        unused = await wasm.path(Want("x", f"http://127.0.0.1:{port}/bad?x"))
        await until(lambda: not unused.exists())

        assert await status(tmp_path, "a") == STATUS
        kept = [path.read_bytes() for path in (tmp_path / "cache").glob("*/*.wasm")]
        assert sorted(kept) == sorted([module(), MODULE])
