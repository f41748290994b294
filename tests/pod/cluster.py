"""A cluster for tests: one node, an istiod, a nameserver, and pods from manifests.

Test equipment, and no model of Kubernetes beyond what these pods meet. Whoever has a cluster stands
on its node: sockets of this thread are the node's.
"""

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from agent.demo.observe import Reply, parse_reply
from tests.fakes.ca import Root
from tests.pod import cgroups, image
from tests.pod.cluster_dns import ClusterDns, cluster_dns
from tests.pod.containers import Process, make_volumes
from tests.pod.containers import Runtime as PodRuntime
from tests.pod.environment import Placed
from tests.pod.image import APPLICATION, PREFIX, Image
from tests.pod.istiod import Istiod, Tokens, serving
from tests.pod.kubelet import Kubelet, running
from tests.pod.mesh import Mesh, Service
from tests.pod.node import ADDRESSES, NAME, RESOURCES, Node
from tests.pod.objects import Container, Workload, application_ports, parse_security
from tests.pod.volumes import Sources
from tests.waiting import until

ISTIOD: Final = "istiod.istio-system.svc"
#: The manifests of the reference: an istiod of another name.
OTHER_ISTIOD: Final = "foo"
ISTIOD_PORTS: Final = {15012: ISTIOD, 123: OTHER_ISTIOD}
SIDECAR: Final = ("istio-init", "istio-validation", "istio-proxy", "istio-cni")
#: Config maps of root certificates that every namespace has, and their one file.
ROOTS: Final = {"istio-ca-root-cert": "root-cert.pem", "kube-root-ca.crt": "ca.crt"}
PYTHON: Final = f"{PREFIX}/bin/python"
#: Where a client finds nothing else to write to: in memory, as a pod's volumes often are.
VOLUMES: Final = "/dev/shm"  # noqa: S108 - the one directory of every Linux that is in memory


class Wishes(NamedTuple):
    """What a test wants of a pod beyond its manifest."""

    services: tuple[str, ...] = ()  #: that it is behind
    versions: str = "4"  #: of IP, its main one first
    ports: Mapping[str, Mapping[int, str]] = {}  #: more of them to serve, by container
    environ: Mapping[str, str] = {}  #: of the stand-in


class Pod:
    """A pod that runs."""

    def __init__(self, placed: Placed, kubelet: Kubelet, directory: Path, wishes: Wishes) -> None:
        self.placed = placed
        self.kubelet = kubelet
        self.directory = directory
        self.wishes = wishes

    @property
    def ip(self) -> str:
        return self.placed.ip

    def process(self, container: str) -> Process:
        """Return a container that runs."""
        found: Process = self.kubelet.process(container)
        return found

    async def call(self, container: str, url: str) -> Reply:
        """Return what a program in a container is answered."""
        argv = [PYTHON, "-I", "-S", f"{APPLICATION}/client.py", url]
        code, output = await self.process(container).run(argv)
        assert code == 0, output
        return parse_reply(output)

    def log(self, container: str) -> str:
        """Return what a container has written."""
        path = self.directory / f"{container}.log"
        return path.read_text(errors="replace") if path.exists() else ""


