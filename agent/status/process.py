"""Metrics of this process and its Python, set when they are scraped.

Source: status-lifecycle.md section 8.
"""

import gc
import os
import resource
import sys
import time
from typing import Final

from agent.metrics import Family, Metrics
from agent.status.procfs import parse_boot_time, parse_octets, parse_usage

FAMILIES: Final = {
    "process_cpu_seconds_total": Family("counter", "CPU time of the agent in seconds."),
    "process_open_fds": Family("gauge", "Number of open file descriptors."),
    "process_max_fds": Family("gauge", "Limit of open file descriptors."),
    "process_virtual_memory_bytes": Family("gauge", "Virtual memory in bytes."),
    "process_virtual_memory_max_bytes": Family("gauge", "Limit of virtual memory, -1 for none."),
    "process_resident_memory_bytes": Family("gauge", "Resident memory in bytes."),
    "process_start_time_seconds": Family("gauge", "Start of the process, Unix time."),
    "process_network_receive_bytes_total": Family("counter", "Bytes received by the pod."),
    "process_network_transmit_bytes_total": Family("counter", "Bytes sent by the pod."),
    "python_info": Family("gauge", "Version of the Python that runs the agent."),
    "python_gc_collections_total": Family("counter", "Collections of a generation."),
    "python_gc_objects_collected_total": Family("counter", "Objects freed by collections."),
}


def describe_process(metrics: Metrics) -> None:
    """Have the metrics of this process collected at each scrape."""
    for name, family in FAMILIES.items():
        metrics.describe(name, family)
    metrics.set("python_info", 1, implementation=sys.implementation.name, version=_version())
    metrics.before_render(lambda: _collect(metrics))


def _version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _collect(metrics: Metrics) -> None:
    usage = parse_usage(_read("/proc/self/stat"))
    ticks = os.sysconf("SC_CLK_TCK")
    metrics.set("process_cpu_seconds_total", usage.cpu_ticks / ticks)
    metrics.set("process_virtual_memory_bytes", usage.virtual_bytes)
    metrics.set("process_resident_memory_bytes", usage.resident_pages * resource.getpagesize())
    started = parse_boot_time(_read("/proc/stat")) + usage.start_ticks / ticks
    metrics.set("process_start_time_seconds", started)
    metrics.set("process_open_fds", len(os.listdir("/proc/self/fd")) - 1)  # noqa: PTH208 -- pathlib is not imported at start
    metrics.set("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    metrics.set("process_virtual_memory_max_bytes", resource.getrlimit(resource.RLIMIT_AS)[0])
    received, sent = parse_octets(_read("/proc/self/net/netstat"))
    metrics.set("process_network_receive_bytes_total", received)
    metrics.set("process_network_transmit_bytes_total", sent)
    for generation, stats in enumerate(gc.get_stats()):
        labels = {"generation": str(generation)}
        metrics.set("python_gc_collections_total", stats["collections"], **labels)
        metrics.set("python_gc_objects_collected_total", stats["collected"], **labels)


def seconds_since_start() -> float:
    """Return how long this process has run."""
    return _seconds_since(parse_usage(_read("/proc/self/stat")).start_ticks)


def own_usage() -> dict[str, float]:
    """Return, as JSON has it, how long this process has run and what it uses."""
    usage = parse_usage(_read("/proc/self/stat"))
    return {
        "uptime_seconds": round(_seconds_since(usage.start_ticks), 3),
        "cpu_seconds": usage.cpu_ticks / os.sysconf("SC_CLK_TCK"),
        "resident_bytes": usage.resident_pages * resource.getpagesize(),
    }


def _seconds_since(start_ticks: int) -> float:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    return now - start_ticks / os.sysconf("SC_CLK_TCK")


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 -- as above
        return file.read()
