"""How a whole pod lives: Envoy restarted, taken over, configured over, or not there at all."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.demo import files, manifest
from agent.demo.addresses import CABLE, url
from agent.demo.commands import ISTIO_PROXY
from agent.demo.manifest import APPLICATION_PORT, READINESS_PATH
from agent.demo.process import Output
from agent.demo.run import RunningPod, pod
from tests.envoy.whole_pod import envoys, started
from tests.waiting import block_until

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

STATUS = url(CABLE.pod_ipv4, 15020, READINESS_PATH)
HEALTH = url(CABLE.pod_ipv4, 15021, READINESS_PATH)
METRICS = url(CABLE.pod_ipv4, 15020, "/metrics")
INSIDE = url(CABLE.pod_ipv4, APPLICATION_PORT)
TEMPLATE = Path(__file__).parents[1] / "golden" / "bootstrap-template" / "whole.json.tmpl"
GRPC_BOOTSTRAP = "etc/istio/proxy/grpc-bootstrap.json"


def wait_until_ready(of: RunningPod) -> None:
    reply = of.get_until("node", HEALTH, lambda reply: reply.status == 200)
    assert reply.status == 200, of.log_text()


def test_an_envoy_that_was_killed_is_started_again_and_then_given_up() -> None:
    """Cases V1, V3 and V4."""
    with started(AGENT_ENVOY_RESTARTS="1") as made:
        (first,) = envoys(made)

        os.kill(first, signal.SIGKILL)

        between = made.get_until("node", STATUS, lambda reply: reply.status == 503)
        wait_until_ready(made)
        (second,) = envoys(made)
        assert between.status == 503
        assert made.get("node", INSIDE).status == 200
        assert "istio_agent_envoy_restarts_total 1\n" in made.get("node", METRICS).body
        os.kill(second, signal.SIGSEGV)
        assert made.ended() == "exit 139"


def test_a_second_agent_takes_over_from_one_that_was_killed() -> None:
    with started() as made:
        (first,) = envoys(made)
        assert made.agent
        made.agent.kill()
        made.agent.wait()

        assert made.start() == "exit 0", made.log_text()

        (second,) = envoys(made)
        assert second != first
        assert made.get("node", INSIDE).status == 200
        left = {path.name for path in (made.root / "etc/istio/proxy").iterdir()}
        assert left == {"XDS", "envoy-rev.json", "grpc-bootstrap.json"}


def test_envoy_has_the_file_limit_that_the_agent_was_started_with() -> None:
    with started() as made:
        (envoy,) = envoys(made)
        (line,) = (
            line
            for line in Path(f"/proc/{envoy}/limits").read_text().splitlines()
            if line.startswith("Max open files")
        )

        ours = Path("/proc/self/limits").read_text()

        assert line in ours


def test_an_override_is_merged_over_the_bootstrap() -> None:
    """Spec: bootstrap.md section 5.10."""
    with pod() as made:
        override = made.root / "etc/istio/proxy/custom.yaml"
        override.write_text('"stats_flush_interval": 7s\n')
        made.environ["ISTIO_BOOTSTRAP_OVERRIDE"] = "etc/istio/proxy/custom.yaml"
        assert made.capture() == "exit 0"
        assert made.start() == "exit 0", made.log_text()

        dump = made.get("application", url("127.0.0.1", 15000, "/config_dump"))

    assert '"stats_flush_interval": "7s"' in dump.body


def test_a_template_of_the_users_own_takes_the_bootstraps_place() -> None:
    """Spec: bootstrap.md section 5.1."""
    with pod() as made:
        text = TEMPLATE.read_text().replace('"buffer_size_kb": 64', '"buffer_size_kb": 63')
        (made.root / "var/lib/istio/data/own.json").write_text(text)
        made.environ["ISTIO_BOOTSTRAP"] = "var/lib/istio/data/own.json"
        assert made.capture() == "exit 0"
        assert made.start() == "exit 0", made.log_text()

        dump = made.get("application", url("127.0.0.1", 15000, "/config_dump?mask=bootstrap"))

    assert '"buffer_size_kb": 63' in dump.body


def test_an_override_that_cannot_be_used_is_a_warning() -> None:
    with pod() as made:
        made.environ["ISTIO_BOOTSTRAP_OVERRIDE"] = "nowhere.yaml"
        assert made.capture() == "exit 0"
        assert made.start() == "exit 0", made.log_text()

        warning = "ISTIO_BOOTSTRAP_OVERRIDE='nowhere.yaml': No such file or directory"
        assert f"{warning}; Envoy starts without it" in made.log_text()


def test_grpc_applications_find_their_bootstrap() -> None:
    """Spec: bootstrap.md section 7."""
    with started() as made:
        path = made.root / GRPC_BOOTSTRAP
        document = json.loads(path.read_text())

        assert path.stat().st_mode & 0o777 == 0o644
        assert document["xds_servers"][0]["server_uri"] == "unix:///etc/istio/proxy/XDS"
        assert document["node"]["metadata"]["GENERATOR"] == "grpc"


def test_without_envoy_the_agent_serves_grpc_applications_until_its_signal() -> None:
    with pod() as made:
        made.environ["DISABLE_ENVOY"] = "true"
        made.start_agent()

        reply = made.get_until("node", STATUS, lambda reply: reply.status == 200)

        assert reply.status == 200, made.log_text()
        assert (made.root / GRPC_BOOTSTRAP).exists()
        assert (made.root / "etc/istio/proxy/XDS").is_socket()
        assert envoys(made) == []
        made.terminate()
        assert made.ended() == "exit 0"


def test_without_envoy_quitting_ends_the_agent() -> None:
    """Spec: status-lifecycle.md section 14, D2."""
    with pod() as made:
        made.environ["DISABLE_ENVOY"] = "true"
        made.start_agent()
        made.get_until("node", STATUS, lambda reply: reply.status == 200)

        for path in ("drain", "quitquitquit"):
            done = made.inside.run(
                [*files.program(), "request", "--debug-port=15020", "POST", path],
                environ=made.environ,
            )
            assert done.stdout == "OK\n"

        assert made.ended() == "exit 0"


def test_certificates_that_are_not_there_yet_keep_a_grpc_pod_from_being_ready() -> None:
    with pod() as made:
        made.environ.update(DISABLE_ENVOY="true", OUTPUT_CERTS="var/lib/istio/data")
        made.start_agent()
        block_until((made.root / GRPC_BOOTSTRAP).exists)

        reply = made.get("node", STATUS)
        for name in ("cert-chain.pem", "key.pem", "root-cert.pem"):
            (made.root / "var/lib/istio/data" / name).touch()

        assert reply.body.startswith("var/lib/istio/data/cert-chain.pem does not exist\n")
        assert made.get("node", STATUS).status == 200


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_as_pid_1_the_agent_reaps_orphans_and_obeys_signals() -> None:
    with pod() as made:
        argv = [*files.program(), *manifest.expand(manifest.PROXY_ARGS, made.environ)]
        with made.log.open("ab") as log:
            os.fchown(log.fileno(), ISTIO_PROXY.uid, ISTIO_PROXY.gid)
            become = f"setpriv --reuid={ISTIO_PROXY.uid} --regid={ISTIO_PROXY.gid} --clear-groups"
            runtime = made.inside.spawn(
                ["unshare", "--pid", "--fork", "--mount-proc", *become.split(), "--", *argv],
                environ=made.environ,
                stdout=log,
                stderr=log,
            )
        wait_until_ready(made)
        (agent,) = children(runtime.pid)
        (envoy,) = children(agent)

        # The shell ends before its child does, which then belongs to pid 1.
        into = ["nsenter", f"--target={agent}", "--pid", "--mount"]
        made.inside.run([*into, "sh", "-c", "sleep 0.2 >/dev/null 2>&1 &"])
        block_until(lambda: len(children(agent)) > 1)
        block_until(lambda: children(agent) == [envoy])

        os.kill(agent, signal.SIGTERM)
        block_until(lambda: "draining target=" in made.log_text())
        os.kill(agent, signal.SIGTERM)
        assert runtime.wait(10) == 0


METADATA_SERVICE = """
import http.server, sys
ANSWERS = {"project/project-id": "shop", "instance/zone": "projects/1/zones/europe-west1-b"}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = ANSWERS.get(self.path.removeprefix("/computeMetadata/v1/"))
        self.send_response(200 if answer else 404)
        self.end_headers()
        self.wfile.write((answer or "").encode())
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 8169), Handler)
print("listening", flush=True)
server.serve_forever()
"""


def test_what_the_cloud_says_in_time_belongs_to_the_node() -> None:
    """Spec: bootstrap.md section 4.7."""
    with pod() as made:
        service = made.inside.spawn(
            [sys.executable, "-c", METADATA_SERVICE], stdout=subprocess.PIPE
        )
        assert Output(service).wait_for("listening", 10)
        made.environ.update(CLOUD_PLATFORM="gcp", GCE_METADATA_HOST="127.0.0.1:8169")
        assert made.capture() == "exit 0"
        assert made.start() == "exit 0", made.log_text()

        dump = made.get("application", url("127.0.0.1", 15000, "/config_dump?mask=bootstrap"))
        node = json.loads((made.root / GRPC_BOOTSTRAP).read_text())["node"]

    assert node["locality"] == {"region": "europe-west1", "zone": "europe-west1-b"}
    assert node["metadata"]["PLATFORM_METADATA"]["gcp_project"] == "shop"
    assert '"zone": "europe-west1-b"' in dump.body
