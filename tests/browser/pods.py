"""Pods for people to look at: with a control plane that comes and goes, and without one."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from agent.demo import manifest
from agent.demo.addresses import CABLE, url
from agent.demo.process import Output
from agent.demo.run import RunningPod, pod
from tests.envoy.chaos import ADDRESS, TREE, Plane
from tests.fakes.control_plane import SERVER_NAME
from tests.waiting import block_until

CA_PORT: Final = 15912
TCP_PROXY: Final = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
CLUSTER: Final = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
LISTENER: Final = "type.googleapis.com/envoy.config.listener.v3.Listener"
#: What runs as soon as a page makes markup of it.
MARKUP: Final = "<img src=x onerror=\"document.title='taken over'\">"


def listener(name: str, port: int, *, is_good: bool = True) -> dict[str, Any]:
    """Return a listener; Envoy refuses one without filter chains."""
    proxy = {"@type": TCP_PROXY, "stat_prefix": "x", "cluster": "nobody"}
    chains = [{"filters": [{"name": "tcp", "typed_config": proxy}]}]
    return {
        "@type": LISTENER,
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": chains if is_good else [],
    }


class LocalPod:
    """A pod that gets its configuration from a directory, and its certificate from a CA."""

    def __init__(self, made: RunningPod) -> None:
        self.made = made
        self._resources = made.root / "resources"
        self._resources.mkdir()
        self._resources.chmod(0o755)
        self._write("good", [{"@type": CLUSTER, "name": "nobody"}, listener("good", 19000)])

    def push_refused(self) -> None:
        """Have Envoy be sent a listener that it refuses, with a name that is meant badly."""
        self._write("bad", [listener(MARKUP, 19001, is_good=False)])

    def mend(self) -> None:
        """Take it away again."""
        (self._resources / "bad.json").unlink()

    def probe(self) -> int:
        """Do as the kubelet does; return the status."""
        return self.made.get("node", url(CABLE.pod_ipv4, 15020, manifest.PROBE_PATH)).status

    def _write(self, name: str, found: list[dict[str, Any]]) -> None:
        staged = self._resources.with_name("staged")
        staged.write_text(json.dumps(found))
        staged.chmod(0o644)
        staged.replace(self._resources / f"{name}.json")


@contextlib.contextmanager
def local_pod(directory: Path) -> Iterator[LocalPod]:
    """Yield a pod that is ready; its application is not there yet."""
    with pod() as made:
        local = LocalPod(made)
        token = made.root / "var/run/secrets/tokens/istio-token"
        token.write_text("token")
        token.chmod(0o644)
        ca = made.inside.spawn(
            [sys.executable, "-m", "tests.fakes.ca", str(directory), str(CA_PORT)],
            environ={**os.environ, "PYTHONPATH": str(TREE)},
            stdout=subprocess.PIPE,
        )
        assert Output(ca).wait_for("listening", 20)
        root = made.root / "ca-root.pem"
        root.write_bytes((directory / "ca-root.pem").read_bytes())
        root.chmod(0o644)
        made.environ.update(
            AGENT_LOCAL_XDS=str(made.root / "resources"),
            CA_ADDR=f"localhost:{CA_PORT}",
            CA_ROOT_CA=str(root),
            OUTPUT_CERTS="./var/lib/istio/data",
            ISTIO_META_INTERCEPTION_MODE="NONE",
        )
        assert made.start() == "exit 0", made.log_text()
        yield local


@contextlib.contextmanager
def served_pod(directory: Path) -> Iterator[tuple[RunningPod, Plane]]:
    """Yield a pod that has begun to ask a control plane, which is not there yet."""
    with pod() as made:
        plane = Plane(made, directory)
        config = {
            "discoveryAddress": ADDRESS,
            "terminationDrainDuration": "60s",
            "proxyMetadata": manifest.PROXY_METADATA,
        }
        made.environ.update(
            AGENT_LOCAL_XDS="",
            AGENT_TERMINATION_GRACE_PERIOD="90",
            ISTIOD_SAN=SERVER_NAME,
            PROXY_CONFIG=json.dumps(config),
        )
        assert made.capture() == "exit 0"
        made.start_agent()
        block_until(lambda: made.get("application", "http://127.0.0.1:15020/healthz/ready").status)
        try:
            yield made, plane
        finally:
            plane.kill()
