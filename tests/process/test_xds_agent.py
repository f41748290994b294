"""The whole agent, without Envoy: what it asks for itself, and what its commands say of it."""

import asyncio
import json
import os
import random
import re
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
import yaml

from agent.protobuf.wire import message
from agent.xds.discovery import Kind, read_request, write_request
from agent.xds.resources import CLUSTER, LISTENER, NAME_TABLE, PROXY_CONFIG
from tests.fakes.ads_client import AdsClient, ads_client
from tests.fakes.control_plane import SERVER_NAME, Authority, ControlPlane, control_plane
from tests.fakes.relay_bench import response
from tests.waiting import listens, until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
AUTHORITY: Final = Authority()


def free_port() -> int:
    """Return a port that is still free in a moment: the kernel hands out higher ones."""
    while True:
        port = random.randrange(20_000, 30_000)  # noqa: S311 - nothing secret
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Pod:
    """An agent and what its containers would be started with."""

    def __init__(self, directory: Path, plane: ControlPlane, more: Mapping[str, str]) -> None:
        self.port = free_port()
        self.flag = f"--debug-port={self.port}"
        self.pid: int | None = None  #: of the agent
        self._directory = directory
        for name, content in (
            ("etc/istio/pod/annotations", f'status.sidecar.istio.io/port="{self.port}"\n'.encode()),
            ("var/run/secrets/tokens/istio-token", b"token"),
            ("var/run/secrets/istio/root-cert.pem", AUTHORITY.root),
        ):
            path = directory / name
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        self._environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "POD_NAME": "web",
            "POD_NAMESPACE": "shop",
            "INSTANCE_IP": "127.0.0.1",
            "CLOUD_PLATFORM": "none",
            "DISABLE_ENVOY": "true",
            "ISTIOD_SAN": SERVER_NAME,
            "PROXY_CONFIG": json.dumps({"discoveryAddress": plane.address}),
            **more,
        }

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        with (self._directory / f"{words[0]}.log").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "agent", *words),
                cwd=self._directory,
                env=self._environ,
                stdout=asyncio.subprocess.PIPE if words[0] != "proxy" else log,
                stderr=log,
            )

    async def run(self, *words: str) -> str:
        """Return what a command prints."""
        process = await self.start(*words)
        output, _ = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
        return output.decode()


@asynccontextmanager
async def running(
    directory: Path, plane: ControlPlane, **more: str
) -> AsyncIterator[tuple[Pod, AdsClient]]:
    """Run the agent; yield the pod and a client of its socket."""
    pod = Pod(directory, plane, more)
    process = await pod.start("proxy", "router", "--domain=shop.svc.cluster.local")
    pod.pid = process.pid
    path = directory / "etc/istio/proxy/XDS"
    try:
        await until(lambda: listens(path) or process.returncode is not None)
        assert process.returncode is None, (directory / "proxy.log").read_text()
        async with ads_client(str(path)) as client:
            yield pod, client
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, []),
        ({"ISTIO_META_ENABLE_DNS_SERVER": "true"}, [NAME_TABLE]),
        ({"PROXY_CONFIG_XDS_AGENT": "true"}, [PROXY_CONFIG]),
        (
            {"PROXY_CONFIG_XDS_AGENT": "true", "ISTIO_META_ENABLE_DNS_SERVER": "true"},
            [NAME_TABLE, PROXY_CONFIG],
        ),
    ],
)
async def test_the_agent_subscribes_to_what_it_uses(
    more: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    """T-X12: after the first request for listeners, once per stream."""
    address = {"DNS_PROXY_ADDR": f"127.0.0.1:{free_port()}"}
    async with (
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        running(tmp_path, plane, **more, **address) as (_, client),
    ):
        for kind in Kind:
            call = client.open(kind)
            stream = await plane.accept()
            for type_url in (CLUSTER, LISTENER, LISTENER, CLUSTER):
                await call.send(write_request(kind, type_url))
            raws = [await stream.receive() for _ in range(4 + len(expected))]
            asked = [read_request(kind, raw or b"").type_url for raw in raws]
            await call.half_close()
            await call.status()

            assert asked == [CLUSTER, LISTENER, *expected, LISTENER, CLUSTER]


def anonymous_megabytes(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Anonymous:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found
    return int(found[1]) / 1000


async def test_no_large_push_stays_in_memory_whomever_it_is_for(tmp_path: Path) -> None:
    address = {"DNS_PROXY_ADDR": f"127.0.0.1:{free_port()}"}
    more = {"PROXY_CONFIG_XDS_AGENT": "true", "ISTIO_META_ENABLE_DNS_SERVER": "true", **address}
    nobodys = "type.googleapis.com/istio.security.Authorization"
    # Many small ones: a large one is given back to the system by itself.
    bodies = [message((1, f"{number}"), (2, b"x" * 1000)) for number in range(15_000)]
    async with (
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        running(tmp_path, plane, **more) as (pod, client),
    ):
        assert pod.pid
        call = client.open(Kind.DELTA)
        stream = await plane.accept()
        await call.send(write_request(Kind.DELTA, CLUSTER))
        await stream.send(response(Kind.DELTA, CLUSTER))
        await call.receive()
        before = anonymous_megabytes(pod.pid)
        for number, type_url in enumerate((CLUSTER, PROXY_CONFIG, NAME_TABLE, nobodys), 1):
            await stream.send(response(Kind.DELTA, type_url, *bodies))
            if type_url == CLUSTER:
                await call.receive()
            counted = f"istio_agent_xds_proxy_responses {number + 1}\n"
            while counted not in await pod.run("request", "GET", "stats/prometheus", pod.flag):
                pass

        await until(lambda: anonymous_megabytes(pod.pid or 0) < before + 8)


async def test_the_commands_tell_of_the_running_agent(tmp_path: Path) -> None:
    node = message((1, "router~127.0.0.1~web.shop~shop.svc.cluster.local"))
    async with (
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        running(tmp_path, plane) as (pod, client),
    ):
        call = client.open(Kind.DELTA)
        stream = await plane.accept()
        await call.send(write_request(Kind.DELTA, CLUSTER) + message((1, node)))
        await stream.receive()
        watching = await pod.start("xds", "watch", pod.flag, "-o", "json")
        assert watching.stdout
        begin = json.loads(await watching.stdout.readline())
        await stream.send(response(Kind.DELTA, CLUSTER, message((1, "one"))))
        await call.receive()
        refusal = write_request(Kind.DELTA, CLUSTER, nonce="n", error="bad port")
        await call.send(refusal)
        assert await stream.receive() == refusal
        told = json.loads(await watching.stdout.readline())
        status = await pod.run("xds", "status", pod.flag)

        async def answer() -> None:
            own = await plane.accept()
            await own.receive()
            assert own.metadata["authorization"] == "Bearer token"
            await own.send(response(own.kind, CLUSTER, message((1, "one"))))

        found, _ = await asyncio.gather(pod.run("xds", "get", "cds", pod.flag), answer())
        metrics = await pod.run("request", "GET", "stats/prometheus", pod.flag)
        watching.terminate()
        await watching.wait()

    assert begin["types"]["cds"]["state"] == "NOT SENT"
    assert (told["result"], told["error"]) == ("NACK", "bad port")
    assert "cds   STALE     1  " in status
    assert "refused 1: bad port" in status
    assert yaml.safe_load(found) == {"@type": CLUSTER, "name": "one"}
    assert 'istio_agent_pilot_total_xds_rejects{type="cds"} 1\n' in metrics
