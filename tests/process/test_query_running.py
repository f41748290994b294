"""`agent xds status` and `agent xds watch`, against a relay's status port and against others."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from envoy.service.discovery.v3 import discovery_pb2

from agent.protobuf.wire import message
from agent.xds.discovery import Kind, write_request
from agent.xds.resources import CLUSTER
from tests.fakes.control_plane import SERVER_NAME, control_plane
from tests.fakes.relay_bench import bench, response
from tests.fakes.status import Agent, status_server
from tests.fakes.web import Pages, web_server
from tests.process.test_query_command import clusters, make_pod, run, serving, started

NODE = message((1, "router~10.0.0.1~web.shop~shop.svc.cluster.local"))


@contextlib.asynccontextmanager
async def agent(directory: Path) -> AsyncIterator[tuple[int, Callable[..., Any]]]:
    """Run a relay and its status port, with a stream on it; yield the port and what pushes."""
    hooks = Agent()
    async with (
        status_server(agent=hooks) as status,  # as in the agent, it closes last
        control_plane() as plane,
        bench(directory, plane.address) as b,
    ):
        hooks.documents |= {"syncz": b.relay.document, "syncz/watch": b.relay.watch}
        call = b.client.open(Kind.DELTA)
        stream = await plane.accept()
        first = write_request(Kind.DELTA, CLUSTER) + message((1, NODE))
        await call.send(first)
        await stream.receive()

        async def push(nonce: str, error: str | None) -> None:
            await stream.send(response(Kind.DELTA, CLUSTER, b"x", nonce=nonce))
            await call.receive()
            await call.send(write_request(Kind.DELTA, CLUSTER, nonce=nonce, error=error))
            await stream.receive()

        yield status.port, push


async def test_the_state_of_the_running_envoy_is_printed(tmp_path: Path) -> None:
    async with agent(tmp_path) as (port, push):
        await push("1", "bad port")
        text = await run(tmp_path, "status", f"--debug-port={port}")
        as_json = await run(tmp_path, "status", f"--debug-port={port}", "-o", "json")

    assert (text.code, text.errors) == (0, "")
    assert "cds   STALE     1  " in text.output
    assert "      refused 1: bad port\n" in text.output
    assert json.loads(as_json.output)["types"]["cds"]["state"] == "STALE"


@pytest.mark.parametrize("output", ["", "json"])
async def test_pushes_are_printed_as_they_come(output: str, tmp_path: Path) -> None:
    async with agent(tmp_path) as (port, push):
        process = await started(tmp_path, "watch", f"--debug-port={port}", f"--output={output}")
        assert process.stdout
        first = await process.stdout.readline()
        await push("1", None)
        accepted = await process.stdout.readline()
        await push("2", "bad port")
        refused = await process.stdout.readline()
        process.send_signal(2)
        _, errors = await process.communicate()

    assert (process.returncode, errors) == (0, b"")
    if output:
        assert json.loads(first)["connection"]["stream"]["node"].startswith("router~")
        assert json.loads(accepted)["result"] == "ACK"
        assert json.loads(refused)["error"] == "bad port"
    else:
        assert first.split()[:3] == [b"pushed", b"type", b"version"]
        assert accepted.endswith(b"ACK ?r0\n")
        assert refused.endswith(b"NACK: bad port\n")


async def test_watching_ends_with_who_reads_though_nothing_is_pushed(tmp_path: Path) -> None:
    """As in `agent xds watch | head -1`."""
    reading, writing = os.pipe()
    async with agent(tmp_path) as (port, _):
        process = await started(tmp_path, "watch", f"--debug-port={port}", stdout=writing)
        os.close(writing)
        await asyncio.to_thread(os.read, reading, 100)
        os.close(reading)

        _, errors = await asyncio.wait_for(process.communicate(), 10)

    assert (process.returncode, errors) == (0, b"")


async def test_whoever_watches_is_told_that_the_agent_ends(tmp_path: Path) -> None:
    async with agent(tmp_path) as (port, _):
        process = await started(tmp_path, "watch", f"--debug-port={port}")
        assert process.stdout
        await process.stdout.readline()
    _, errors = await process.communicate()

    assert process.returncode == 255
    assert errors == b"Error: nothing more will come: the agent ends\n"


async def test_the_type_of_proxy_is_that_of_the_running_agent(tmp_path: Path) -> None:
    make_pod(tmp_path)
    async with agent(tmp_path) as (port, _), serving(clusters) as (plane, asked):
        config = json.dumps({"discoveryAddress": plane.address})
        words = ("get", "cds", f"--debug-port={port}")
        done = await run(tmp_path, *words, PROXY_CONFIG=config, ISTIOD_SAN=SERVER_NAME)

    assert done.code == 0
    request = discovery_pb2.DeltaDiscoveryRequest.FromString(asked[0][2])
    assert request.node.id.startswith("router~")


async def test_a_status_port_of_something_else_is_not_an_agent(tmp_path: Path) -> None:
    async with status_server() as status:
        shown = await run(tmp_path, "status", f"--debug-port={status.port}")
        watched = await run(tmp_path, "watch", f"--debug-port={status.port}")

    where = f"Error: localhost:{status.port}/debug/syncz"
    assert shown.errors == f"{where} answers 404, expected 200\n"
    assert watched.errors == f"{where}/watch answers 404, expected 200\n"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"garbage", "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"[]", "is not what an agent says; expected connection"),
        (b"{}", "is not what an agent says; expected connection"),
    ],
)
async def test_what_no_agent_says_is_one_line(said: bytes, reason: str, tmp_path: Path) -> None:
    """As where istiod, or an older agent, has the port."""
    pages = Pages(
        {f"/debug/syncz{path}": web.Response(body=said + b"\n") for path in ("", "/watch")}
    )
    async with web_server(pages) as port:
        shown, watched = [
            await run(tmp_path, word, f"--debug-port={port}") for word in ("status", "watch")
        ]

    assert shown.errors.startswith(f"Error: localhost:{port}/debug/syncz: {reason}")
    assert watched.errors.startswith(f"Error: localhost:{port}/debug/syncz/watch: {reason}")
    assert shown.errors.count("\n") == watched.errors.count("\n") == 1
