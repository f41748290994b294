"""Injected pods, run as a kubelet runs them: what must be true of every one of them.

The pods live once, side by side, before the first test; see lives.py. Those of the reference run
where its files are beside the tree. POD_IMAGE_ROOT names the file system of a built image to run
them from, and has all of them run; `make test-image` does that.
"""

import asyncio
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.demo.observe import Reply
from tests.pod.cases import chosen, is_gateway, is_job, make_cases
from tests.pod.cluster import Wishes, cluster
from tests.pod.lives import PEER, PLAIN_PEER, Ended, Life, all_of, live, work
from tests.pod.mesh import PASSTHROUGH_SOURCES
from tests.pod.node import Node, standing_on_a_node

pytestmark = [
    pytest.mark.root,
    pytest.mark.envoy,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

NAMES = chosen()
JOBS = [name for name in NAMES if is_job(name)]
SERVERS = [name for name in NAMES if not is_job(name)]
APPLICATIONS = [name for name in SERVERS if not is_gateway(name)]
#: Processors are few: more pods that start at once only take longer each.
AT_ONCE = 6
IDENTITY = "spiffe://cluster.local/ns/default/sa/default"
PEER_IDENTITY = "spiffe://cluster.local/ns/peers/sa/peer"
#: An ordinary sidecar's drain takes 5 seconds, an application's last one a second; processors are
#: busy. Source: status-lifecycle.md section 9.8.
END_SECONDS = 12

Lives = dict[str, Life | BaseException]


async def run(node: Node) -> tuple[Lives, list[str]]:
    """Return what was seen of all pods, and what Envoys have refused of their configuration."""
    cases, peers = make_cases(NAMES)
    services = [PEER, PLAIN_PEER, *(case.service for case in cases.values())]
    async with cluster(node, services) as found:
        found.behind_gateway = PEER.name
        found.config_maps[("default", "settings")] = {"greeting": "hello, world"}
        found.secrets[("default", "password")] = {"password": "secret"}
        wishes = Wishes(services=(PEER.name, PLAIN_PEER.name), versions=PEER.versions)
        async with found.pod(peers, wishes) as peer:
            await peer.kubelet.ready()
            works = {
                name: partial(work, found, case)
                if name in JOBS
                else partial(live, found, case, peer)
                for name, case in cases.items()
            }
            return await all_of(works, AT_ONCE), found.istiod.refusals


@pytest.fixture(scope="module")
def seen() -> tuple[Lives, list[str]]:
    with standing_on_a_node() as node:
        return asyncio.run(run(node))


@pytest.fixture
def life(seen: tuple[Lives, list[str]], name: str) -> Life:
    """What was seen of one pod, if it has lived to the end."""
    found = seen[0][name]
    if isinstance(found, BaseException):
        raise found
    return found


def client(reply: Reply | None) -> str:
    """Return who the receiving sidecar says has called, by the certificate of its client."""
    assert reply
    _, _, found = reply.body.partition("x-forwarded-client-cert")
    return found.partition("URI=")[2].partition('"')[0]


def test_no_envoy_refuses_its_configuration(seen: tuple[Lives, list[str]]) -> None:
    assert seen[1] == []


@pytest.mark.parametrize("name", SERVERS)
def test_requests_come_in_by_mutual_tls(life: Life) -> None:
    """And by nothing else, where they are captured; a gateway serves the world."""
    assert life.inbound
    assert life.inbound.status == 200
    assert life.stranger
    if life.case.application:
        assert life.stranger.passed is False
        if life.case.service.speaks_http:
            assert client(life.inbound) == PEER_IDENTITY
    else:
        assert client(life.inbound) == IDENTITY  # that of the gateway, to the service behind it


@pytest.mark.parametrize("name", [*APPLICATIONS, *JOBS])
def test_requests_go_out_by_mutual_tls(life: Life) -> None:
    assert life.outbound
    assert life.outbound.status == 200
    assert client(life.outbound) == (IDENTITY if life.case.is_captured else "")


@pytest.mark.parametrize("name", [name for name in SERVERS if "tproxy" in name])
def test_tproxy_keeps_the_source_of_what_comes_in(life: Life) -> None:
    assert life.inbound
    assert life.inbound.peer in life.peer_ips


@pytest.mark.parametrize("name", [name for name in APPLICATIONS if "tproxy" not in name])
def test_what_comes_in_has_envoys_own_source(life: Life) -> None:
    """As the rules know it by that."""
    if life.case.is_captured:
        source = PASSTHROUGH_SOURCES[6 if life.case.wishes.versions == "6" else 4]
        assert life.inbound
        assert life.inbound.peer == source


@pytest.mark.parametrize("name", APPLICATIONS)
def test_probes_are_answered_as_by_the_application(life: Life) -> None:
    for asked, probed in life.probed.items():
        assert probed.healthy.passed, (asked, probed)
        assert not probed.unhealthy.passed, (asked, probed)
        if probed.direct:
            assert probed.unhealthy.said[:3] == probed.direct.said[:3] == "503", asked


@pytest.mark.parametrize("name", NAMES)
def test_the_pod_is_scraped_where_its_annotations_say(life: Life) -> None:
    declared = life.case.workload.annotations.get("prometheus.io/scrape")

    names = {family.name for family in text_string_to_metric_families(life.scraped)}

    if declared == "true":
        assert {"istio_agent_scrapes", "envoy_server_live"} <= names
    else:
        assert not names
    assert ("application_up" in names) == life.case.name.startswith("everything")


@pytest.mark.parametrize("name", SERVERS)
def test_a_rolling_restart_loses_no_request(life: Life) -> None:
    assert life.load
    for kind, became in life.load.items():
        assert became["failed"] == [], kind
        assert became["ok"] > 15, kind


@pytest.mark.parametrize("name", SERVERS)
def test_it_ends_in_time_and_well(life: Life) -> None:
    assert_ended_well(life.ended)


@pytest.mark.parametrize("name", JOBS)
def test_a_job_completes(life: Life) -> None:
    assert_ended_well(life.ended)


def assert_ended_well(ended: Ended | None) -> None:
    assert ended
    assert ended.phase == "Succeeded", ended.story
    assert all(codes == [0] for codes in ended.codes.values()), ended.story
    assert ended.killed == [], ended.story
    assert "hook failed" not in ended.story
    assert ended.seconds < END_SECONDS, ended.story
