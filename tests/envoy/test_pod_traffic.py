"""A whole pod: real capture, the real agent as uid 1337, a real Envoy, and who talks to whom."""

from collections.abc import Iterator

import pytest

from agent.demo.addresses import CABLE, Family, url
from agent.demo.manifest import APPLICATION_PORT
from agent.demo.run import RunningPod
from agent.demo.scenario import Step, traffic
from tests.envoy import whole_pod

pytestmark = [pytest.mark.root, pytest.mark.envoy]

FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")
STEPS = traffic(FAMILIES)


@pytest.fixture(scope="module")
def started() -> Iterator[RunningPod]:
    """A pod in which everything runs."""
    with whole_pod.started() as made:
        yield made


@pytest.mark.parametrize("step", STEPS, ids=[step.name for step in STEPS])
def test_traffic_goes_the_way_it_must(started: RunningPod, step: Step) -> None:
    assert step.observe(started) == step.expected


def test_the_application_talks_to_itself_directly(started: RunningPod) -> None:
    before = started.accepted(15001) + started.accepted(15006)

    reply = started.get("application", url(CABLE.pod_ipv4, APPLICATION_PORT))

    assert (reply.status, reply.peer) == (200, CABLE.pod_ipv4)
    assert started.accepted(15001) + started.accepted(15006) == before


@pytest.mark.parametrize(
    "target",
    [
        *(url(CABLE.pod_ipv4, port, "/nothing") for port in (15020, 15021, 15090)),
        url(CABLE.pod_ipv6, 15020, "/nothing"),
    ],
)
def test_the_sidecars_own_ports_are_not_captured(started: RunningPod, target: str) -> None:
    before = started.accepted(15006)

    reply = started.get("node", target)

    assert reply.status == 404
    assert started.accepted(15006) == before


@pytest.mark.parametrize("port", [15000])
def test_the_admin_port_is_closed_to_the_network(started: RunningPod, port: int) -> None:
    reply = started.get("node", url(CABLE.pod_ipv4, port, "/stats"))

    assert "listener_manager" not in reply.body
    assert reply.status != 200


def test_metrics_are_merged_for_the_network(started: RunningPod) -> None:
    reply = started.get("node", url(CABLE.pod_ipv4, 15020, "/stats/prometheus"))

    assert reply.status == 200
    assert "istio_agent_" in reply.body
    assert "envoy_" in reply.body


@pytest.mark.parametrize("path", ["/quitquitquit", "/drain"])
def test_the_network_cannot_end_the_sidecar(started: RunningPod, path: str) -> None:
    assert started.get("node", url(CABLE.pod_ipv4, 15020, path)).status == 403
