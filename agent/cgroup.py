"""What the container's cgroup says about CPU and memory, in both versions of the interface.

In a container the cgroup's files usually stand at the top of the mount; on a machine they stand
where /proc/self/cgroup says.

Source: cgroups(7); the kernel's admin-guide/cgroup-v2 and cgroup-v1/memory; cases.md K2 to K6, V5.
"""

import math
from typing import Final, NamedTuple

MOUNT: Final = "/sys/fs/cgroup"
UNIFIED: Final = "0"  #: hierarchy of version 2
#: Version 1 says that nothing is limited by the largest number of whole pages.
UNLIMITED_BYTES: Final = 1 << 62
SHARES_PER_CPU: Final = 1024
#: Suffixes of quantities in Kubernetes, the longer ones first.
UNITS: Final = {
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "k": 1000,
    "M": 1000**2,
    "G": 1000**3,
}


class Limits(NamedTuple):
    """What this container may use; 0 where nothing says."""

    #: From the quota, as limits.cpu sets it.
    cpus: float = 0.0
    #: From the weight, as requests.cpu sets it.
    requested_cpus: float = 0.0
    memory_bytes: int = 0


def directories(membership: str, controller: str) -> list[str]:
    """Return where a controller's files may be, the likeliest first.

    Args:
        membership: text of /proc/self/cgroup, lines `hierarchy:controllers:path`.
        controller: `cpu` or `memory`.
    """
    found: list[str] = []
    for line in membership.splitlines():
        hierarchy, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            found += (f"{MOUNT}/{controller}{path}", f"{MOUNT}/{controller}")
        elif hierarchy == UNIFIED:
            found += (f"{MOUNT}{path}", MOUNT)
    return list(dict.fromkeys(path.rstrip("/") for path in found))


def quota_cpus(quota: str) -> float:
    """Return how many CPUs a quota amounts to, 0 for any number.

    Args:
        quota: text of cpu.max: `max 100000`, `200000 100000`; or the quota (-1 for none) and
            period of version 1, likewise in one line.
    """
    amount, _, period = quota.strip().partition(" ")
    if not amount.isdecimal() or not period.isdecimal() or int(period) == 0:
        return 0.0
    return int(amount) / int(period)


def shares_cpus(shares: str) -> float:
    """Return the CPUs requested, from cpu.shares; 0 if it says nothing."""
    text = shares.strip()
    return int(text) / SHARES_PER_CPU if text.isdecimal() else 0.0


def weight_cpus(weight: str) -> float:
    """Return the CPUs requested, from cpu.weight; 0 if it says nothing.

    Container runtimes turn shares into weights by one of two formulas and do not say by which.
    This undoes the newer one, which gives a CPU a weight of 100; for a weight of the older one it
    says less than was requested, which costs threads but never throttling.

    Source: opencontainers/cgroups utils.go, ConvertCPUSharesToCgroupV2Value.
    """
    text = weight.strip()
    if not text.isdecimal() or int(text) == 0:
        return 0.0
    # weight = 10 ** ((l * l + 125 * l) / 612 - 7 / 34), with l = log2(shares)
    doubled = 612 * (math.log10(int(text)) + 7 / 34)
    shares = 2 ** ((math.sqrt(125 * 125 + 4 * doubled) - 125) / 2)
    return shares / SHARES_PER_CPU


def memory_bytes(limit: str) -> int:
    """Return the limit in bytes, 0 for none, from memory.max or memory.limit_in_bytes."""
    text = limit.strip()
    amount = int(text) if text.isdecimal() else 0
    return amount if amount < UNLIMITED_BYTES else 0


def parse_memory(text: str) -> int:
    """Return the bytes of a quantity such as '512Mi'; 'off' and '0' are 0, for no limit.

    Raises:
        ValueError: it is none.
    """
    number, unit = text, ""
    for suffix in UNITS:
        if text.endswith(suffix):
            number, unit = text.removesuffix(suffix), suffix
            break
    if text == "off":
        return 0
    if not (number.isascii() and number.isdecimal()):
        raise ValueError("expected bytes such as '536870912' or '512Mi', or 'off'")
    return int(number) * UNITS.get(unit, 1)


def oom_kills(counters: str) -> int:
    """Return how many processes the kernel has killed here for want of memory.

    Args:
        counters: text of memory.events or memory.oom_control, lines `name number`.
    """
    for line in counters.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdecimal():
            return int(value)
    return 0


def workers(cpus: float) -> int:
    """Return how many of Envoy's workers a number of CPUs keeps busy; 0 for 0."""
    return math.ceil(round(cpus, 3))
