"""Health as the control plane sees it. Source: xds-identity-dns.md sections 2.8, 9.4; R-9."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.xds.discovery import Kind, Request, read_request, write_request
from agent.xds.resources import CLUSTER, HEALTH, LISTENER
from tests.fakes.ads_client import AdsCall, AdsClient, ads_client
from tests.fakes.control_plane import (
    SERVER_NAME,
    Authority,
    ControlPlane,
    Stream,
    control_plane,
)
from tests.fakes.health import NOT_SERVING, Health, health_server
from tests.fakes.relay_bench import bench
from tests.fakes.web import Pages, server_context, web_server
from tests.waiting import listens, until

ROOT = Path(__file__).parents[2]


async def next_request(stream: Stream) -> Request:
    async with asyncio.timeout(10):
        raw = await stream.receive()
    assert raw is not None
    return read_request(stream.kind, raw)


async def begin(client: AdsClient, plane: ControlPlane, kind: Kind) -> tuple[AdsCall, Stream]:
    """Open a stream as Envoy does, clusters first."""
    call = client.open(kind)
    await call.send(write_request(kind, CLUSTER))
    stream = await plane.accept()
    assert (await next_request(stream)).type_url == CLUSTER
    return call, stream


def health(problem: str | None) -> Request:
    return Request(HEALTH, "", "", problem)


@pytest.mark.parametrize("kind", Kind)
async def test_nothing_is_said_before_listeners_and_all_after(kind: Kind, tmp_path: Path) -> None:
    """T-X3, T-X4, R-9."""
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        b.relay.report_health("reported while nobody is connected")
        call, stream = await begin(b.client, plane, kind)
        b.relay.report_health("reported before listeners")
        await call.send(write_request(kind, LISTENER))
        assert [await next_request(stream) for _ in range(2)] == [
            Request(LISTENER, "", "", None),
            health("reported before listeners"),
        ]

        b.relay.report_health(None)
        assert await next_request(stream) == health(None)

        await call.send(write_request(kind, LISTENER, version="1", nonce="n"))
        await call.send(write_request(kind, CLUSTER, version="1", nonce="n"))
        acks = [(await next_request(stream)).type_url for _ in range(2)]
        assert acks == [LISTENER, CLUSTER]


async def test_each_stream_is_told_in_its_own_kind(tmp_path: Path) -> None:
    """T-X5: also of what was reported while there was none; only the latest counts."""
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        b.relay.report_health("status 500")
        for kind, problem in ((Kind.DELTA, "status 500"), (Kind.SOTW, "status 503")):
            call, stream = await begin(b.client, plane, kind)
            await call.send(write_request(kind, LISTENER))
            assert (await next_request(stream)).type_url == LISTENER
            assert await next_request(stream) == health(problem)

            stream.end()
            await call.status()
            await stream.closed.wait()
            b.relay.report_health(None)
            b.relay.report_health("status 503")


@asynccontextmanager
async def running_agent(
    directory: Path, plane: ControlPlane, authority: Authority, probe: dict[str, object]
) -> AsyncIterator[AdsClient]:
    """Run the agent of a virtual machine, without Envoy and ports; yield its socket's client."""
    (directory / "root.pem").write_bytes(authority.root)
    for name, text in (
        ("etc/istio/pod/annotations", 'status.sidecar.istio.io/port="0"\n'),
        ("var/run/secrets/tokens/istio-token", "token"),
    ):
        path = directory / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "POD_NAME": "vm-1",
        "POD_NAMESPACE": "shop",
        "INSTANCE_IP": "127.0.0.1",
        "CLOUD_PLATFORM": "none",
        "DISABLE_ENVOY": "true",
        "XDS_ROOT_CA": str(directory / "root.pem"),
        "ISTIOD_SAN": SERVER_NAME,
        "PROXY_CONFIG": json.dumps({"discoveryAddress": plane.address, "readinessProbe": probe}),
    }
    with (directory / "agent.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "agent", "proxy", "sidecar"),
            cwd=directory,
            env=environ,
            stdout=log,
            stderr=log,
        )
    path = directory / "etc/istio/proxy/XDS"
    try:
        await until(lambda: listens(path))
        async with ads_client(str(path)) as client:
            yield client
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.slow
async def test_an_agent_reports_what_comes_and_goes_and_again_on_reconnect(tmp_path: Path) -> None:
    """T-H5, over TLS, by both kinds: unhealthy, healthy; again on another stream; unhealthy."""
    authority = Authority()
    application = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = application.getsockname()[1]
    application.close()
    probe: dict[str, object] = {"tcpSocket": {"port": port}, "periodSeconds": 1}
    refused = health(f"127.0.0.1:{port}: connection refused")
    async with (
        control_plane(pair=authority.issue(SERVER_NAME)) as plane,
        running_agent(tmp_path, plane, authority, probe) as client,
    ):
        call, stream = await begin(client, plane, Kind.DELTA)
        await call.send(write_request(Kind.DELTA, LISTENER))
        assert (await next_request(stream)).type_url == LISTENER
        assert await next_request(stream) == refused
        with socket.create_server(("127.0.0.1", port), backlog=64):
            assert await next_request(stream) == health(None)

            stream.end()
            await call.status()
            call, stream = await begin(client, plane, Kind.SOTW)
            await call.send(write_request(Kind.SOTW, LISTENER))
            assert (await next_request(stream)).type_url == LISTENER
            assert await next_request(stream) == health(None)

        assert await next_request(stream) == refused

    assert stream.metadata["authorization"] == "Bearer token"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["HTTP", "HTTPS", "grpc", "exec"])
async def test_an_agent_checks_in_each_way(way: str, tmp_path: Path) -> None:
    """From PROXY_CONFIG to what the control plane hears."""
    authority = Authority()
    async with contextlib.AsyncExitStack() as stack:
        if way == "grpc":
            port = await stack.enter_async_context(health_server(Health({"shop": NOT_SERVING})))
            probe: dict[str, object] = {"grpc": {"port": port, "service": "shop"}}
            problem = "service 'shop' has status NOT_SERVING"
        elif way == "exec":
            probe, problem = {"exec": {"command": ["sh", "-c", "exit 7"]}}, "exit status 7"
        else:
            tls = server_context(tmp_path, "http/1.1") if way == "HTTPS" else None
            port = await stack.enter_async_context(web_server(Pages(), tls=tls))
            probe = {"httpGet": {"port": port, "scheme": way, "path": "none"}}
            target = f"{way.lower()}://127.0.0.1:{port}/none"
            problem = f"GET {target}: status 404, expected 200 to 399"
        plane = await stack.enter_async_context(control_plane(pair=authority.issue(SERVER_NAME)))
        client = await stack.enter_async_context(running_agent(tmp_path, plane, authority, probe))
        call, stream = await begin(client, plane, Kind.DELTA)
        await call.send(write_request(Kind.DELTA, LISTENER))
        assert (await next_request(stream)).type_url == LISTENER

        assert await next_request(stream) == health(problem)
