"""The whole agent: a certificate from a CA, used by its Envoy, written for others, and shown."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from agent.demo.files import program
from agent.demo.process import Namespace, Output, namespace
from tests.envoy.identity_envoy import Json, listener, mutual_tls
from tests.envoy.xds_envoy import BINARY
from tests.waiting import block_until

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

ROOT: Final = Path(__file__).parents[2]
CA_PORT: Final = 15012
SPIFFE_ID: Final = "spiffe://cluster.local/ns/shop/sa/web"
FILES: Final = ("cert-chain.pem", "key.pem", "root-cert.pem")
VOLUMES: Final = (
    "var/run/secrets/workload-spiffe-uds",
    "var/run/secrets/tokens",
    "etc/istio/proxy",
    "resources",
    "out",
)
#: Ask once with the files of a directory, and print whom we talked to.
ASK: Final = """
import http.client, json, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1] + "/root-cert.pem")
context.check_hostname = False
context.load_cert_chain(sys.argv[1] + "/cert-chain.pem", sys.argv[1] + "/key.pem")
connection = http.client.HTTPSConnection("127.0.0.1", 8443, context=context)
connection.request("GET", "/")
names = connection.sock.getpeercert()["subjectAltName"]
print(json.dumps([connection.getresponse().status, names]))
"""
#: The same of the merged metrics, with a certificate or without.
SCRAPE: Final = """
import http.client, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1] + "/root-cert.pem")
context.check_hostname = False
if len(sys.argv) > 2:
    context.load_cert_chain(sys.argv[1] + "/cert-chain.pem", sys.argv[1] + "/key.pem")
connection = http.client.HTTPSConnection("127.0.0.1", 15092, context=context)
try:
    connection.request("GET", "/stats/prometheus")
    answer = connection.getresponse()
except OSError:
    print("refused")
else:
    print(answer.status, answer.getheader("content-type"))
    print(answer.read().decode())
"""


class Pod(NamedTuple):
    directory: Path
    inside: Namespace

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return self.inside.run(argv, environ=dict(os.environ), timeout_seconds=20)

    def get(self, path: str) -> str:
        return self.run(*program(), "request", "--debug-port=15020", "GET", path).stdout


def mesh_listener() -> Json:
    """Return a listener that talks to the mesh alone."""
    answer = {"direct_response": {"status": 200, "body": {"inline_string": "hello"}}}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 8443}}
    socket = mutual_tls("DownstreamTlsContext", require_client_certificate=True)
    kind = "type.googleapis.com/envoy.config.listener.v3.Listener"
    return {"@type": kind, **listener(address, answer, transport_socket=socket)}


@pytest.fixture(scope="module")
def pod() -> Iterator[Pod]:
    """An agent with its Envoy and, in the same namespace, a CA; their TLS follows a policy."""
    with tempfile.TemporaryDirectory(prefix="pod-") as name:
        directory = Path(name)
        for volume in VOLUMES:
            (directory / volume).mkdir(parents=True)
        (directory / "var/run/secrets/tokens/istio-token").write_text("token")
        (directory / "resources" / "mesh.yaml").write_text(yaml.safe_dump(mesh_listener()))
        with namespace(directory=name) as inside:
            python = (sys.executable, "-m")
            environ = {**os.environ, "PYTHONPATH": str(ROOT)}
            ca = inside.spawn(
                [*python, "tests.fakes.ca", name, str(CA_PORT)],
                environ=environ,
                stdout=subprocess.PIPE,
            )
            assert Output(ca).wait_for("listening", 20)
            with (directory / "agent.log").open("wb") as log:
                inside.spawn(
                    [*program(), "proxy", "sidecar"],
                    environ={
                        "PATH": os.environ["PATH"],
                        "POD_NAME": "web-1",
                        "POD_NAMESPACE": "shop",
                        "SERVICE_ACCOUNT": "web",
                        "INSTANCE_IP": "127.0.0.1",
                        "CLOUD_PLATFORM": "none",
                        "PROXY_CONFIG": json.dumps({"binaryPath": str(BINARY)}),
                        "AGENT_LOCAL_XDS": str(directory / "resources"),
                        "ISTIO_META_INTERCEPTION_MODE": "NONE",
                        "CA_ADDR": f"localhost:{CA_PORT}",
                        "CA_ROOT_CA": str(directory / "ca-root.pem"),
                        "COMPLIANCE_POLICY": "fips-140-3",
                        "OUTPUT_CERTS": str(directory / "out"),
                        "ECC_SIGNATURE_ALGORITHM": "ECDSA",
                        "ENVOY_SECURE_MERGED_METRICS_PORT": "15092",
                    },
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            made = Pod(directory, inside)
            try:
                assert made.run(*program(), "wait").returncode == 0
                block_until(lambda: all((directory / "out" / each).exists() for each in FILES))
                yield made
            finally:
                print((directory / "agent.log").read_text())  # noqa: T201 - shown where one fails


def test_envoy_is_who_the_ca_says(pod: Pod) -> None:
    """Both sides of a handshake use what the CA has issued: from the socket, and from files."""
    done = pod.run(sys.executable, "-c", ASK, str(pod.directory / "out"))

    assert done.stderr == ""
    assert json.loads(done.stdout) == [200, [["URI", SPIFFE_ID]]]


def test_files_for_others_are_the_agents_alone(pod: Pod) -> None:
    modes = {path.stat().st_mode & 0o777 for path in (pod.directory / "out").iterdir()}

    assert modes == {0o600}


def test_the_certificate_is_shown(pod: Pod) -> None:
    text = pod.run(*program(), "cert")
    done = pod.run(*program(), "cert", "-o", "json")
    assert done.stderr == ""
    shown: Any = json.loads(done.stdout)

    assert text.returncode == 0
    assert f"SPIFFE ID      {SPIFFE_ID}\n" in text.stdout
    assert shown["source"] == f"issued by localhost:{CA_PORT}"
    assert shown["chain"][0]["san"] == [f"URI:{SPIFFE_ID}"]
    assert shown["chain"][0]["issuer"] == "CN=mesh root"
    assert "PRIVATE" not in text.stdout


def test_what_is_left_is_a_metric(pod: Pod) -> None:
    found = [line for line in pod.get("metrics").splitlines() if "istio_agent_cert_expiry" in line]

    left = float(found[-1].rpartition(" ")[2])
    assert 'resource_name="default"' in found[-1]
    assert 86_000 < left <= 86_401


def test_nothing_secret_is_logged(pod: Pod) -> None:
    log = (pod.directory / "agent.log").read_text()
    key = (pod.directory / "out" / "key.pem").read_text().splitlines()[1]

    assert "certificate issued by=localhost:15012" in log
    assert key not in log
    assert "PRIVATE" not in log


def test_no_child_is_left(pod: Pod) -> None:
    names = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pod.inside.processes()]

    assert not [name for name in names if b"agent.identity" in name]


def test_merged_metrics_are_there_over_mutual_tls(pod: Pod) -> None:
    """cases.md M11."""
    label, _, text = pod.run(
        sys.executable, "-c", SCRAPE, str(pod.directory / "out"), "with"
    ).stdout.partition("\n")
    refused = pod.run(sys.executable, "-c", SCRAPE, str(pod.directory / "out")).stdout

    assert label == "200 text/plain; version=0.0.4; charset=utf-8"
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {"istio_agent_scrapes", "envoy_server_live"} <= names
    assert refused == "refused\n"
