"""What several benches need of a pod: its network namespace, its files, its processes."""

import compileall
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import envoy
from pyroute2 import IPRoute

AGENT = str(Path(sys.executable).with_name("agent"))
ENVOY = str(Path(envoy.__file__).with_name("_bin") / "envoy")
#: A pod's volume for generated files is in memory; a disk may take milliseconds to rename a file.
VOLUMES = "/dev/shm"  # noqa: S108 - the one directory of every Linux that is in memory
ROOT = Path(__file__).parents[2]
PACKAGES = ("agent", "bootstrap", "iptables")
ADDRESS = "10.0.0.2"
ADMIN_PORT, STATUS_PORT, HEALTH_PORT = 15000, 15020, 15021
CLONE_NEWNET = 0x40000000
PR_SET_CHILD_SUBREAPER = 36
#: From a pod that istiod injected.
ARGUMENTS = (
    *("proxy", "sidecar", "--domain", "default.svc.cluster.local"),
    *("--proxyLogLevel=warning", "--proxyComponentLogLevel=misc:error"),
    "--log_output_level=default:info",
)
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PILOT_CERT_PROVIDER": "istiod",
    "CA_ADDR": "localhost:15012",
    "POD_NAME": "hello-5d4b8f6c7d-x2x9k",
    "POD_NAMESPACE": "default",
    "INSTANCE_IP": ADDRESS,
    "SERVICE_ACCOUNT": "default",
    "HOST_IP": "10.0.0.1",
    "ISTIO_CPU_LIMIT": "2",
    "PROXY_CONFIG": json.dumps({"binaryPath": ENVOY, "discoveryAddress": "localhost:15012"}),
    "ISTIO_META_POD_PORTS": '[\n    {"name":"http","containerPort":8080}\n]',
    "ISTIO_META_APP_CONTAINERS": "hello",
    "ISTIO_META_CLUSTER_ID": "Kubernetes",
    "ISTIO_META_NODE_NAME": "node",
    "ISTIO_META_INTERCEPTION_MODE": "REDIRECT",
    "ISTIO_META_WORKLOAD_NAME": "hello",
    "ISTIO_META_MESH_ID": "cluster.local",
    "TRUST_DOMAIN": "cluster.local",
    "CLOUD_PLATFORM": "none",
    #: The figures of a pod under a policy are had by setting it for the bench.
    "COMPLIANCE_POLICY": os.environ.get("COMPLIANCE_POLICY", ""),
}
FILES = {
    "etc/istio/pod/labels": 'app="hello"\nservice.istio.io/canonical-name="hello"\n',
    "etc/istio/pod/annotations": 'istio.io/rev="default"\n',
    "var/run/secrets/tokens/istio-token": "header.payload.signature",
}
FOLDERS = (
    "etc/istio/proxy",
    "var/lib/istio/data",
    "var/run/secrets/istio",
    "var/run/secrets/workload-spiffe-uds",
    "var/run/secrets/credential-uds",
)
PATIENCE_SECONDS = 20


def enter_namespace() -> None:
    """Move this process into a network namespace with a pod's address; without root, exit.

    From then on it also adopts, and so can reap, what its children leave behind.
    """
    if os.geteuid() != 0:
        print("skipped: needs root, for a network namespace in which the usual ports are free")
        sys.exit(0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) or libc.prctl(PR_SET_CHILD_SUBREAPER, 1):
        raise OSError(ctypes.get_errno(), "cannot make a network namespace")
    with IPRoute() as kernel:
        kernel.link("set", index=1, state="up")
        kernel.addr("add", index=1, address=ADDRESS, prefixlen=32)


def compile_sources() -> None:
    """Make the byte code that every image has; the environment may keep Python from writing it."""
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=1)


def wall_milliseconds(argv: Sequence[str]) -> float:
    """Return the time from spawn to exit of a program that must succeed."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    started = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=quiet)
    _, status = os.waitpid(pid, 0)
    elapsed = (time.perf_counter() - started) * 1000
    if status:
        raise SystemExit(f"{' '.join(argv)}: exit status {os.waitstatus_to_exitcode(status)}")
    return elapsed


def make_pod(folder: Path) -> Path:
    """Lay out the volumes of a pod in an empty folder, and return it."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


class Started:
    """A process that makes port 15021 answer 200, and how long that took."""

    def __init__(self, process: subprocess.Popen[bytes], began: float, milliseconds: float) -> None:
        self.process = process
        self.began = began  #: by CLOCK_MONOTONIC
        self.milliseconds = milliseconds

    def children(self) -> list[int]:
        """Return the process ids of its children."""
        pid = self.process.pid
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(child) for child in text.split()]


@contextmanager
def started(
    argv: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None
) -> Iterator[Started]:
    """Run a program in a pod's folder until it is ready, then the block, then kill its family.

    Its output goes to files named `stdout` and `stderr` in the folder.
    """
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        before = time.perf_counter()
        process = subprocess.Popen(
            argv, cwd=folder, env={**ENVIRONMENT, **(environ or {})}, stdout=out, stderr=err
        )
    family = [process.pid]
    try:
        while get(HEALTH_PORT, "/healthz/ready")[0] != 200:
            if process.poll() is not None or time.perf_counter() - before > PATIENCE_SECONDS:
                written = (folder / "stdout").read_text() + (folder / "stderr").read_text()
                raise SystemExit(f"{argv[0]} did not become ready; it wrote:\n{written[-3000:]}")
            time.sleep(0.001)
        run = Started(process, before, (time.perf_counter() - before) * 1000)
        family += run.children()
        yield run
    finally:
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        for pid in family[1:]:
            with suppress(ChildProcessError):  # the agent has reaped it before it died itself
                os.waitpid(pid, 0)


def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Return status and body of a request to 127.0.0.1; 0 where there was no answer."""
    request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(request.encode())
            while data := connection.recv(65536):
                received += data
    except OSError:
        return 0, ""
    head, _, body = received.decode(errors="replace").partition("\r\n\r\n")
    return int(head[9:12] or 0), body


def xds_dials() -> int:
    """Return how often Envoy has dialled the socket of its control plane."""
    _, body = get(ADMIN_PORT, "/stats?filter=xds-grpc.*upstream_cx_total$")
    found = re.search(r"upstream_cx_total: (\d+)", body)
    return int(found[1]) if found else 0


@contextmanager
def server(*argv: str) -> Iterator[None]:
    """Run a Python program that first says `listening`, and kill it after the block."""
    process = subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE)
    with process:
        try:
            if not process.stdout or process.stdout.readline() != b"listening\n":
                raise SystemExit(f"{argv[0]} did not start")
            yield
        finally:
            process.kill()
