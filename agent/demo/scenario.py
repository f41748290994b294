"""What the demo does with a pod, step by step, and what must be seen.

The steps know nothing of how they are carried out: they ask a `Pod`, and say in a few words what
was found.

Source: bootstrap.md section 6.5; status-lifecycle.md sections 5.3 and 9; traffic-capture.md
section 6.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from agent.demo.addresses import CABLE, Family, url
from agent.demo.manifest import APPLICATION_PORT, PROBE_PATH, READINESS_PATH
from agent.demo.observe import Reply

#: Who asks: the kubelet or another pod; the application; a process of the sidecar's user.
Client = Literal["node", "application", "sidecar"]

OUTBOUND_PORT: Final = 15001
INBOUND_PORT: Final = 15006
STATUS_PORT: Final = 15020
HEALTH_PORT: Final = 15021
SLOW_PATH: Final = "/slow?seconds=3"
READY: Final = 200
#: The source of Envoy's connections to the application. Source: traffic-capture.md section 6.2.
PASSTHROUGH: Final[dict[Family, str]] = {"IPv4": "127.0.0.6", "IPv6": "::6"}


class Pod(Protocol):
    """A pod on its node. Every call returns when what it names has happened."""

    def capture(self) -> str:
        """Run the init container; return how it ended."""

    def start(self) -> str:
        """Start the sidecar and run its postStart hook; return how the hook ended."""

    def privileges(self) -> str:
        """Return what the sidecar's processes may do."""

    def serve(self) -> str:
        """Start the application, and a server on the node; return what they said."""

    def get(self, client: Client, target: str) -> Reply:
        """Return the answer to a request on a new connection."""

    def get_until(self, client: Client, target: str, wanted: Callable[[Reply], bool]) -> Reply:
        """Return the first wanted answer of a repeated request; the last one if none came."""

    def accepted(self, port: int) -> int:
        """Return how many connections Envoy has accepted on a port, by its own counters."""

    def begin(self, name: str, client: Client, target: str) -> None:
        """Send a request and return when it has arrived; `finish` returns its answer."""

    def finish(self, name: str) -> Reply:
        """Return the answer to a request begun earlier."""

    def terminate(self) -> None:
        """Send SIGTERM to the agent."""

    def ended(self) -> str:
        """Return how the agent ended."""


class Step(NamedTuple):
    """Something to do, and what must be seen."""

    name: str
    expected: str
    observe: Callable[[Pod], str]


#: From an empty pod to a ready one; each step needs those before it.
START_UP: Final = (
    Step("istio-init: agent istio-iptables", "exit 0", lambda pod: pod.capture()),
    Step("istio-proxy: agent proxy, agent wait", "exit 0", lambda pod: pod.start()),
    Step(
        "its processes, the agent and Envoy",
        "1337:1337, no capabilities",
        lambda pod: pod.privileges(),
    ),
    Step("the application; a server on the node", "listening", lambda pod: pod.serve()),
)


def traffic(families: Sequence[Family]) -> list[Step]:
    """Return the steps that show which way requests go.

    The kubelet asks at the pod's first address only, which is also where the agent asks the
    application.
    """
    ready = url(CABLE.pod_ipv4, HEALTH_PORT, READINESS_PATH)
    probe = url(CABLE.pod_ipv4, STATUS_PORT, PROBE_PATH)
    return [
        Step("kubelet: readiness, through Envoy", "200", lambda pod: str(pod.get("node", ready))),
        Step(
            "kubelet: the application's readiness",
            f"200 to {PASSTHROUGH['IPv4']}",
            lambda pod: _to(pod.get("node", probe)),
        ),
        *(step for family in families for step in _ways(family)),
    ]


def _ways(family: Family) -> list[Step]:
    inside = url(CABLE.pod(family), APPLICATION_PORT)
    outside = url(CABLE.node(family), APPLICATION_PORT)
    return [
        Step(
            f"node to application, {family}",
            f"200 to {PASSTHROUGH[family]}, {INBOUND_PORT} +1",
            lambda pod: _counted(pod, "node", inside, INBOUND_PORT),
        ),
        Step(
            f"application to node, {family}",
            f"200 to {CABLE.pod(family)}, {OUTBOUND_PORT} +1",
            lambda pod: _counted(pod, "application", outside, OUTBOUND_PORT),
        ),
        Step(
            f"uid 1337 to node, not captured, {family}",
            f"200 to {CABLE.pod(family)}, {OUTBOUND_PORT} +0",
            lambda pod: _counted(pod, "sidecar", outside, OUTBOUND_PORT),
        ),
    ]


def termination() -> list[Step]:
    """Return the steps of the end of a pod that has requests under way."""
    inside = url(CABLE.pod_ipv4, APPLICATION_PORT)
    outside = url(CABLE.node_ipv4, APPLICATION_PORT)
    ready = url(CABLE.pod_ipv4, HEALTH_PORT, READINESS_PATH)
    return [
        Step("a slow request in, a slow one out", "under way", _begin),
        Step("SIGTERM to the agent: readiness", "503", lambda pod: _terminate(pod, ready)),
        Step("a new request in", "200, connection: close", lambda pod: _drained(pod, inside)),
        Step("a new request out", "200", lambda pod: str(pod.get("application", outside))),
        Step("the slow request in", "200", lambda pod: str(pod.finish("in"))),
        Step("the slow request out", "200", lambda pod: str(pod.finish("out"))),
        Step("the agent", "exit 0", lambda pod: pod.ended()),
    ]


def _begin(pod: Pod) -> str:
    pod.begin("in", "node", url(CABLE.pod_ipv4, APPLICATION_PORT, SLOW_PATH))
    pod.begin("out", "application", url(CABLE.node_ipv4, APPLICATION_PORT, SLOW_PATH))
    return "under way"


def _terminate(pod: Pod, ready: str) -> str:
    pod.terminate()
    return str(pod.get_until("node", ready, lambda reply: reply.status != READY))


def _drained(pod: Pod, inside: str) -> str:
    reply = pod.get_until("node", inside, lambda reply: reply.connection == "close")
    return f"{reply}, connection: {reply.connection or 'kept'}"


def _to(reply: Reply) -> str:
    """Return the answer and to whom the application gave it."""
    return f"{reply} to {reply.peer}"


def _counted(pod: Pod, client: Client, target: str, port: int) -> str:
    before = pod.accepted(port)
    reply = pod.get(client, target)
    return f"{_to(reply)}, {port} {pod.accepted(port) - before:+d}"
