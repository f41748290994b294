"""What a pod's start and end take, by phase, and whose each phase is.

Method: pods as `agent inject` writes them run on a node of network namespaces, by a kubelet for
tests (tests/pod), from a tree that looks like the image, or from the image's own file system if
POD_IMAGE_ROOT names one; with an istiod look-alike, mutual TLS, and an application that serves on
for a second after SIGTERM. RUNS pods each (argument, 5), one after another; medians of when each
phase began and of what it took. "serving" is when the node gets 200 from 15021, asked every
millisecond; what is left until the kubelet's next question, of which there is one a second, is the
kubelet's.
"""

import asyncio
import contextlib
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.pod.cases import own
from tests.pod.cluster import Cluster, Pod, cluster
from tests.pod.kubelet import Event
from tests.pod.lives import PEER
from tests.pod.node import Node, standing_on_a_node
from tests.pod.objects import Workload

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
#: A native sidecar; an ordinary one that holds the application.
KINDS = {"native": "peer", "classic, held": "hold"}
SERVING, DRAINED = "serving", "drained"
#: terminationDrainDuration, where no hook has drained before. Source: status-lifecycle.md 9.8.
DRAIN_SECONDS = {"native": 0.0, "classic, held": 5.0}
HEALTH_PORT = 15021
READY = b" 200 "
CELLS = 50


class Phase(NamedTuple):
    """From one event of a pod to another; both are the first ones of their kind."""

    name: str
    whose: str
    begins: tuple[str, str]  #: container and what happened; "*" is the application
    ends: tuple[str, str]


START = (
    Phase("istio-init is made", "runtime", ("istio-init", "creating"), ("istio-init", "running")),
    Phase("istio-init sets rules", "agent", ("istio-init", "running"), ("istio-init", "exit 0")),
    Phase(
        "istio-proxy is made", "runtime", ("istio-proxy", "creating"), ("istio-proxy", "running")
    ),
    Phase("agent and Envoy start", "agent", ("istio-proxy", "running"), ("istio-proxy", SERVING)),
    Phase("its hook sees it", "agent", ("istio-proxy", SERVING), ("istio-proxy", "hooked")),
    Phase("until asked again", "kubelet", ("istio-proxy", SERVING), ("istio-proxy", "started")),
    Phase("application is made", "runtime", ("*", "creating"), ("*", "running")),
    Phase("application is ready", "kubelet", ("*", "running"), ("", "ready")),
)
END = (
    Phase("application's last second", "application", ("*", "SIGTERM"), ("*", "exit 0")),
    Phase(
        "drain hook",
        "agent",
        ("istio-proxy", "pre-stop hook begun"),
        ("istio-proxy", "pre-stop hook done"),
    ),
    Phase("drain, as configured", "settings", ("istio-proxy", "SIGTERM"), ("istio-proxy", DRAINED)),
    Phase("agent and Envoy end", "agent", ("istio-proxy", DRAINED), ("istio-proxy", "exit 0")),
)
HOOKED = "post-start hook done"


class Timeline:
    """When phases began and what they took, run by run."""

    def __init__(self) -> None:
        self.times: dict[Phase, list[tuple[float, float]]] = defaultdict(list)
        self.whole: list[float] = []

    def note(self, phases: tuple[Phase, ...], events: list[Event], application: str) -> None:
        """Keep a run, whose events are given from its beginning to its end."""
        began = events[0].at
        first: dict[tuple[str, str], float] = {}
        for event in events:
            container = "*" if event.container == application else event.container
            what = "hooked" if event.what == HOOKED else event.what
            first.setdefault((container, what), event.at)
        for phase in phases:
            if phase.begins in first and phase.ends in first:
                begin, end = first[phase.begins], first[phase.ends]
                self.times[phase].append((begin - began, end - begin))
        self.whole.append(events[-1].at - began)

    def lines(self) -> Iterator[str]:
        """Yield the table."""
        whole = statistics.median(self.whole)
        shares: dict[str, float] = defaultdict(float)
        for phase, times in self.times.items():
            begin, took = (statistics.median(column) for column in zip(*times, strict=True))
            shares[phase.whose] += took
            first, last = (round(at / whole * CELLS) for at in (begin, begin + took))
            bar = " " * first + ("█" * (last - first) or "▏")
            yield f"{phase.name:26} {phase.whose:12} {begin * 1000:7.0f} {took * 1000:7.0f}  {bar}"
        yield f"{'in all':26} {'':12} {0:7} {whole * 1000:7.0f}"
        yield "   ".join(f"{whose} {took * 1000:.0f} ms" for whose, took in shares.items())


async def serving(pod: Pod) -> None:
    """Return once the node gets 200 from the pod's health port; note when."""
    question = b"GET /healthz/ready HTTP/1.1\r\nhost: pod\r\nconnection: close\r\n\r\n"
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(pod.ip, HEALTH_PORT)
            writer.write(question)
            line = await reader.readline()
            writer.close()
            if READY in line:
                pod.kubelet.events.append(Event(time.monotonic(), "istio-proxy", SERVING))
                return
        await asyncio.sleep(0.001)


async def run(
    found: Cluster, workload: Workload, drain_seconds: float, start: Timeline, end: Timeline
) -> None:
    """Run one pod from its first container to its last exit."""
    application = workload.containers[-1].name
    async with found.pod(workload) as pod:
        asked = asyncio.create_task(serving(pod))
        await pod.kubelet.ready()
        await asked
        events = sorted(pod.kubelet.events)
        start.note(START, [*events, Event(events[-1].at, "", "ready")], application)
        before = len(pod.kubelet.events)
        pod.kubelet.delete()
        await pod.kubelet.over()
        events = pod.kubelet.events[before:]
        told = next(each.at for each in events if each[1:] == ("istio-proxy", "SIGTERM"))
        drained = Event(told + drain_seconds, "istio-proxy", DRAINED)
        end.note(END, [events[0], drained, *events[1:]], application)


async def main(node: Node) -> None:
    workloads = own()
    async with cluster(node, [PEER]) as found:
        await run(found, workloads[KINDS["native"]], 0, Timeline(), Timeline())  # page cache
        for kind, name in KINDS.items():
            start, end = Timeline(), Timeline()
            for _ in range(RUNS):
                await run(found, workloads[name], DRAIN_SECONDS[kind], start, end)
            for what, timeline in (("start", start), ("end", end)):
                print(f"\n{kind}: {what}, median of {RUNS}")
                print(f"{'phase':26} {'whose':12} {'from ms':>7} {'ms':>7}")
                print("\n".join(timeline.lines()))


if __name__ == "__main__":
    with standing_on_a_node() as standing:
        asyncio.run(main(standing))
