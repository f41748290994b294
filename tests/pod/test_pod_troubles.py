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

from tests.fakes.ca import Root
from tests.pod import cgroups
from tests.pod.cases import own
from tests.pod.cluster import PYTHON, Cluster, Pod, Wishes, cluster
from tests.pod.containers import Process, write_files
from tests.pod.kubelet import Kubelet
from tests.pod.lives import PEER, answered
from tests.pod.mesh import Service
from tests.pod.node import Node, standing_on_a_node
from tests.pod.objects import Container, Exec, Workload
from tests.pod.volumes import File, Files
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

WEBS = {
    name: Service(name, f"10.96.1.{number}", 80, 80)
    for number, name in enumerate(
        ("agent-killed", "envoy-killed", "foreign-user", "little-memory"), 1
    )
}
DIED = "Envoy died"
#: Enough for an agent and an Envoy, and little to fill up.
LITTLE_MEGABYTES = 256
#: Of OpenShift, which gives every namespace users of its own; no image knows them.
FOREIGN_USER = 1000660000
#: Until a sidecar has started, from the beginning of its container, on a machine with time.
#: Programs of applications. The first file is how a stand-in says that it has begun.
AT_ONCE = ("touch", "/tmp/begun")  # noqa: S108 - in a container
CRASH = ("sh", "-c", "touch /tmp/begun; exit 3")
QUIT = ("pilot-agent", "request", "--debug-port=15020", "POST", "quitquitquit")
START_MILLISECONDS = (0, 100, 200, 300, 400, 500)


class Place(NamedTuple):
    """A cluster with a peer."""

    found: Cluster
    peer: Pod
    workloads: dict[str, Workload]

    async def serves_and_calls(self, pod: Pod, application: str = "web") -> None:
        """Return once requests come in and go out."""
        (name,) = pod.wishes.services
        await answered(self.peer, "peer", f"http://{WEBS[name].host}/")
        await answered(pod, application, f"http://{PEER.host}/")


def changed(workload: Workload, *containers: Container) -> Workload:
    """Return a workload with these containers instead of those of their names."""
    by_name = {each.name: each for each in containers}
    return workload._replace(
        init_containers=tuple(by_name.get(each.name, each) for each in workload.init_containers),
        containers=tuple(by_name.get(each.name, each) for each in workload.containers),
    )


def children(pid: int) -> dict[str, int]:
    """Return the children of a process by their commands."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {Path(f"/proc/{each}/comm").read_text().strip(): int(each) for each in found}


def kill_first(pid: int) -> None:
    """Have the kernel choose a process, when there is too little memory."""
    Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


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


async def its_envoy_is_killed_for_want_of_memory(place: Place) -> None:
    """By the kernel, at the container's limit; the agent says so."""
    workload = place.workloads["hold"]
    proxy = workload.container("istio-proxy")
    limits = {**proxy.resources["limits"], "memory": f"{LITTLE_MEGABYTES}Mi"}
    workload = changed(workload, proxy._replace(resources={"limits": limits}))
    async with place.found.pod(workload, Wishes(services=("little-memory",))) as pod:
        await pod.kubelet.ready()
        if not any(cgroups.of_name(pod.placed.uid)):
            pytest.skip("memory cannot be limited here")
        process = pod.process("istio-proxy")
        kill_first(children(process.pid)["envoy"])
        hog = f"bytearray(b'x') * ({LITTLE_MEGABYTES} << 20)"
        assert (await process.run([PYTHON, "-c", hog]))[0] != 0
        await pod.kubelet.until(lambda: pod.kubelet.statuses["istio-proxy"].restarts == 1)
        await pod.kubelet.ready()
        await place.serves_and_calls(pod)

    assert pod.kubelet.statuses["istio-proxy"].codes == [128 + signal.SIGKILL]
    assert "memory" in next(line for line in pod.log("istio-proxy").splitlines() if DIED in line)


async def it_is_deleted_as_its_sidecar_starts(place: Place) -> None:
    """From when the interpreter has not asked for signals, and the first process gets no others."""
    for milliseconds in START_MILLISECONDS:
        await deleted_as_its_sidecar_starts(place, milliseconds)


async def deleted_as_its_sidecar_starts(place: Place, milliseconds: int) -> None:
    async with place.found.pod(place.workloads["hold"]) as pod:
        kubelet = pod.kubelet
        await kubelet.until(lambda: kubelet.statuses["istio-proxy"].process)
        command = Path(f"/proc/{pod.process('istio-proxy').pid}/cmdline")
        await until(lambda: b"python" in command.read_bytes())

        await asyncio.sleep(milliseconds / 1000)  # whatever is going on by then
        kubelet.delete()
        await kubelet.over(20)

    assert kubelet.statuses["istio-proxy"].codes == [0], (milliseconds, kubelet.describe())


