"""The whole agent, without Envoy, between a control plane with extensions and a module's server."""

import hashlib
import os
import select
import signal
from pathlib import Path

import pytest
from aiohttp import web

from agent.http.client import fetch
from agent.xds.discovery import Kind, read_request
from tests.fakes.control_plane import SERVER_NAME, control_plane
from tests.fakes.wasm import MODULE, configurations, ecds, http_wasm, local_wasm, wasm
from tests.fakes.web import Hanging, Pages, web_server
from tests.process.test_xds_agent import AUTHORITY, running
from tests.waiting import until

pytestmark = pytest.mark.slow

SWITCH = "ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION"
CHECKSUM = hashlib.sha256(MODULE).hexdigest()


async def scraped(port: int) -> str:
    response = await fetch("GET", "127.0.0.1", port, "/stats/prometheus", timeout_seconds=10)
    return response.body.decode()


@pytest.mark.parametrize("kind", Kind)
async def test_modules_are_fetched_and_counted(kind: Kind, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    async with (
        web_server(Pages({"/a": web.Response(body=MODULE)})) as port,
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        running(tmp_path, plane, AGENT_WASM_DIRECTORY=str(cache)) as (pod, client),
    ):
        call = client.open(kind)
        stream = await plane.accept()
        empty = ecds(kind, {}, removed=("gone",))
        await stream.send(empty)
        assert await call.receive() == empty
        assert "istio_agent_wasm" not in await scraped(pod.port)

        sent = {"remote": wasm(f"http://127.0.0.1:{port}/a"), "local": local_wasm()}
        await stream.send(ecds(kind, sent, nonce="2"))
        found = configurations(kind, await call.receive())

        path = Path(http_wasm(found["remote"]).config.vm_config.code.local.filename)
        assert path.is_relative_to(cache)
        assert path.name == f"{CHECKSUM}.wasm"
        assert http_wasm(found["local"]) == local_wasm()
        metrics = await scraped(pod.port)
        assert "istio_agent_wasm_cache_entries 1\n" in metrics
        assert 'istio_agent_wasm_config_conversion_count{result="success"} 1\n' in metrics

        await stream.send(ecds(kind, {"none": type(wasm())()}, nonce="3"))
        refused = read_request(kind, await stream.receive() or b"")
        assert refused.nonce == "3"
        assert "'none': vm_config.code is neither remote nor local" in (refused.error or "")


async def test_without_conversion_envoy_gets_what_was_sent(tmp_path: Path) -> None:
    async with (
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        running(tmp_path, plane, **{SWITCH: "false"}) as (_, client),
    ):
        call = client.open(Kind.DELTA)
        stream = await plane.accept()
        raw = ecds(Kind.DELTA, {"remote": wasm(), "none": type(wasm())()})
        await stream.send(raw)

        assert await call.receive() == raw


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_an_agent_that_ends_leaves_no_process_that_fetches(
    number: signal.Signals, tmp_path: Path
) -> None:
    hanging = Hanging()
    async with (
        web_server(hanging) as port,
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        running(tmp_path, plane, AGENT_WASM_DIRECTORY=str(tmp_path)) as (pod, client),
    ):
        client.open(Kind.DELTA)
        stream = await plane.accept()
        await stream.send(ecds(Kind.DELTA, {"a": wasm(f"http://127.0.0.1:{port}/a")}))
        await hanging.asked.wait()
        assert pod.pid
        children = [os.pidfd_open(child) for child in children_of(pod.pid)]
        os.kill(pod.pid, number)

        assert children
        await until(lambda: len(select.select(children, [], [], 0)[0]) == len(children))
        for pidfd in children:
            os.close(pidfd)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
