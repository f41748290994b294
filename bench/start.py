"""Time from exec of the agent until its pod is ready, and what of it is Envoy's own.

Method: in a network namespace of its own, these are started in turn, 20 times each, until
`127.0.0.1:15021/healthz/ready` answers 200 (asked every millisecond), then killed:

- relay: `agent proxy sidecar`, its LDS and CDS relayed from a control plane with TLS on loopback;
- builtin: the same with AGENT_LOCAL_XDS=builtin, so without a control plane;
- bare: Envoy alone, with the arguments and bootstrap that the agent gave it, its XDS socket served
  directly by the same control plane, and a server that always answers 200 in the agent's place.

Dials of the XDS socket are Envoy's own count; more than one means that it found nobody there and
waited. Phases are medians of the lines that AGENT_START_TRACE=1 makes the agent write, and of its
log for Envoy's first stream; each bar is as long as its phase, from its beginning to its end. From
`spawn` on Envoy starts beside the agent.
Targets: performance.md, last table.
"""

import re
import shutil
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from shared.pod import (
    AGENT,
    ARGUMENTS,
    VOLUMES,
    Started,
    compile_sources,
    enter_namespace,
    make_pod,
    server,
    started,
    xds_dials,
)

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
SHARED = Path(__file__).with_name("shared")
PHASE = re.compile(r"phase=(\S+) ms=[\d.]+ at=([\d.]+)")
STREAM = re.compile(r"^(\S+)Z\t.*\tstream opened ", re.MULTILINE)
#: What ends with each mark.
NAMES = {"interpreter": "interpreter, flags", "listening": "servers", "gate": "Envoy at the gate"}
MILLISECONDS_PER_CELL = 2.0


class Bench:
    """The folders of the three, and what was measured."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bare_folder = make_pod(root / "bare")
        self.bare_arguments: list[str] = []
        self.milliseconds: dict[str, list[float]] = defaultdict(list)
        self.dials: dict[str, Counter[int]] = defaultdict(Counter)
        self.phases: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def agent(self, name: str, **environ: str) -> None:
        """Start the agent once, in a folder that nobody has used."""
        folder = make_pod(self.root / "pod")
        shutil.copy(self.root / "root-cert.pem", folder / "var/run/secrets/istio")
        with started([AGENT, *ARGUMENTS], folder, {"AGENT_START_TRACE": "1", **environ}) as run:
            self.note(name, run.milliseconds)
            if not self.bare_arguments:
                self.copy_envoy(folder, run.children())
        self.note_phases(self.phases[name], folder, run)
        shutil.rmtree(folder)

    def note_phases(self, phases: dict[str, list[float]], folder: Path, run: Started) -> None:
        """Keep when each phase of a start was over."""
        for phase, at in PHASE.findall((folder / "stderr").read_text()):
            phases[NAMES.get(phase, phase)].append((float(at) - run.began) * 1000)
        opened = STREAM.search((folder / "stdout").read_text())
        if opened:
            at = datetime.fromisoformat(f"{opened[1]}+00:00").timestamp()
            since_epoch = time.time() - time.perf_counter()
            phases["first stream of xDS"].append((at - since_epoch - run.began) * 1000)
        phases["ready"].append(run.milliseconds)

    def copy_envoy(self, folder: Path, children: list[int]) -> None:
        """Take over arguments and bootstrap of the agent's Envoy."""
        lines = [Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1] for pid in children]
        self.bare_arguments = next(line for line in lines if "--drain-time-s" in line)
        config = self.bare_arguments[self.bare_arguments.index("-c") + 1]
        shutil.copy(folder / config, self.bare_folder / config)

    def bare(self, name: str) -> None:
        """Start Envoy alone."""
        with (
            server(str(SHARED / "ready.py")),
            started(self.bare_arguments, self.bare_folder) as run,
        ):
            self.note(name, run.milliseconds)

    def note(self, name: str, milliseconds: float) -> None:
        """Keep one measurement."""
        self.milliseconds[name].append(milliseconds)
        self.dials[name][xds_dials()] += 1

    def report(self) -> None:
        """Print what was measured."""
        floor = statistics.median(self.milliseconds["bare"])
        print(f"from exec to 200 on 15021, {RUNS} starts each, interleaved")
        for name, times in self.milliseconds.items():
            median = statistics.median(times)
            dials = ", ".join(f"{count} in {runs} runs" for count, runs in self.dials[name].items())
            print(
                f"{name:8} median {median:6.1f} ms   max {max(times):6.1f} ms   "
                f"above bare {median - floor:6.1f} ms   dials of the XDS socket: {dials}"
            )
        for name, phases in self.phases.items():
            print(f"\n{name}: end of each phase, ms after exec, and what it took")
            before = 0.0
            for phase, milliseconds in phases.items():
                end = statistics.median(milliseconds)
                print(f"{phase:20} {end:6.1f} {end - before:6.1f}  {bar(before, end)}")
                before = end


def bar(begin: float, end: float) -> str:
    """Return a bar from one time to another, at its place."""
    first, last = (round(at / MILLISECONDS_PER_CELL) for at in (begin, end))
    return " " * first + ("█" * (last - first) or "▏")


def main() -> None:
    enter_namespace()
    compile_sources()
    with TemporaryDirectory(prefix="bench-start-", dir=VOLUMES) as folder:
        bench = Bench(Path(folder))
        socket = str(bench.bare_folder / "etc/istio/proxy/XDS")
        kinds: dict[str, Callable[[str], None]] = {
            "relay": bench.agent,
            "builtin": lambda name: bench.agent(name, AGENT_LOCAL_XDS="builtin"),
            "bare": bench.bare,
        }
        with server(str(SHARED / "control_plane.py"), folder, socket):
            for name, start in kinds.items():
                start(name)  # byte code and page cache
            for kept in (bench.milliseconds, bench.dials, bench.phases):
                kept.clear()
            for _ in range(RUNS):
                for name, start in kinds.items():
                    start(name)
        bench.report()


if __name__ == "__main__":
    main()
