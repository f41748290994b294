"""What a whole pod says and does while it ends."""

import json
import subprocess

import pytest

from agent.demo import files, manifest
from agent.demo.addresses import CABLE, url
from agent.demo.commands import ISTIO_PROXY
from agent.demo.manifest import APPLICATION_PORT, READINESS_PATH
from agent.demo.run import RunningPod, pod
from agent.demo.scenario import SLOW_PATH
from tests.envoy.whole_pod import started
from tests.waiting import block_until

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

INSIDE = url(CABLE.pod_ipv4, APPLICATION_PORT)
READY = url(CABLE.pod_ipv4, 15020, READINESS_PATH)
HEALTH = url(CABLE.pod_ipv4, 15021, READINESS_PATH)
METRICS = url(CABLE.pod_ipv4, 15020, "/stats/prometheus")
PLAN = url(CABLE.pod_ipv4, 15020, "/debug/drain")


def request(of: RunningPod, *words: str) -> subprocess.CompletedProcess[str]:
    """Run our own small client in the pod; its image may have no shell."""
    argv = [*files.program(), "request", "--debug-port=15020", *words]
    return of.inside.run(argv, environ=of.environ)


def test_the_status_port_answers_to_the_end() -> None:
    """Case D29."""
    with started(PROXY_CONFIG='{"terminationDrainDuration": "1500ms"}') as made:
        made.terminate()

        not_ready = made.get_until("node", READY, lambda reply: reply.status == 503)
        metrics = made.get("node", METRICS)

        assert not_ready.status == 503
        assert not_ready.body.startswith("server is terminated: received signal: terminated\n")
        assert metrics.status == 200
        assert "istio_agent_" in metrics.body
        assert "envoy_" in metrics.body
        assert made.ended() == "exit 0"


def test_the_plan_is_logged_and_shown_to_the_pod_alone() -> None:
    """Case D3."""
    with started(AGENT_EXIT_ON="app", AGENT_TERMINATION_GRACE_PERIOD="60") as made:
        shown = json.loads(request(made, "GET", "debug/drain").stdout)

        assert made.get("node", PLAN).status == 403
        assert shown["state"] == "running"
        assert shown["plan"]["condition"] == {"value": "app", "from": "AGENT_EXIT_ON"}
        assert shown["plan"]["deadline_seconds"]["value"] == 57
        assert (
            "termination plan condition=app (AGENT_EXIT_ON) delay=0s (default) minimum=5s"
            in made.log_text()
        )


def test_quitting_does_not_wait_for_clients() -> None:
    """Cases D16, D17 and D18."""
    with started() as made:
        made.begin("in", "node", f"{INSIDE[:-1]}{SLOW_PATH}")
        assert "405" in request(made, "GET", "quitquitquit").stderr

        done = request(made, "POST", "quitquitquit")

        assert (done.returncode, done.stdout) == (0, "OK\n")
        assert made.ended() == "exit 0"
        assert made.finish("in").status == 0  # it would have been answered after three seconds


def test_a_sidecar_needs_no_hook_to_become_ready() -> None:
    """Case S3: the startup probe of a restartable init container sees nothing but 503, then 200."""
    with pod() as made:
        assert made.capture() == "exit 0"
        made.start_agent()
        seen = set()

        while 200 not in seen:
            seen.add(made.get("node", HEALTH).status)

        assert seen <= {0, 503, 200}
        assert "Envoy proxy is ready" in made.log_text()


def test_a_read_only_root_with_its_volumes_is_enough() -> None:
    """Case D22."""
    with pod() as made:
        uid = f"uid={ISTIO_PROXY.uid},gid={ISTIO_PROXY.gid}"
        volumes = " && ".join(
            f"mount -t tmpfs -o {uid} tmpfs {made.root / volume}" for volume in manifest.VOLUMES
        )
        done = made.inside.run(["sh", "-ec", f"{volumes} && mount -o remount,bind,ro /"])
        assert done.returncode == 0, done.stderr
        assert made.inside.run(["touch", str(made.root / "file")]).returncode != 0
        assert made.capture() == "exit 0"

        assert made.start() == "exit 0", made.log_text()

        made.terminate()
        block_until(lambda: "draining target=" in made.log_text())
        made.terminate()
        assert made.ended() == "exit 0"