async def a_user_runs_it_whom_its_image_does_not_know(place: Place) -> None:
    """And one of its applications has a hook that hangs: it can still call out, until its end."""
    workload = place.workloads["peer"]
    init, proxy, peer = map(workload.container, ("istio-init", "istio-proxy", "peer"))
    rules = tuple(str(FOREIGN_USER) if each == "1337" else each for each in init.args)
    workload = changed(
        workload,
        init._replace(args=rules),
        proxy._replace(security=proxy.security._replace(uid=FOREIGN_USER, gid=0)),
        peer._replace(pre_stop=Exec(("sleep", "1000"))),
    )
    workload = workload._replace(grace_seconds=4)
    async with place.found.pod(workload, Wishes(services=("foreign-user",))) as pod:
        kubelet = pod.kubelet
        await kubelet.ready()
        await place.serves_and_calls(pod, "peer")

        kubelet.delete()
        await kubelet.until(lambda: "istio-proxy pre-stop hook done" in happened(kubelet))
        await answered(pod, "peer", f"http://{PEER.host}/")
        await kubelet.over(20)

    assert happened(kubelet)[-5:] == [
        "istio-proxy SIGTERM",
        "peer pre-stop hook failed",
        "peer SIGTERM",
        "istio-proxy exit 0",
        "peer exit 0",
    ]


def happened(kubelet: Kubelet) -> list[str]:
    """Return what happened to containers, in order."""
    return [f"{each.container} {each.what}" for each in kubelet.events if each.container]


async def nothing_of_its_control_plane_is_trusted_at_first(place: Place) -> None:
    """Neither its certificate by the pod, nor the pod's token by it; both get better."""
    async with place.found.pod(place.workloads["work"]) as pod:
        volumes = pod.directory / "volumes"
        root, token = (
            (volumes / each).read_text()
            for each in ("istiod-ca-cert/root-cert.pem", "istio-token/istio-token")
        )
        other = Files({"root-cert.pem": File(Root().pem)})
        write_files(volumes / "istiod-ca-cert", other, "2")
        write_files(volumes / "istio-token", Files({"istio-token": File("e30.e30.e30")}), "2")

        await until(lambda: "code=UNAVAILABLE" in pod.log("istio-proxy"), seconds=20)
        write_files(volumes / "istiod-ca-cert", Files({"root-cert.pem": File(root)}), "3")
        await until(lambda: "code=UNAUTHENTICATED" in pod.log("istio-proxy"), seconds=20)
        assert not pod.kubelet.statuses["istio-proxy"].started

        write_files(volumes / "istio-token", Files({"istio-token": File(token)}), "3")
        await pod.kubelet.until(lambda: pod.kubelet.statuses["istio-proxy"].started, 30)


async def there_is_nowhere_to_write(place: Place) -> None:
    """It says so, and what to mount."""
    workload = place.workloads["work"]
    proxy = workload.container("istio-proxy")
    mounts = tuple(each for each in proxy.mounts if each.volume != "istio-envoy")
    async with place.found.pod(changed(workload, proxy._replace(mounts=mounts))) as pod:
        status = pod.kubelet.statuses["istio-proxy"]
        await pod.kubelet.until(lambda: status.codes)

    assert status.codes == [255]
    assert "mount a writable volume at etc/istio/proxy" in pod.log("istio-proxy")


async def its_work_takes_no_time(place: Place) -> None:
    """With either sidecar; an ordinary one is not there yet, and is to be ended all the same."""
    native, classic = (
        changed(each, each.containers[0]._replace(command=AT_ONCE))
        for each in (place.workloads["work"], place.workloads["work-classic"])
    )
    async with place.found.pod(native) as pod, place.found.pod(classic) as other:
        await pod.kubelet.over(20)
        await other.kubelet.until(lambda: other.kubelet.statuses["istio-proxy"].ready)
        code, said = await other.process("istio-proxy").run(QUIT)
        assert code == 0, said
        await other.kubelet.over(20)

    for each in (pod, other):
        codes = {name: status.codes for name, status in each.kubelet.statuses.items()}
        assert codes == {"istio-init": [0], "istio-proxy": [0], "work": [0]}
        assert each.kubelet.phase == "Succeeded"


async def one_of_its_applications_crashes_again_and_again(place: Place) -> None:
    """The sidecar stays for the other one."""
    workload = place.workloads["peer"]
    crashing = workload.container("peer")._replace(name="bad", command=CRASH, readiness=None)
    workload = workload._replace(containers=(*workload.containers, crashing))
    async with place.found.pod(workload) as pod:
        kubelet = pod.kubelet
        await kubelet.until(lambda: kubelet.statuses["bad"].codes == [3, 3])
        await kubelet.until(lambda: kubelet.statuses["peer"].ready)
        await answered(pod, "peer", f"http://{PEER.host}/")
        kubelet.delete()
        await kubelet.over()

    assert kubelet.statuses["istio-proxy"].codes == [0]
    assert kubelet.statuses["peer"].codes == [0]


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
        its_envoy_is_killed_for_want_of_memory,
        it_is_deleted_as_its_sidecar_starts,
        a_client_is_revoked_while_it_runs,
        its_control_plane_comes_late,
        a_user_runs_it_whom_its_image_does_not_know,
        nothing_of_its_control_plane_is_trusted_at_first,
        there_is_nowhere_to_write,
        its_work_takes_no_time,
        one_of_its_applications_crashes_again_and_again,
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
