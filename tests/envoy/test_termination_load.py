"""No request is lost while a pod ends, whatever it ends by. Figures: bench/termination.py."""

import subprocess

import pytest

from agent.demo import files
from agent.demo.addresses import CABLE, url
from agent.demo.manifest import APPLICATION_PORT
from agent.demo.observe import parse_reply
from agent.demo.run import CLIENT
from tests.envoy.loaded_pod import LoadedPod, loaded_pod
from tests.waiting import block_until

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

BEFORE, DURING = "more 60", "more 150"


def drain_under_load(pod: LoadedPod, during: str = DURING, *, application: bool = False) -> float:
    """Send the signal under load, and let the load end as endpoints do; return when it was sent."""
    pod.inbound.tell(BEFORE)
    signalled = pod.terminate(application=application)
    block_until(lambda: "draining target=" in pod.made.log_text())
    pod.inbound.tell(during)
    pod.outbound.tell("quiet")
    pod.inbound.tell("quiet")
    return signalled


def assert_nothing_was_lost(pod: LoadedPod) -> None:
    reports = pod.reports()
    assert [said["failed"] for said in reports.values()] == [[]] * len(reports)
    assert all(said["ok"] for said in reports.values())
    assert pod.made.ended() == "exit 0"


def test_a_fixed_time() -> None:
    """Cases D1, D2, D14, D19, D23 and D30: the load goes on behind Envoy's own drain time."""
    durations = {"drainDuration": "1s", "terminationDrainDuration": "2500ms"}
    with loaded_pod({}, durations) as pod:
        signalled = drain_under_load(pod, "more 300")
        pod.inbound.tell("hang-up")

        assert pod.ended_at() >= signalled + 2.5
        assert_nothing_was_lost(pod)


def test_until_nobody_is_connected() -> None:
    """Cases D1, D8 and D19."""
    environ = {"EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true", "MINIMUM_DRAIN_DURATION": "500ms"}
    with loaded_pod(environ) as pod:
        drain_under_load(pod)
        left = pod.inbound.tell("leave")

        assert pod.ended_at() >= left
        assert_nothing_was_lost(pod)


def test_until_no_request_is_under_way() -> None:
    """Case D7: connections that are kept alive stay open."""
    with loaded_pod({"AGENT_EXIT_ON": "requests", "MINIMUM_DRAIN_DURATION": "500ms"}) as pod:
        drain_under_load(pod)
        hung_up = pod.inbound.tell("hang-up")

        assert pod.ended_at() >= hung_up
        assert_nothing_was_lost(pod)


def test_until_the_application_is_gone() -> None:
    """What it had begun before it stopped listening is finished, too."""
    environ = {"AGENT_EXIT_ON": "app", "MINIMUM_DRAIN_DURATION": "500ms"}
    slow = url(CABLE.pod_ipv4, APPLICATION_PORT, "/slow?2500")
    with loaded_pod(environ, application_seconds=1.5) as pod:
        begun = pod.made.node.spawn([*CLIENT, slow], stdout=subprocess.PIPE)
        drain_under_load(pod, application=True)
        hung_up = pod.inbound.tell("hang-up")

        assert pod.application.hear().startswith("closed ")
        answer, _ = begun.communicate(timeout=10)
        assert parse_reply(answer.decode()).status == 200
        assert pod.application.hear().startswith("ended ")
        assert pod.ended_at() >= hung_up
        assert_nothing_was_lost(pod)


def test_a_native_sidecar_that_drains_first() -> None:
    """Cases D12 and D17: the hook, then the application, then the signal."""
    with loaded_pod({"AGENT_DRAIN_DELAY": "200ms"}, application_seconds=1.0) as pod:
        pod.inbound.tell(BEFORE)
        hook = [*files.program(), "request", "--debug-port=15020", "POST", "drain"]
        done = pod.made.inside.run(hook, environ=pod.made.environ)
        assert done.stdout == "OK\n"
        pod.inbound.tell(DURING)
        pod.outbound.tell("quiet")
        pod.inbound.tell("quiet")
        pod.inbound.tell("hang-up")

        signalled = pod.terminate(application=True)

        assert pod.ended_at() >= signalled
        assert_nothing_was_lost(pod)
