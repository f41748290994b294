"""Whole-process time and memory of `istio-iptables`, which every pod's start waits for.

Method: in a network namespace of its own with an address of each family, `agent istio-iptables`
with the injector's arguments and both families is run on the nft tools: on clean tables, again
with nothing to do, and to clean up, 30 rounds; the same through native nftables and, where
python-iptables is installed, through libiptc; with 2,000 excluded ranges; and in TPROXY mode, which
alone loads anything of pyroute2. Wall time is from spawn to reaped exit; CPU is user and system
time of the process and all that it ran (wait4). The kernel takes milliseconds to commit, and tens
to delete, so both restores are also timed by themselves. Memory is VmHWM of the process, and beside
it the largest of its children: a tool, or the copy of it that makes the change, most of it shared.
Three more runs install under a CPU limit of 10 m (1 ms in each 100), as an init container may have:
60 ms of CPU are 6 s there. Where no such group can be made, the CPU time above tells the same.
Targets: performance.md, last table; 2,000 ranges in 250 ms; 20 MB.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec

from pyroute2 import IPRoute
from shared.cgroup import limited_to_10m
from shared.pod import AGENT, compile_sources, enter_namespace

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 30
INJECTED = (
    "istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*",
    "-x", "", "-b", "*", "-d", "15090,15021,15020", "--log_output_level=default:info",
    "--dual-stack", "--force-iptables-binary=nft",
)  # fmt: skip
CLEANUP = (*INJECTED, "--cleanup-only")
DRY_RUN = (*INJECTED, "--dry-run", "--log_output_level=none")
NATIVE = "--native-nftables"
RANGES = ",".join(f"10.{number // 256}.{number % 256}.0/24" for number in range(2000))
#: What differs from the usual run, by the name of its figures.
KINDS = {
    "iptables": [],
    "nftables": [NATIVE],
    "libiptc": ["--backend=libiptc", "--force-iptables-binary="],
    "2,000 ranges": ["-x", RANGES],
    "TPROXY": ["-m", "TPROXY"],
}
MEMORY = """
import resource, sys
from agent.__main__ import main
code = main(["agent", *sys.argv[1:]])
(own,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
#: Joins a group of processes, then runs a program in it.
JOIN = 'echo $$ > "$0"; exec "$@"'
LIMITED_RUNS = 3
QUIET = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]


def milliseconds(argv: Sequence[str]) -> tuple[float, float]:
    """Return wall and CPU time of a program that must succeed, its children included."""
    started = time.perf_counter()
    pid = os.posix_spawnp(argv[0], list(argv), os.environ, file_actions=QUIET)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - started
    if status:
        raise ChildProcessError(f"{argv}: wait status {status}")
    return wall * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def peak_megabytes(argv: Sequence[str]) -> tuple[float, float]:
    """Return the most that a program used, and the most that any child of it did."""
    command = [sys.executable, "-c", MEMORY, *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    own, child = (int(kibibytes) * 1024 / 1e6 for kibibytes in done.stderr.split()[-2:])
    return own, child


def show_limited() -> None:
    """Print how long an installation takes under a CPU limit. Case S7."""
    with limited_to_10m() as join:
        if not join:
            print("CPU limit of 10 m: skipped, no CPU controller of cgroups can be used here")
            return
        taken = []
        for _ in range(LIMITED_RUNS):
            taken.append(milliseconds(["sh", "-c", JOIN, join, AGENT, *INJECTED]))
            milliseconds([AGENT, *CLEANUP])
    walls, cpus = zip(*taken, strict=True)
    show("CPU limit of 10 m: install", walls, cpus)


def restores(dry_run: str) -> list[float]:
    """Return the time of both restores, one after the other, without any of ours."""
    ipv4, _, ipv6 = dry_run.partition("# IPv6")
    texts = {"iptables-nft-restore": ipv4, "ip6tables-nft-restore": f"# {ipv6}"}
    taken = []
    for _ in range(RUNS):
        started = time.perf_counter()
        for tool, text in texts.items():
            subprocess.run([tool, "--noflush"], input=text, text=True, check=True)
        taken.append((time.perf_counter() - started) * 1000)
        milliseconds([AGENT, *CLEANUP])
    return taken


def show(name: str, walls: Sequence[float], cpus: Sequence[float] = ()) -> None:
    line = f"{name:28} wall median {statistics.median(walls):5.1f} ms  max {max(walls):5.1f}"
    print(line + (f"   CPU median {statistics.median(cpus):5.1f} ms" if cpus else ""))


def main() -> None:
    enter_namespace()
    compile_sources()
    with IPRoute() as kernel:
        kernel.addr("add", index=1, address="2001:db8::2", prefixlen=128)
    kinds = {name: argv for name, argv in KINDS.items() if name != "libiptc" or find_spec("iptc")}
    programs = {"python -c pass": [sys.executable, "-c", "pass"]}
    for name, argv in kinds.items():
        programs[f"{name}: install"] = [AGENT, *INJECTED, *argv]
        programs[f"{name}: nothing to do"] = [AGENT, *INJECTED, *argv]
        programs[f"{name}: clean up"] = [AGENT, *CLEANUP, *argv]
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for argv in programs.values():
        milliseconds(argv)  # page cache
    for _ in range(RUNS):
        for name, argv in programs.items():
            taken[name].append(milliseconds(argv))
    for name, times in taken.items():
        walls, cpus = zip(*times, strict=True)
        show(name, walls, cpus)
    dry_run = subprocess.run([AGENT, *DRY_RUN], capture_output=True, text=True, check=True)
    show("of it the two restores", restores(dry_run.stdout))
    show_limited()
    for name, argv in kinds.items():
        own, child = peak_megabytes([*INJECTED, *argv])
        milliseconds([AGENT, *CLEANUP, *argv])
        print(f"{name + ': peak memory':28} {own:.1f} MB, its largest child {child:.1f}")


if __name__ == "__main__":
    main()
