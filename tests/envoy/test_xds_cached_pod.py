"""A whole pod whose sidecar is restarted while there is no control plane. Case X11."""

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from agent.demo import manifest
from agent.demo.addresses import CABLE, url
from agent.demo.process import first_gone
from agent.demo.run import RunningPod, pod
from agent.demo.scenario import Client
from agent.xds.resources import CLUSTER, LISTENER
from tests.envoy.chaos import ADDRESS, Plane
from tests.fakes.control_plane import SERVER_NAME
from tests.waiting import block_until

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

KEPT = "etc/istio/proxy/known-good/accepted.db"
LOCAL = "http://127.0.0.1:15020"


def crash(made: RunningPod) -> None:
    """Have the agent, and with it Envoy, be gone without a word."""
    assert made.agent
    pid = made.agent.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    made.agent.kill()
    made.agent.wait()
    for child in children:
        first_gone([int(child)], 10)


def is_kept(path: Path) -> bool:
    """Return whether a configuration is kept for good, whoever has the database open."""
    if not path.exists():
        return False
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as database:
        try:
            found = database.execute("SELECT url FROM type WHERE accepted IS NOT NULL").fetchall()
        except sqlite3.DatabaseError:  # it is being written
            return False
    return {CLUSTER, LISTENER} <= {type_url for (type_url,) in found}


def serving_cached(made: RunningPod) -> str:
    lines = made.get("application", f"{LOCAL}/stats/prometheus").body.splitlines()
    return next((line[-1] for line in lines if line.startswith("istio_agent_xds_serving")), "")


def statuses(made: RunningPod) -> list[int]:
    """Return what requests get: one into the pod, one out of it."""
    port = manifest.APPLICATION_PORT
    ways: tuple[tuple[Client, str], ...] = (
        ("node", CABLE.pod_ipv4),
        ("application", CABLE.node_ipv4),
    )
    return [made.get(client, url(address, port)).status for client, address in ways]


def test_a_sidecar_that_is_restarted_lives_on_what_it_had(tmp_path: Path) -> None:
    with pod() as made:
        plane = Plane(made, tmp_path)
        made.environ.update(
            AGENT_LOCAL_XDS="",
            AGENT_XDS_CACHE="true",
            AGENT_XDS_CACHE_AFTER="500ms",
            ISTIOD_SAN=SERVER_NAME,
            PROXY_CONFIG=json.dumps(
                {"discoveryAddress": ADDRESS, "proxyMetadata": manifest.PROXY_METADATA}
            ),
        )
        plane.be("good", "0")
        assert made.capture() == "exit 0"
        assert made.serve() == "listening"
        assert made.start() == "exit 0", made.log_text()
        before = statuses(made), serving_cached(made)
        block_until(lambda: is_kept(made.root / KEPT))

        plane.kill()
        crash(made)
        assert made.start() == "exit 0", made.log_text()
        meanwhile = statuses(made), serving_cached(made)
        ready = made.get("node", url(CABLE.pod_ipv4, 15021, "/healthz/ready"))
        told = made.get("application", f"{LOCAL}/healthz/ready").body
        plane.be("good", "1")
        try:
            block_until(lambda: serving_cached(made) == "0", seconds=30)
            after = statuses(made)
        finally:
            plane.kill()

    assert before == ([200, 200], "0")
    assert meanwhile == ([200, 200], "1")
    assert ready.status == 200
    assert "serving cached configuration that last changed" in told
    assert after == [200, 200]
