"""A whole pod whose DNS is captured: agent, Envoy, and a control plane with a name table."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agent.demo import files, manifest
from agent.demo.addresses import CABLE, url
from agent.demo.commands import APPLICATION, ISTIO_INIT
from agent.demo.process import Namespace, Output
from agent.demo.run import RunningPod, pod
from tests.fakes.dns_table import NAMESPACE, TABLE
from tests.netns.dns_pods import RESOLVER, SEARCH
from tests.netns.namespaces import ROOT

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

#: Sends a name table, and of all else that nothing exists; the table only when told to.
CONTROL_PLANE = """
import asyncio, sys
from agent.xds.discovery import Resource, read_request, write_response
from agent.xds.resources import NAME_TABLE
from tests.fakes.control_plane import control_plane
from tests.fakes.dns_table import TABLE, serialised

async def serve(stream, told):
    seen = set()
    while raw := await stream.receive():
        request = read_request(stream.kind, raw)
        if request.type_url in seen:
            continue
        seen.add(request.type_url)
        resources = []
        if request.type_url == NAME_TABLE:
            print("asked for names", flush=True)
            await told.wait()
            resources = [Resource(NAME_TABLE, "names", "1", serialised(TABLE))]
        answer = write_response(
            stream.kind, request.type_url, version="1", nonce="1", resources=resources
        )
        await stream.send(answer)

async def main():
    told = asyncio.Event()
    async with control_plane(port=15010) as plane, asyncio.TaskGroup() as tasks:
        print("listening", flush=True)
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin, lambda: (sys.stdin.readline(), told.set()))
        while True:
            tasks.create_task(serve(await plane.accept(), told))

asyncio.run(main())
"""
READY = url("127.0.0.1", 15020, "/healthz/ready")
NAMES = url("127.0.0.1", 15020, "/debug/ndsz")
METRICS = url("127.0.0.1", 15020, "/stats/prometheus")
NOT_READY = "istio DNS capture is turned ON and DNS lookup table is not ready yet"
BING = "204.79.197.200"
PROXY_CONFIG = {"discoveryAddress": "127.0.0.1:15010", "controlPlaneAuthPolicy": "NONE"}


def python(where: Namespace, code: str, *argv: str) -> subprocess.Popen[bytes]:
    return where.spawn(
        [sys.executable, "-c", code, *argv],
        environ={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


@pytest.fixture
def made() -> Iterator[RunningPod]:
    """A pod whose DNS is captured, and a resolver on its node; the agent is not started yet."""
    with pod() as made:
        resolv_conf = made.root / "resolv.conf"
        resolv_conf.write_text(f"search {SEARCH}\nnameserver {CABLE.node_ipv4}\noptions ndots:5\n")
        resolv_conf.chmod(0o644)
        made.inside.run(["mount", "--bind", str(resolv_conf), "/etc/resolv.conf"])
        done = made.inside.run(
            [*files.program(), *manifest.INIT_ARGS, "--redirect-dns"],
            credentials=ISTIO_INIT,
            environ=manifest.INIT_ENVIRONMENT,
        )
        assert done.returncode == 0, done.stderr
        upstream = python(made.node, RESOLVER, str(made.root / "asked"), CABLE.node_ipv4)
        assert Output(upstream).wait_for("ready", 10)
        del made.environ["AGENT_LOCAL_XDS"]
        made.environ["ISTIO_META_DNS_CAPTURE"] = "true"
        made.environ["POD_NAMESPACE"] = NAMESPACE
        made.environ["PROXY_CONFIG"] = json.dumps(PROXY_CONFIG)
        yield made


def resolved(made: RunningPod, name: str) -> set[str]:
    done = made.inside.run(["getent", "ahostsv4", name], credentials=APPLICATION)
    return set(re.findall(r"^\S+", done.stdout, re.MULTILINE))


def test_a_captured_pod_resolves_by_the_table_of_its_control_plane(made: RunningPod) -> None:
    """R-17 to R-22, N9d; status-lifecycle.md sections 3.8 and 6.6."""
    # The pod sees no tests where the clone lies below a closed directory.
    plane = python(made.inside._replace(mounts=False), CONTROL_PLANE)
    said = Output(plane)
    assert said.wait_for("listening", 10)
    made.start_agent()
    assert said.wait_for("asked for names", 20), made.log_text()

    waiting = made.get_until("application", READY, lambda reply: NOT_READY in reply.body)
    no_table = made.get("application", NAMES)
    before = resolved(made, "productpage")
    assert plane.stdin
    plane.stdin.write(b"send the table\n")
    ready = made.get_until("application", READY, lambda reply: reply.status == 200)

    assert (waiting.status, no_table.status, no_table.body.strip(), before) == (
        503,
        404,
        "{}",
        set(),
    )
    assert ready.status == 200, made.log_text()
    assert resolved(made, "productpage") == {"9.9.9.9"}
    assert resolved(made, "www.google.com") == {"1.1.1.1"}
    assert resolved(made, "www.bing.com") == {BING}
    table = json.loads(made.get("application", NAMES).body)["table"]
    assert {entry.host: tuple(table[entry.host]["ips"]) for entry in TABLE} == {
        entry.host: entry.ips for entry in TABLE
    }
    assert table["productpage."] == {"ips": ["9.9.9.9"], "registry": "Kubernetes"}
    assert "istio_agent_dns_upstream_requests_total" in made.get("application", METRICS).body


def test_a_pod_without_a_control_plane_asks_upstream(made: RunningPod) -> None:
    made.environ["AGENT_LOCAL_XDS"] = "builtin"
    assert made.start() == "exit 0", made.log_text()

    assert resolved(made, "www.bing.com") == {BING}
    assert resolved(made, "productpage") == set()
