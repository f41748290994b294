"""Limits of a container's CPU and memory, by version 1 of the kernel's control groups.

A container's groups are below our own. Nothing is limited where there is no such version, or where
it lets us make none. (Version 2 has no groups with limits below one that has processes.)
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.pod.environment import quantity
from tests.pod.objects import Json

MOUNT: Final = "/sys/fs/cgroup"
#: In which a container may use what its limit says.
PERIOD_MICROSECONDS: Final = 100_000


def settings(resources: Json) -> dict[str, dict[str, str]]:
    """Return what the limits of a manifest are to a kernel, by controller and file."""
    limits = {name: quantity(str(text)) for name, text in resources.get("limits", {}).items()}
    found = {}
    if "memory" in limits:
        found["memory"] = {"memory.limit_in_bytes": str(int(limits["memory"]))}
    if "cpu" in limits:
        found["cpu"] = {
            "cpu.cfs_period_us": str(PERIOD_MICROSECONDS),
            "cpu.cfs_quota_us": str(int(limits["cpu"] * PERIOD_MICROSECONDS)),
        }
    return found


def own_groups(membership: str) -> Mapping[str, str]:
    """Return our groups' directories by controller, of version 1.

    Args:
        membership: text of /proc/self/cgroup, lines `hierarchy:controllers:path`.
    """
    lines = (line.split(":", 2) for line in membership.splitlines())
    return {
        name: f"{MOUNT}/{name}{path}".rstrip("/")
        for _, controllers, path in lines
        for name in controllers.split(",")
        if name
    }


def make(name: str, resources: Json) -> dict[str, str]:
    """Make groups of a name below ours; return their directories by controller."""
    own = own_groups(Path("/proc/self/cgroup").read_text())
    made = {}
    for controller, files in settings(resources).items():
        above = own.get(controller, "")
        if os.access(f"{above}/cgroup.procs", os.W_OK):
            made[controller] = f"{above}/{name}"
            Path(made[controller]).mkdir()
            for file, text in files.items():
                Path(made[controller], file).write_text(text)
    return made


def of_name(prefix: str) -> Iterator[Path]:
    """Yield the groups below ours whose names begin with something."""
    for directory in own_groups(Path("/proc/self/cgroup").read_text()).values():
        yield from Path(directory).glob(f"{prefix}*")
