"""What an idle agent costs: its memory, CPU and context switches.

Method: in a network namespace of its own, `agent proxy sidecar` is started with LDS and CDS from a
control plane with TLS on loopback. Once it is ready, it is probed and scraped once. A second later
its memory is read from smaps_rollup (every pod pays for anonymous memory, the rest of the RSS is
shared by the pods of a node), and before and after 30 idle seconds the CPU time (schedstat) and the
context switches of all its threads. Envoy is not counted. Targets: performance.md, last table.
"""

import re
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from shared.pod import (
    AGENT,
    ARGUMENTS,
    HEALTH_PORT,
    STATUS_PORT,
    VOLUMES,
    compile_sources,
    enter_namespace,
    get,
    make_pod,
    server,
    started,
)

IDLE_SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
SHARED = Path(__file__).with_name("shared")
ASKED = (
    (HEALTH_PORT, "/healthz/ready"),
    (STATUS_PORT, "/healthz/ready"),
    (STATUS_PORT, "/stats/prometheus"),
)


def memory(pid: int) -> dict[str, float]:
    """Return RSS and anonymous memory, and the peak of the RSS, in MB of a million bytes."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", rollup + status, re.MULTILINE))
    names = {"anonymous": "Anonymous", "RSS": "Rss", "peak RSS": "VmHWM"}
    return {shown: int(kilobytes[name]) * 1024 / 1e6 for shown, name in names.items()}


def activity(pid: int) -> tuple[float, int, int]:
    """Return CPU seconds and context switches so far, and the number of threads."""
    nanoseconds = switches = 0
    threads = list(Path(f"/proc/{pid}/task").iterdir())
    for thread in threads:
        nanoseconds += int((thread / "schedstat").read_text().split()[0])
        counts = re.findall(r"ctxt_switches:\s+(\d+)", (thread / "status").read_text())
        switches += sum(map(int, counts))
    return nanoseconds / 1e9, switches, len(threads)


def main() -> None:
    enter_namespace()
    compile_sources()
    with TemporaryDirectory(prefix="bench-idle-", dir=VOLUMES) as folder:
        pod = make_pod(Path(folder, "pod"))
        with server(str(SHARED / "control_plane.py"), folder, str(Path(folder, "unused"))):
            shutil.copy(Path(folder, "root-cert.pem"), pod / "var/run/secrets/istio")
            with started([AGENT, *ARGUMENTS], pod) as run:
                statuses = [get(port, path)[0] for port, path in ASKED]
                time.sleep(1)
                pid = run.process.pid
                cpu, switches, threads = activity(pid)
                held = memory(pid)
                time.sleep(IDLE_SECONDS)
                cpu_after, switches_after, _ = activity(pid)
    print(f"ready after {run.milliseconds:.0f} ms; probes and scrape answered {statuses}")
    print("memory of the agent: " + ", ".join(f"{name} {mb:.1f} MB" for name, mb in held.items()))
    percent = 100 * (cpu_after - cpu) / IDLE_SECONDS
    per_second = (switches_after - switches) / IDLE_SECONDS
    print(
        f"idle for {IDLE_SECONDS:.0f} s: CPU {percent:.3f} % of a core, "
        f"{per_second:.1f} context switches/s, {threads} threads"
    )


if __name__ == "__main__":
    main()
