"""The lives of pods, from their first container to their last exit, and what was seen of them.

All that is to be proven of a pod happens once, in order, beside the lives of others; tests then
look at what was seen.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import aiohttp

from agent.demo.addresses import url
from agent.demo.observe import Reply
from tests.pod.cluster import PYTHON, Cluster, Pod, Wishes
from tests.pod.image import APPLICATION
from tests.pod.mesh import Service
from tests.pod.objects import HttpGet, Workload, application_ports, probers
from tests.pod.probing import Verdict

#: Requests a second during a rolling restart.
HTTP_LOAD: Final = ("fresh=15", "kept=20", "http2=15")
TCP_LOAD: Final = ("fresh=30",)
STATUS_PORT: Final = 15020
#: Where requests of all others go, and where those go that nobody captures.
PEER = Service("peer", "10.96.0.10", 80, 80, namespace="peers", versions="46")
PLAIN_PEER = Service(
    "peer-plain", "10.96.0.11", 8081, 8081, namespace="peers", is_plain=True, lets_plain_in=True
)
PATIENCE_SECONDS: Final = 20
#: How the injector calls probes.
KEYS: Final = {"startup": "startupz", "readiness": "readyz", "liveness": "livez"}


class Case(NamedTuple):
    """A pod, and what is known of its application."""

    name: str
    workload: Workload
    service: Service  #: that it is behind
    wishes: Wishes = Wishes()
    is_captured: bool = True  #: what it calls

    @property
    def application(self) -> str:
        """Return the container that its service means; empty for a gateway."""
        found = [each.name for each in self.workload.containers if each.name != "istio-proxy"]
        ports = [name for name in found if self.service.target_port in self.spoken(name)]
        return (ports or found or [""])[0]

    def spoken(self, container: str) -> dict[int, str]:
        """Return what a container's program serves."""
        return application_ports(self.workload, container) | dict(
            self.wishes.ports.get(container, {})
        )


class Probed(NamedTuple):
    """What the kubelet's question to a container was answered."""

    healthy: Verdict
    unhealthy: Verdict
    direct: Verdict | None  #: by the application itself, of an HTTP probe, when unhealthy


class Life:
    """What was seen of a pod."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.peer_ips: tuple[str, ...] = ()
        self.inbound: Reply | None = None  #: the peer's, from the pod
        self.outbound: Reply | None = None  #: the pod's, from the peer
        self.stranger: Verdict | None = None  #: to whom asks from the node without mutual TLS
        self.probed: dict[str, Probed] = {}
        self.scraped = ""
        self.load: dict[str, dict[str, Any]] = {}
        self.ended: Ended | None = None


class Ended(NamedTuple):
    """How a pod has ended."""

    seconds: float  #: from its deletion, or from when its work was done
    phase: str
    codes: dict[str, list[int]]  #: of each container, in order
    killed: list[str]  #: containers that SIGKILL ended
    story: str


class Load:
    """Requests of the peer's application, many a second; see tests/fakes/load.py."""

    def __init__(self, program: asyncio.subprocess.Process) -> None:
        self.program = program

    async def hear(self) -> str:
        assert self.program.stdout
        line = await asyncio.wait_for(self.program.stdout.readline(), PATIENCE_SECONDS)
        return line.decode().strip()

    async def tell(self, command: str) -> None:
        """Have it do something; return when it is done."""
        assert self.program.stdin
        self.program.stdin.write(f"{command}\n".encode())
        said = await self.hear()
        assert said.startswith(command.partition(" ")[0]), said

    async def report(self) -> dict[str, dict[str, Any]]:
        """End it; return what became of its requests."""
        await self.tell("quiet")
        assert self.program.stdin
        self.program.stdin.close()
        found: dict[str, dict[str, Any]] = json.loads(await self.hear())
        return found


@contextlib.asynccontextmanager
async def loading(peer: Pod, service: Service) -> AsyncIterator[Load]:
    """Have the peer ask a service."""
    rates = HTTP_LOAD if service.speaks_http else TCP_LOAD
    argv = (PYTHON, f"{APPLICATION}/load.py", service.addresses[0], str(service.port), *rates)
    program = await peer.process("peer").spawn(argv, stdin=asyncio.subprocess.PIPE)
    try:
        load = Load(program)
        said = await load.hear()
        assert said == "begun", said
        yield load
    finally:
        with contextlib.suppress(ProcessLookupError):
            program.terminate()
        await program.wait()


