"""A control plane behind an HTTP proxy. Section 2.3."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from agent.xds.discovery import Kind
from tests.fakes.control_plane import ControlPlane, control_plane
from tests.fakes.relay_bench import bench

#: A name that only the proxy knows.
ADDRESS = "istiod.example:15012"
CREDENTIALS = base64.b64encode(b"user:password").decode()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


@contextlib.asynccontextmanager
async def tunnels(plane: ControlPlane) -> AsyncIterator[tuple[int, list[str]]]:
    """Run a proxy that leads to a control plane; yield its port, and the heads that it was sent."""
    heads: list[str] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        there, back = await asyncio.open_connection(plane.host, plane.port)
        writers.extend((writer, back))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(copy(reader, back))
            group.create_task(copy(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heads
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


async def test_a_proxy_is_asked_with_its_password(tmp_path: Path) -> None:
    async with control_plane() as plane, tunnels(plane) as (port, heads):
        proxy = f"http://user:password@127.0.0.1:{port}"
        async with bench(tmp_path, ADDRESS, proxy=proxy) as b:
            call = b.client.open(Kind.DELTA)
            stream = await plane.accept()
            stream.end()
            await call.status()

    assert heads[0].startswith(f"CONNECT {ADDRESS} HTTP/1.1\r\n")
    assert f"Proxy-Authorization: Basic {CREDENTIALS}" in heads[0]


@pytest.mark.parametrize("name", ["http_proxy", "https_proxy", "grpc_proxy"])
async def test_nothing_but_the_settings_names_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC by itself would have a pod's http_proxy, which is for web pages, lead to istiod."""
    async with control_plane() as plane, tunnels(plane) as (port, heads):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        async with bench(tmp_path, ADDRESS) as b:
            code, _ = await b.client.open(Kind.DELTA).status()

    assert code is grpc.StatusCode.UNAVAILABLE
    assert heads == []
