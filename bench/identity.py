"""What a workload's identity costs: the first certificate, its renewal, and memory.

Method, all with a control plane that is also the CA, over TLS on loopback, in another process:

- child: wall and CPU time of the process that makes a key and its CSR for a renewal; the first one
  is a fork of the agent, and so has some 10 ms less to do;
- CSR to secret: a CSR is ready; from Envoy's request on the SDS socket until the secret arrives,
  so with the connection to the CA and the CA's own time in it;
- start: in a network namespace, `agent proxy sidecar` with ADS from a control plane, whose listener
  is one of a mesh; the CA takes 0 and 30 ms. From exec until the certificate is there, Envoy asks
  for it (lines of the agent's log) and the pod is ready; and how much earlier it was there than
  asked for, negative where Envoy had to wait (goal: never);
- memory: anonymous memory (smaps_rollup) of the same agent after its first CSR, ready and scraped
  once, and of one whose certificates would be mounted (goal: 1 MB apart);
- files: the same process asked for 10,000 `file-cert:` resources, 100 names in each request of one
  stream; and another one that a real Envoy asks for as many as it can, which is 1,024: it opens a
  stream for each, and its bootstrap leaves the cluster of the agent at Envoy's limit of requests.
"""

import asyncio
import json
import os
import random
import re
import resource
import shutil
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from shared.pod import (
    AGENT,
    ARGUMENTS,
    STATUS_PORT,
    VOLUMES,
    Started,
    compile_sources,
    enter_namespace,
    get,
    make_pod,
    server,
    started,
)

from agent.credentials.settings import TokenSettings
from agent.identity.authority import Csr
from agent.identity.client import CertificateAuthority
from agent.identity.keys import KeySettings
from agent.identity.process import spawn
from agent.identity.renewal.run import Clock, Workload
from agent.identity.secret import KeyPair
from agent.identity.server import Recorder, SdsServer
from agent.identity.settings import Address, AuthoritySettings, RotationSettings
from tests.envoy.identity_envoy import TLS, bootstrap, cluster, mesh_envoy, secret, tcp
from tests.fakes.ca import Root, write_files
from tests.fakes.sds_client import SdsClient, sds_client

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
SHARED = Path(__file__).with_name("shared")
CA_PORT = 15012
SERVER_NAME = "istiod.istio-system.svc"
SPIFFE_ID = "spiffe://cluster.local/ns/default/sa/default"
KINDS = {"RSA 2048": KeySettings(SPIFFE_ID), "ECDSA P-256": KeySettings(SPIFFE_ID, elliptic=True)}
ISSUED = re.compile(r"^(\S+)Z\t.*\tcertificate issued ", re.MULTILINE)
ASKED = re.compile(r"^(\S+)Z\t.*> request meaning=SUBSCRIBE names=\('default',\)", re.MULTILINE)
FILES, NAMES_PER_REQUEST, STREAMS = 10_000, 100, 1_024
CA_MILLISECONDS = (0, 30)
MEMORY_RUNS = 3
ELLIPTIC = {"ECC_SIGNATURE_ALGORITHM": "ECDSA"}
SOCKET = "var/run/secrets/workload-spiffe-uds/socket"


def summary(milliseconds: list[float]) -> str:
    return f"median {statistics.median(milliseconds):6.1f} ms   max {max(milliseconds):6.1f} ms"


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


async def measure_child() -> None:
    for name, settings in KINDS.items():
        wall, cpu = [], []
        for _ in range(RUNS):
            before, began = children_cpu(), time.perf_counter()
            await spawn(settings).result()
            wall.append((time.perf_counter() - began) * 1000)
            cpu.append(children_cpu() - before)
        print(f"child, {name:12} {summary(wall)}   CPU {statistics.median(cpu):.0f} ms")


