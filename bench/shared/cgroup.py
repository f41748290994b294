"""A group of processes with little CPU, where this machine lets one be made."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

#: Where the CPU controller is, and what gives a group 1 ms of each 100: cgroup v2, cgroup v1.
CONTROLLERS = {
    "/sys/fs/cgroup": {"cpu.max": "1000 100000"},
    "/sys/fs/cgroup/cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "1000"},
}


@contextmanager
def limited_to_10m() -> Iterator[str]:
    """Make the group; yield the file by which a process joins it, '' where there can be none."""
    for controller, settings in CONTROLLERS.items():
        group = Path(controller) / f"mesh-agent-bench-{os.getpid()}"
        try:
            if _limit(group, settings):
                yield str(group / "cgroup.procs")
                return
        finally:
            with suppress(OSError):
                group.rmdir()
    yield ""


def _limit(group: Path, settings: Mapping[str, str]) -> bool:
    """Make a group with these settings; return False where it cannot have them."""
    try:
        group.mkdir()
        if not all((group / name).exists() for name in settings):
            return False  # no cgroup at all, or one without this controller
        for name, value in settings.items():
            (group / name).write_text(value)
    except OSError:
        return False
    return True
