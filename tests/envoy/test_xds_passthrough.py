"""AGENT_LOCAL_XDS=builtin with a real Envoy, captured traffic and a real application."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agent.xds.discovery import Kind
from agent.xds.run import serving
from agent.xds.settings import CredentialSettings, UpstreamSettings, XdsSettings
from tests.envoy.xds_envoy import RunningEnvoy, running_envoy
from tests.fakes import applications
from tests.netns.namespaces import Namespace, namespace

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

#: Of the pod, and of somebody else whom it talks to, by family.
POD = {4: "10.9.0.1", 6: "fd00::1"}
OTHER = {4: "10.9.0.2", 6: "fd00::2"}
TALK = r"""
import re, socket, sys

def complete(data):
    head, end, body = data.partition(b"\r\n\r\n")
    if not data.startswith(b"HTTP/"):
        return data.endswith(b"\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    return end and len(body) >= int(length[1])

connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
connection.sendall(sys.argv[3].encode())
received = b""
try:
    while not complete(received):
        data = connection.recv(65536)
        received += data or b"<closed>\n"
except ConnectionResetError:
    received += b"<closed>\n"
print(received.decode(), end="")
"""
CALL = """
import grpc, sys
with grpc.insecure_channel(sys.argv[1]) as channel:
    reply, call = channel.unary_unary("/test/Echo").with_call(b"hello", timeout=10)
    print(reply.decode(), dict(call.trailing_metadata())["seen"])
"""


@pytest.fixture(scope="module")
def captured() -> Iterator[Namespace]:
    """A namespace whose traffic is captured, with applications that listen in it."""
    addresses = [f"{each[4]}/32" for each in (POD, OTHER)]
    addresses += [f"{each[6]}/128" for each in (POD, OTHER)]
    with namespace(*addresses, "::6/128") as inside:
        for family, tables, source in ((4, "iptables", "127.0.0.6"), (6, "ip6tables", "::6")):
            for rule in (
                f"-s {source} -j RETURN",
                "-m owner --uid-owner 1337 -j RETURN",
                f"-p tcp -d {POD[family]} -j REDIRECT --to-ports 15006",
                f"-p tcp -d {OTHER[family]} -j REDIRECT --to-ports 15001",
            ):
                inside.run(tables, "-t", "nat", "-A", "OUTPUT", *rule.split())
        command = ["nsenter", f"--net={inside.path}", sys.executable, applications.__file__]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "listening\n"
            yield inside
            process.kill()


@contextlib.asynccontextmanager
async def envoy_in(
    inside: Namespace, kind: Kind = Kind.DELTA, *, tproxy: bool = False
) -> AsyncIterator[RunningEnvoy]:
    """Run Envoy as user 1337, or root for TPROXY, with the built-in configuration."""
    upstream = UpstreamSettings(
        address="", tls=False, server_name="", credentials=CredentialSettings(), metadata=()
    )
    wrapper = ("nsenter", f"--net={inside.path}")
    uid = "0" if tproxy else "1337"
    as_envoy = ("setpriv", f"--reuid={uid}", "--regid=1337", "--clear-groups")
    with TemporaryDirectory() as name:
        directory = Path(name)
        os.chown(directory, 1337, 1337)
        settings = XdsSettings(
            str(directory / "XDS"), upstream, local="builtin", ipv6=True, tproxy=tproxy
        )
        async with (
            serving(settings, count=lambda *_args, **_labels: None) as relay,
            running_envoy(
                directory, kind, settings.socket_path, wrapper=(*wrapper, *as_envoy)
            ) as running,
        ):
            await running.live()
            yield running
            assert relay.problem() is None


async def talk(inside: Namespace, address: str, port: int, text: str) -> str:
    """Return what the other side says to a text."""
    done = await asyncio.to_thread(inside.run, sys.executable, "-c", TALK, address, str(port), text)
    return done.stdout


def request(path: str = "/", version: str = "1.1") -> str:
    return f"GET {path} HTTP/{version}\r\nHost: Example\r\nX-MixedCase: 1\r\n\r\n"


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(("family", "source"), [(4, "127.0.0.6"), (6, "::6")])
async def test_inbound_http_passes_nearly_untouched_and_is_counted(
    captured: Namespace, kind: Kind, family: int, source: str
) -> None:
    path = "/a//b/%2f/../c?d=%20"
    async with envoy_in(captured, kind) as envoy:
        answer = await talk(captured, POD[family], applications.HTTP_PORT, request(path))
        stats = await envoy.admin("stats?filter=vhost")
        clusters = await envoy.admin("clusters")

    assert answer.startswith("HTTP/1.1 200 Fine Indeed\nX-MixedCase: Yes\n")
    seen = answer.partition("peer=")[2].split()
    assert (
        seen
        == (
            f"{source} GET {path} HTTP/1.1 Host: Example X-MixedCase: 1 x-forwarded-proto: http"
        ).split()
    )
    assert "vhost.inbound|http|0.route.passthrough.upstream_rq_total: 1" in stats
    host = f"[{POD[6]}]" if family == 6 else POD[4]
    name = "InboundPassthroughClusterIpv6" if family == 6 else "InboundPassthroughCluster"
    assert f"{name}::{host}:{applications.HTTP_PORT}::rq_total::1" in clusters


async def test_inbound_grpc_keeps_its_trailers(captured: Namespace) -> None:
    async with envoy_in(captured):
        target = f"{POD[4]}:{applications.GRPC_PORT}"
        done = await asyncio.to_thread(captured.run, sys.executable, "-c", CALL, target)

    assert done.stdout.startswith("hello ipv4:127.0.0.6")


async def test_inbound_traffic_that_is_no_http_passes_as_it_is(captured: Namespace) -> None:
    """A server that speaks first, and HTTP/1.0, which Envoy would answer itself."""
    async with envoy_in(captured) as envoy:
        first = await talk(captured, POD[4], applications.SERVER_FIRST_PORT, "")
        old = await talk(captured, POD[4], applications.HTTP_PORT, request(version="1.0"))
        stats = await envoy.admin("stats?filter=vhost.*rq_total")

    assert first == "hello 127.0.0.6\n"
    assert old.endswith("GET / HTTP/1.0\nHost: Example\nX-MixedCase: 1\n\n")
    assert "upstream_rq_total: 0" in stats


@pytest.mark.parametrize("family", [4, 6])
async def test_outbound_traffic_passes_as_it_is(captured: Namespace, family: int) -> None:
    async with envoy_in(captured) as envoy:
        answer = await talk(captured, OTHER[family], applications.HTTP_PORT, request())
        clusters = await envoy.admin("clusters")

    assert f"peer={OTHER[family]}" in answer
    assert "x-forwarded-proto" not in answer
    host = f"[{OTHER[6]}]" if family == 6 else OTHER[4]
    assert f"PassthroughCluster::{host}:{applications.HTTP_PORT}::cx_total::1" in clusters


@pytest.mark.parametrize(
    ("address", "port"),
    [(POD[4], 15006), (POD[6], 15006), (OTHER[4], 15001), ("127.0.0.1", 15001)],
)
async def test_the_ports_of_capture_themselves_lead_nowhere(
    captured: Namespace, address: str, port: int
) -> None:
    async with envoy_in(captured) as envoy:
        answer = await talk(captured, address, port, request())
        clusters = await envoy.admin("clusters")

    used = [line for line in clusters.splitlines() if "::cx_total::" in line]
    assert answer == "<closed>\n"
    assert [line.partition("::")[0] for line in used] == ["xds-grpc"]


async def test_a_drain_says_goodbye_on_inbound_http(captured: Namespace) -> None:
    async with envoy_in(captured) as envoy:
        before = await talk(captured, POD[4], applications.HTTP_PORT, request())
        await envoy.admin("drain_listeners?inboundonly&graceful&skip_exit", method="POST")
        after = await talk(captured, POD[4], applications.HTTP_PORT, request())
        outbound = await talk(captured, OTHER[4], applications.HTTP_PORT, request())

    assert "connection: close" not in before
    assert "connection: close" in after
    assert "connection: close" not in outbound


async def test_envoy_takes_the_configuration_for_tproxy(captured: Namespace) -> None:
    async with envoy_in(captured, tproxy=True) as envoy:
        listeners = await envoy.listeners()

    assert listeners["virtualInbound"]["transparent"] is True
    assert set(listeners) == {"virtualInbound", "virtualOutbound"}