@asynccontextmanager
async def workload(folder: Path, csr: Csr) -> AsyncIterator[SdsClient]:
    """Serve one workload's secrets, whose first CSR is ready."""

    async def ready() -> Csr:
        return csr

    async def get(_: str) -> KeyPair:
        issued = await made.get()
        return KeyPair(issued.chain, issued.key)

    def nothing(*_: object, **__: object) -> None:
        """Count nothing."""

    address = Address(f"localhost:{CA_PORT}", SERVER_NAME, tls=True, send_token=True)
    settings = AuthoritySettings(
        (address,), root=str(folder / "root-cert.pem"), token=TokenSettings(str(folder / "token"))
    )
    made = Workload(
        RotationSettings(),
        CertificateAuthority(settings, count=nothing, rng=random.random),
        make_csr=ready,
        renewed=nothing,
        rng=random.random,
        clock=Clock(),
    )
    sds = SdsServer(get, None, Recorder(nothing, nothing, nothing))
    path = str(folder / "sds")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        async with sds.serving(path, tasks), sds_client(path) as client:
            yield client
        running.cancel()


async def measure_secret(folder: Path) -> None:
    (folder / "token").write_text("token")
    milliseconds = []
    for _ in range(RUNS):
        csr = await spawn(KINDS["ECDSA P-256"]).result()
        async with workload(folder, csr) as client:
            call = client.open()
            began = time.perf_counter()
            await call.fetch("default")
            milliseconds.append((time.perf_counter() - began) * 1000)
    print(f"CSR to secret, with the CA  {summary(milliseconds)}   (goal 20 without the CA)")


@contextmanager
def pod(root: Path, changes: Mapping[str, str]) -> Iterator[Started]:
    """Run an agent in a folder that nobody has used, with ADS and the CA."""
    folder = make_pod(root / "pod")
    shutil.copy(root / "root-cert.pem", folder / "var/run/secrets/istio")
    arguments = (*ARGUMENTS, "--log_output_level=default:info,cache:debug")
    with started([AGENT, *arguments], folder, changes) as run:
        yield run
    shutil.rmtree(folder)


def measure_start(root: Path, ca_milliseconds: int) -> None:
    for name, changes in (("RSA 2048", {}), ("ECDSA P-256", ELLIPTIC)):
        ready, issued, asked = [], [], []
        for _ in range(RUNS):
            with pod(root, changes) as run:
                ready.append(run.milliseconds)
                began = time.time() - time.perf_counter() + run.began
                log = (root / "pod" / "stdout").read_text()
                for pattern, found in ((ISSUED, issued), (ASKED, asked)):
                    (line,) = pattern.findall(log)[:1]  # or the pod would not be ready
                    at = datetime.fromisoformat(f"{line}+00:00").timestamp()
                    found.append((at - began) * 1000)
        earlier = [ask - there for ask, there in zip(asked, issued, strict=True)]
        print(f"start, {name}, CA {ca_milliseconds} ms: certificate {summary(issued)}")
        print(f"  ready {summary(ready)}   asked for {summary(asked)}")
        print(
            f"  there before it was asked for: {sum(each >= 0 for each in earlier)} of {RUNS},"
            f" by {statistics.median(earlier):.1f} ms, at worst {min(earlier):.1f}"
        )


