"""What pods get over, run as a kubelet runs them: ends that come early, and what comes late."""

import asyncio
import os
import signal
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509

from tests.pod.cases import own
from tests.pod.cluster import Cluster, Pod, Wishes, cluster
from tests.pod.containers import Process, write_files
from tests.pod.lives import PEER, answered
from tests.pod.mesh import Service
from tests.pod.node import Node, standing_on_a_node
from tests.pod.objects import Workload
from tests.pod.volumes import File, Files
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

WEBS = {
    name: Service(name, f"10.96.1.{number}", 80, 80)
    for number, name in enumerate(("agent-killed", "envoy-killed"), 1)
}


class Place(NamedTuple):
    """A cluster with a peer."""

    found: Cluster
    peer: Pod
    workloads: dict[str, Workload]

    async def serves_and_calls(self, pod: Pod) -> None:
        """Return once requests come in and go out."""
        (name,) = pod.wishes.services
        await answered(self.peer, "peer", f"http://{WEBS[name].host}/")
        await answered(pod, "web", f"http://{PEER.host}/")


def children(pid: int) -> dict[str, int]:
    """Return the children of a process by their commands."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {Path(f"/proc/{each}/comm").read_text().strip(): int(each) for each in found}


async def comes_back(place: Place, service: str, pid: Callable[[Process], int]) -> Pod:
    """Return a pod whose sidecar came back after a process of it was killed."""
    wishes = Wishes(services=(service,))
    async with place.found.pod(place.workloads["hold"], wishes) as pod:
        await pod.kubelet.ready()
        await place.serves_and_calls(pod)

        os.kill(pid(pod.process("istio-proxy")), signal.SIGKILL)
        await pod.kubelet.until(lambda: pod.kubelet.statuses["istio-proxy"].restarts == 1)
        await pod.kubelet.ready()
        await place.serves_and_calls(pod)
        assert pod.kubelet.statuses["istio-proxy"].codes == [128 + signal.SIGKILL]
        return pod


async def its_agent_is_killed(place: Place) -> None:
    """Its sockets are still in the volumes of the pod when it comes back."""
    await comes_back(place, "agent-killed", lambda sidecar: sidecar.pid)


async def its_envoy_is_killed(place: Place) -> None:
    """The agent ends with Envoy's exit code. Source: status-lifecycle.md section 14, D4."""
    pod = await comes_back(place, "envoy-killed", lambda pod: children(pod.pid)["envoy"])

    assert "killed by signal 9" in pod.log("istio-proxy")


async def it_is_deleted_as_its_sidecar_starts(place: Place) -> None:
    """The interpreter has not asked for signals yet, and the first process gets no others."""
    async with place.found.pod(place.workloads["hold"]) as pod:
        kubelet = pod.kubelet
        await kubelet.until(lambda: kubelet.statuses["istio-proxy"].process)
        command = Path(f"/proc/{pod.process('istio-proxy').pid}/cmdline")
        await until(lambda: b"python" in command.read_bytes())

        kubelet.delete()
        await kubelet.over(10)

    assert kubelet.statuses["istio-proxy"].codes == [0], kubelet.describe()


async def a_client_is_revoked_while_it_runs(place: Place) -> None:
    """The config map of revocations appears in a volume that was empty, and changes."""
    root = place.found.istiod.root
    client = root.pair("spiffe://cluster.local/ns/peers/sa/client")
    serial = x509.load_pem_x509_certificate(client.certificate).serial_number
    with tempfile.NamedTemporaryFile() as file:
        file.write(client.key + client.certificate)
        file.flush()
        context = ssl.create_default_context(cadata=root.pem)
        context.check_hostname = False
        context.load_cert_chain(file.name)
    async with place.found.pod(place.workloads["tproxy"]) as pod:
        volume = pod.directory / "volumes/istio-ca-crl"
        await pod.kubelet.ready()
        assert await is_let_in(pod, context)

        for version, revoked in (("2", [serial]), ("3", [serial + 1]), ("4", [serial])):
            files = Files({"ca-crl.pem": File(root.revoke(*revoked).decode())})
            write_files(volume, files, version)
            async with asyncio.timeout(10):
                while await is_let_in(pod, context) == (serial in revoked):
                    pass


async def is_let_in(pod: Pod, context: ssl.SSLContext) -> bool:
    """Return whether a client is answered, by a handshake of its own."""
    reader, writer = await asyncio.open_connection(pod.ip, 80, ssl=context)
    writer.write(b"GET / HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n")
    try:
        return (await reader.readline()).startswith(b"HTTP/1.1 200")
    except (ConnectionError, ssl.SSLError):
        return False
    finally:
        writer.close()


async def its_control_plane_comes_late(place: Place) -> None:
    """Nobody knows istiod's name at first."""
    ignorant = place.found.dns.knows_nothing_for
    async with place.found.pod(place.workloads["work"]) as pod:
        ignorant.add(pod.ip)
        await until(lambda: "xdsproxy\tstream ended stream=2" in pod.log("istio-proxy"), seconds=20)
        assert not pod.kubelet.statuses["istio-proxy"].started

        ignorant.clear()
        await pod.kubelet.until(lambda: pod.kubelet.statuses["istio-proxy"].started, 30)


TROUBLES: dict[str, Callable[[Place], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        its_agent_is_killed,
        its_envoy_is_killed,
        it_is_deleted_as_its_sidecar_starts,
        a_client_is_revoked_while_it_runs,
        its_control_plane_comes_late,
    )
}


async def run(node: Node) -> dict[str, BaseException | None]:
    """Return what went wrong in each trouble."""
    services = [PEER, *WEBS.values()]
    async with cluster(node, services) as found:
        workloads = own()
        async with found.pod(workloads["peer"], Wishes(services=(PEER.name,))) as peer:
            await peer.kubelet.ready()
            place = Place(found, peer, workloads)
            works = (trouble(place) for trouble in TROUBLES.values())
            done = await asyncio.gather(*works, return_exceptions=True)
            return dict(zip(TROUBLES, done, strict=True))


@pytest.fixture(scope="module")
def outcomes() -> dict[str, BaseException | None]:
    """All troubles at once: each waits for others most of the time."""
    with standing_on_a_node() as node:
        return asyncio.run(run(node))


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_pod_gets_over_it_when(outcomes: dict[str, BaseException | None], trouble: str) -> None:
    if outcome := outcomes[trouble]:
        raise outcome
