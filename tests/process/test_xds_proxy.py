"""A control plane behind an HTTP proxy. Section 2.3."""

import base64
from pathlib import Path

import grpc
import pytest

from agent.xds.discovery import Kind
from tests.fakes.control_plane import control_plane
from tests.fakes.relay_bench import ERROR, bench
from tests.fakes.tunnels import tunnels

#: A name that only the proxy knows.
ADDRESS = "istiod.example:15012"
CREDENTIALS = base64.b64encode(b"us@er:password").decode()


async def test_a_proxy_is_asked_with_its_password(tmp_path: Path) -> None:
    async with control_plane() as plane, tunnels(plane.address) as (port, heads):
        proxy = f"http://us%40er:password@127.0.0.1:{port}"
        async with bench(tmp_path, ADDRESS, proxy=proxy) as b:
            call = b.client.open(Kind.DELTA)
            stream = await plane.accept()
            stream.end()
            await call.status()

    assert heads[0].startswith(f"CONNECT {ADDRESS} HTTP/1.1\r\n")
    assert f"Proxy-Authorization: Basic {CREDENTIALS}" in heads[0]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "response code 403"),
        (b"", "Socket closed"),
    ],
)
async def test_a_proxy_that_refuses_is_an_error_that_says_so(
    answer: bytes, reason: str, tmp_path: Path
) -> None:
    async with (
        tunnels(ADDRESS, answer) as (port, _),
        bench(tmp_path, ADDRESS, proxy=f"http://127.0.0.1:{port}") as b,
    ):
        code, details = await b.client.open(Kind.DELTA).status()
        await b.counts.reach(ERROR)
        problem = b.relay.problem()

    assert code is grpc.StatusCode.UNAVAILABLE
    assert reason in details
    assert reason in str(problem)


@pytest.mark.parametrize("name", ["http_proxy", "https_proxy", "grpc_proxy"])
async def test_nothing_but_the_settings_names_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC by itself would have a pod's http_proxy, which is for web pages, lead to istiod."""
    async with control_plane() as plane, tunnels(plane.address) as (port, heads):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        async with bench(tmp_path, ADDRESS) as b:
            code, _ = await b.client.open(Kind.DELTA).status()

    assert code is grpc.StatusCode.UNAVAILABLE
    assert heads == []