def memory(pid: int) -> tuple[float, float]:
    """Return anonymous memory and RSS, in MB of a million bytes."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kilobytes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", rollup, re.MULTILINE))
    return int(kilobytes["Anonymous"]) * 1024 / 1e6, int(kilobytes["Rss"]) * 1024 / 1e6


def grown(pid: int, before: tuple[float, float]) -> str:
    anonymous, rss = (now - then for now, then in zip(memory(pid), before, strict=True))
    return f"anonymous {anonymous:+.1f} MB, RSS {rss:+.1f} MB"


def measure_memory(root: Path) -> None:
    """Compare agents that are the same but for a CSR."""
    mounted = {"FILE_MOUNTED_CERTS": "true", "XDS_ROOT_CA": "var/run/secrets/istio/root-cert.pem"}
    kinds = {"without a CA": mounted, "after its first CSR": {}}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for _ in range(MEMORY_RUNS):
        for name, changes in kinds.items():
            with pod(root, changes) as run:
                log = root / "pod" / "stdout"
                while not (changes or ISSUED.search(log.read_text())):
                    time.sleep(0.005)
                get(STATUS_PORT, "/stats/prometheus")
                time.sleep(1)
                found[name].append(memory(run.process.pid))
    for name, each in found.items():
        anonymous, rss = (statistics.median(values) for values in zip(*each, strict=True))
        print(f"agent {name:20} anonymous {anonymous:.2f} MB, RSS {rss:.2f} MB")


def write_pairs(folder: Path, count: int) -> list[str]:
    """Write so many pairs, each in a directory of its own; return their resource names."""
    root = Root()
    pairs = [root.pair(f"{SPIFFE_ID}/{number}") for number in range(100)]
    names = []
    for number in range(count):
        place = folder / "certs" / str(number)
        write_files(place, pairs[number % len(pairs)])
        names.append(f"file-cert:{place}/cert-chain.pem~{place}/key.pem")
    return names


async def measure_files(pid: int, path: str, folder: Path) -> None:
    names = write_pairs(folder, FILES)
    async with sds_client(path) as client:
        before, began = memory(pid), time.perf_counter()
        call = client.open()
        reply = await call.fetch(*names[:NAMES_PER_REQUEST])
        for end in range(2 * NAMES_PER_REQUEST, FILES + 1, NAMES_PER_REQUEST):
            await call.acknowledge(reply, *names[:end])
            reply = await call.receive()
        seconds = time.perf_counter() - began
        await asyncio.sleep(1)
        print(
            f"{FILES} file-cert resources on one stream, in {seconds:.1f} s: "
            f"{grown(pid, before)} (goal +40 RSS)"
        )
        began = time.perf_counter()
        write_files(folder / "certs" / "0", Root().pair(SPIFFE_ID))
        await call.receive()
        print(f"one of them changed: pushed after {(time.perf_counter() - began) * 1000:.0f} ms")


async def measure_streams(pid: int, path: Path, folder: Path) -> None:
    names = write_pairs(folder, STREAMS)
    clusters = []
    for name in names:
        common = {"tls_certificate_sds_secret_configs": [secret(name)]}
        config = {"@type": f"{TLS}.UpstreamTlsContext", "common_tls_context": common}
        socket = {"name": "envoy.transport_sockets.tls", "typed_config": config}
        clusters.append(cluster(name, tcp("127.0.0.1"), transport_socket=socket))
    config = bootstrap(folder, path, [], clusters)
    # Each stream begins with the node, which has kilobytes in a real pod.
    started_from = json.loads((folder / "etc/istio/proxy/envoy-rev.json").read_text())
    config["node"] = started_from["node"]
    before = memory(pid)
    async with mesh_envoy(folder, config) as envoy:
        await asyncio.sleep(1)
        active = await envoy.admin("stats?filter=cluster.sds-grpc.upstream_rq_active$")
        print(
            f"{STREAMS} of them by an Envoy, {active.split()[-1]} streams: "
            f"{grown(pid, before)} (goal +40 RSS), nearly all of it gRPC's"
        )


def main() -> None:
    enter_namespace()
    compile_sources()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with TemporaryDirectory(prefix="bench-identity-", dir=VOLUMES) as name:
        root = Path(name)
        asyncio.run(measure_child())
        program = str(SHARED / "control_plane.py")
        for milliseconds in CA_MILLISECONDS:
            with server(program, name, str(root / "unused"), str(milliseconds)):
                measure_start(root, milliseconds)
        with server(program, name, str(root / "unused")):
            asyncio.run(measure_secret(root))
            measure_memory(root)
            with pod(root, ELLIPTIC) as run:
                folder = root / "pod"
                asyncio.run(measure_files(run.process.pid, str(folder / SOCKET), folder))
            with pod(root, ELLIPTIC) as run:
                asyncio.run(measure_streams(run.process.pid, folder / SOCKET, folder))


if __name__ == "__main__":
    main()
