"""The commands as lifecycle hooks call them: on the usual ports, `wait` without arguments."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.netns.namespaces import Namespace, namespace

pytestmark = pytest.mark.root

#: Serves on ::1, as an IPv6 pod does, while the command runs.
RUN_BESIDE_SERVERS = """
import json, subprocess, sys
from contextlib import ExitStack
from socket import AF_INET6
from tests.fakes.scripted_server import answer, scripted_server
with ExitStack() as servers:
    for port, status, body in json.loads(sys.argv[1]):
        serving = scripted_server(answer(status, body.encode()), family=AF_INET6, port=port)
        servers.enter_context(serving)
    done = subprocess.run([sys.executable, "-m", "agent", *sys.argv[2:]])
sys.exit(done.returncode)
"""


@pytest.fixture(scope="module")
def pod() -> Iterator[Namespace]:
    with namespace() as made:
        yield made


def run(
    pod: Namespace, servers: list[tuple[int, str, str]], *argv: str
) -> subprocess.CompletedProcess[str]:
    return pod.run(
        sys.executable, "-c", RUN_BESIDE_SERVERS, json.dumps(servers), *argv, check=False
    )


def test_wait_without_arguments_asks_the_health_port(pod: Namespace) -> None:
    done = run(pod, [(15021, "200 OK", "")], "wait")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\tinfo\tEnvoy is ready!\n")


def test_s2_without_a_health_port_the_agent_says_what_is_missing(pod: Namespace) -> None:
    servers = [(15020, "503 Service Unavailable", "xds: no connection to istiod:15012")]

    done = run(pod, servers, "wait", "--timeoutSeconds=0")

    assert done.returncode == 255
    assert "cannot connect to port 15021" in done.stderr
    assert done.stderr.endswith(
        "the agent says: HTTP status code 503: xds: no connection to istiod:15012\n"
    )


def test_wait_on_the_status_port_itself_asks_it_once(pod: Namespace) -> None:
    url = "http://localhost:15020/healthz/ready"

    done = run(pod, [], "wait", f"--url={url}", "--timeoutSeconds=0")

    assert done.returncode == 255
    assert "the agent says" not in done.stderr


def test_the_drain_hook_of_a_native_sidecar_prints_the_answer(pod: Namespace) -> None:
    done = run(pod, [(15020, "200 OK", "OK")], "request", "--debug-port=15020", "POST", "drain")

    assert (done.returncode, done.stdout, done.stderr) == (0, "OK\n", "")