async def live(cluster: Cluster, case: Case, peer: Pod) -> Life:
    """Have a pod serve, and be replaced by another one; return what was seen."""
    life = Life(case)
    life.peer_ips = peer.placed.ips
    service = case.service
    async with cluster.pod(case.workload, case.wishes) as old:
        await old.kubelet.ready(PATIENCE_SECONDS)
        life.inbound = await answered(peer, "peer", f"http://{service.host}:{service.port}/")
        if case.application:
            target = PEER.host if case.is_captured else f"{peer.ip}:{PLAIN_PEER.port}"
            life.outbound = await answered(old, case.application, f"http://{target}/")
        life.stranger = await old.kubelet.probe(
            next(iter(old.kubelet.lasting)).container.name, HttpGet(service.target_port)
        )
        life.probed = await probe(old, case)
        life.scraped = await scrape(old)
        async with loading(peer, service) as load, cluster.pod(case.workload, case.wishes) as new:
            await new.kubelet.ready(PATIENCE_SECONDS)
            await load.tell("more 30")
            life.ended = await end(old, load)
            await load.tell("more 30")
            life.load = await load.report()
    return life


async def answered(pod: Pod, container: str, url: str) -> Reply:
    """Return the answer to a request of a program in a pod, once there is a good one."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            reply = await pod.call(container, url)
            if reply.status == 200:
                return reply


async def end(pod: Pod, load: Load | None = None) -> Ended:
    """Delete a pod; return how it has ended. Under load, that goes on until then."""
    began = time.monotonic()
    pod.kubelet.delete()
    while load and not pod.kubelet.is_over:
        await load.tell("more 5")
    await pod.kubelet.over(pod.placed.workload.grace_seconds + PATIENCE_SECONDS)
    kubelet = pod.kubelet
    return Ended(
        seconds=time.monotonic() - began,
        phase=kubelet.phase,
        codes={name: each.codes for name, each in kubelet.statuses.items()},
        killed=[each.container for each in kubelet.events if each.what == "SIGKILL"],
        story=kubelet.describe(),
    )


async def work(cluster: Cluster, case: Case) -> Life:
    """Have a job done; return what was seen."""
    life = Life(case)
    async with cluster.pod(case.workload, case.wishes) as pod:
        await pod.kubelet.ready(PATIENCE_SECONDS)
        life.scraped = await scrape(pod)
        began = time.monotonic()
        (pod.process(case.application).root / "tmp/go").touch()
        await pod.kubelet.over()
        life.ended = (await end(pod))._replace(seconds=time.monotonic() - began)
        body = pod.log(case.application)
        life.outbound = Reply(200, "", body, "")
    return life


async def probe(pod: Pod, case: Case) -> dict[str, Probed]:
    """Return what each declared probe was answered, while its application was well and not."""
    found = {}
    containers = [
        each for each in pod.placed.workload.all_containers() if each.name != "istio-proxy"
    ]
    asked = [(each, kind, one) for each in containers for kind, one in each.probes()]
    well = [await pod.kubelet.probe(each.name, one.handler) for each, _, one in asked]
    names = sorted({each.name for each, _, _ in asked})
    await turn(pod, names)
    for (container, kind, one), healthy in zip(asked, well, strict=True):
        unhealthy = await pod.kubelet.probe(container.name, one.handler)
        direct = await directly(pod, case, container.name, KEYS[kind])
        found[f"{container.name} {kind}"] = Probed(healthy, unhealthy, direct)
    await turn(pod, names)
    return found


async def turn(pod: Pod, containers: Sequence[str]) -> None:
    """Have stand-ins become unhealthy, or healthy again."""
    await asyncio.gather(*(pod.process(name).toggle_health() for name in containers))


async def directly(pod: Pod, case: Case, container: str, key: str) -> Verdict | None:
    """Return what the application itself answers to what the sidecar asks in the probe's place."""
    path = f"/app-health/{container}/{key}"
    prober = probers(case.workload).get(path, {}).get("httpGet")
    if not prober or prober.get("scheme") == "HTTPS":
        return None
    target = f"http://127.0.0.1:{prober['port']}/{prober.get('path', '').lstrip('/')}"
    reply = await pod.call(container, target)
    return Verdict(reply.status == 200, f"{reply.status} {reply.body}".strip())


async def scrape(pod: Pod) -> str:
    """Return a pod's metrics, from where its annotations say that they are; empty if nowhere."""
    annotations = pod.placed.workload.annotations
    if annotations.get("prometheus.io/scrape") != "true":
        return ""
    port, path = (annotations[f"prometheus.io/{name}"] for name in ("port", "path"))
    async with (
        aiohttp.ClientSession() as session,
        session.get(url(pod.ip, int(port), path)) as reply,
    ):
        assert reply.status == 200
        return await reply.text()


async def all_of(
    works: Mapping[str, Callable[[], Any]], at_once: int
) -> dict[str, Life | BaseException]:
    """Return what became of each, so many at a time."""
    gate = asyncio.Semaphore(at_once)

    async def one(work: Callable[[], Any]) -> Life:
        async with gate:
            life: Life = await work()
            return life

    done = await asyncio.gather(*map(one, works.values()), return_exceptions=True)
    return dict(zip(works, done, strict=True))
