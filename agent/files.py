"""What the agent reads of its surroundings: the cgroup's files, the gRPC bootstrap."""

# pathlib would cost 5 ms before Envoy is spawned:
# ruff: noqa: PTH110, PTH123

import os

from agent.cgroup import (
    Limits,
    directories,
    memory_bytes,
    oom_kills,
    quota_cpus,
    shares_cpus,
    weight_cpus,
)
from bootstrap.files import read_text
from bootstrap.grpc import certificate_files

MEMBERSHIP = "/proc/self/cgroup"


def read_limits() -> Limits:
    """Return what this process's cgroup lets it use."""
    membership = _read(MEMBERSHIP) or ""
    cpu, memory = (directories(membership, name) for name in ("cpu", "memory"))
    quota = _first(cpu, "cpu.max")
    if quota is None:
        amount, period = (_first(cpu, f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        quota = f"{(amount or '').strip()} {(period or '').strip()}"
    weight, shares = _first(cpu, "cpu.weight"), _first(cpu, "cpu.shares")
    limit = _first(memory, "memory.max") or _first(memory, "memory.limit_in_bytes")
    return Limits(
        cpus=quota_cpus(quota),
        requested_cpus=weight_cpus(weight) if weight else shares_cpus(shares or ""),
        memory_bytes=memory_bytes(limit or ""),
    )


def read_oom_kills() -> int:
    """Return how many processes of this container the kernel has killed for want of memory."""
    memory = directories(_read(MEMBERSHIP) or "", "memory")
    return oom_kills(_first(memory, "memory.events") or _first(memory, "memory.oom_control") or "")


class GrpcBootstrap:
    """Whether gRPC applications have what they start from: a condition of being ready.

    Source: status-lifecycle.md section 6.5.
    """

    def __init__(self, path: str) -> None:
        """Look at nothing yet."""
        self._path = path
        self._certificates: tuple[str, ...] | None = None

    def problem(self) -> str | None:
        """Return what is missing, None if nothing is."""
        if self._certificates is None:
            try:
                self._certificates = certificate_files(read_text(self._path))
            except (OSError, ValueError) as error:
                return f"failed loading {self._path}: {getattr(error, 'strerror', None) or error}"
        missing = (path for path in self._certificates if not os.path.exists(path))
        return next((f"{path} does not exist" for path in missing), None)


def _first(places: list[str], name: str) -> str | None:
    for directory in places:
        text = _read(f"{directory}/{name}")
        if text is not None:
            return text
    return None


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None