class Cluster:
    """What there is; make it by `cluster`."""

    def __init__(self, node: Node, istiod: Istiod, directory: Path) -> None:
        self.node = node
        self.istiod = istiod
        self.directory = directory
        self.agent = image.agent_image(directory / "agent")
        self.application = image.application_image(self.agent, directory / "application")
        self.services: dict[str, Service] = {}
        self.dns = ClusterDns({})
        self.behind_gateway = ""
        self._pods: list[Pod] = []
        self._numbers = count(1)
        self.config_maps: dict[tuple[str, str], Mapping[str, str]] = {
            (namespace, name): {file: istiod.root.pem}
            for namespace in ("default", "peers")
            for name, file in ROOTS.items()
        }
        self.secrets: dict[tuple[str, str], Mapping[str, str]] = {}

    def serve(self, *services: Service) -> None:
        """Have services; their endpoints are the pods behind them that are ready."""
        self.services.update({each.name: each for each in services})
        self._push()

    def _push(self) -> None:
        """Tell Envoys of endpoints that come and go."""
        services = tuple(
            service._replace(
                endpoints=tuple(
                    ip
                    for pod in self._pods
                    if service.name in pod.wishes.services and pod.kubelet.is_endpoint
                    for ip in pod.placed.ips
                )
            )
            for service in self.services.values()
        )
        mesh = Mesh(services, behind_gateway=self.behind_gateway)
        if mesh != self.istiod.mesh:
            self.istiod.change(mesh)

    @contextlib.asynccontextmanager
    async def pod(self, workload: Workload, wishes: Wishes = Wishes()) -> AsyncIterator[Pod]:  # noqa: B008 - immutable
        """Run a pod of a workload while the block does."""
        number = next(self._numbers)
        name = workload.name if workload.kind == "Pod" else f"{workload.name}-{number}"
        directory = self.directory / f"{number}-{workload.name}"
        directory.mkdir()
        async with self.node.sandbox(workload.sysctls, wishes.versions) as sandbox:
            ip, other_ip = (*sandbox.ips, "")[:2]
            node_ip, other_node_ip = (*(ADDRESSES[v] for v in wishes.versions), "")[:2]
            placed = Placed(
                name=name,
                uid=str(uuid.uuid4()),
                workload=workload,
                ip=ip,
                node_name=NAME,
                node_ip=node_ip,
                node_resources=RESOURCES,
                other_ip=other_ip,
                other_node_ip=other_node_ip,
            )
            sources = Sources(self.config_maps, self.secrets, self.istiod.tokens.make)
            runtime = PodRuntime(
                placed,
                sandbox.inside.holder,
                node_ip,
                lambda container: self._image(workload, container, wishes),
                directory,
                make_volumes(placed, sources, directory / "volumes"),
            )
            await self._capture(workload, runtime)
            kubelet = Kubelet(workload, ip, runtime, self._push)
            made = Pod(placed, kubelet, directory, wishes)
            self._pods.append(made)
            try:
                async with running(kubelet):
                    yield made
            finally:
                self._pods.remove(made)
                self._push()
                await remove_groups(placed.uid)

    def _image(self, workload: Workload, container: Container, wishes: Wishes) -> Image:
        if container.name in SIDECAR:
            return self.agent
        spoken = application_ports(workload, container.name) | dict(
            wishes.ports.get(container.name, {})
        )
        ports = " ".join(f"{port}={kind}" for port, kind in spoken.items())
        environ = {**self.application.environ, "APPLICATION_PORTS": ports, **wishes.environ}
        return self.application._replace(environ=environ)

    async def _capture(self, workload: Workload, runtime: PodRuntime) -> None:
        """Set a pod's capture up from the node, as the CNI plugin does where pods only validate."""
        if "istio-validation" not in (each.name for each in workload.init_containers):
            return
        validation = workload.container("istio-validation")
        plugin = validation._replace(
            name="istio-cni",
            args=cni_arguments(workload.annotations),
            security=parse_security(
                {"runAsUser": 0, "runAsGroup": 0, "capabilities": {"add": ["NET_ADMIN"]}}
            ),
        )
        process = await runtime.start(plugin, 0)
        assert await process.wait() == 0, process.log.read_text()


async def remove_groups(name: str) -> None:
    """Remove a pod's control groups, which the kernel keeps until nobody is in them."""
    for group in cgroups.of_name(name):
        await until(lambda: not (group / "cgroup.procs").read_text())  # noqa: B023 - called at once
        group.rmdir()


def cni_arguments(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the CNI plugin makes of a pod's annotations."""
    prefix = "traffic.sidecar.istio.io"
    ranges = annotations.get(f"{prefix}/includeOutboundIPRanges", "*")
    excluded = annotations.get(f"{prefix}/excludeInboundPorts", "")
    return (
        *("istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-i", ranges),
        *("-m", annotations.get("sidecar.istio.io/interceptionMode", "REDIRECT")),
        *("-b", annotations.get(f"{prefix}/includeInboundPorts", "*")),
        *("-d", ",".join(filter(None, ("15090,15021", excluded)))),
    )


def names(services: Sequence[Service]) -> dict[str, Sequence[str]]:
    """Return what the nameserver knows."""
    istiod = tuple(ADDRESSES.values())
    known = {each.host: each.addresses for each in services}
    return {f"{ISTIOD}.cluster.local": istiod, f"{OTHER_ISTIOD}": istiod, **known}


@contextlib.contextmanager
def new_directory() -> Iterator[Path]:
    """Yield a directory that every user may enter, and remove it."""
    made = Path(tempfile.mkdtemp(prefix="mesh-agent-cluster-", dir=VOLUMES))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made)


@contextlib.asynccontextmanager
async def cluster(made: Node, services: Sequence[Service]) -> AsyncIterator[Cluster]:
    """Yield a cluster without pods on a node; nothing of it is left afterwards."""
    with new_directory() as directory:
        istiod = Istiod(Root(), Tokens())
        found = Cluster(made, istiod, directory)
        async with (
            serving(istiod, ISTIOD_PORTS, ADDRESSES["4"], f"[{ADDRESSES['6']}]"),
            cluster_dns(names(services), *ADDRESSES.values()) as found.dns,
        ):
            found.serve(*services)
            yield found
