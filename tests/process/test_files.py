"""What the agent reads of its surroundings."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cgroup import directories
from agent.files import GrpcBootstrap, read_limits, read_oom_kills

#: Joins a cgroup, has a child use more memory than that allows, and prints the kills before and
#: after.
STARVE = """
import os, sys
from agent.files import read_limits, read_oom_kills
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
before = read_oom_kills()
if (child := os.fork()) == 0:
    hog = bytearray(b"x") * (256 << 20)
    os._exit(0)
_, status = os.waitpid(child, 0)
print(read_limits().memory_bytes, status, read_oom_kills() - before)
"""


@pytest.fixture
def tight_cgroup() -> Iterator[Path]:
    """A cgroup below our own that allows 64 MiB."""
    membership = Path("/proc/self/cgroup").read_text()
    own = next(filter(Path.exists, map(Path, directories(membership, "memory"))), None)
    if own is None:
        pytest.skip("no memory cgroup")
    made = own / "mesh-agent-test"
    try:
        made.mkdir(exist_ok=True)
        limit = next(filter(Path.exists, (made / "memory.max", made / "memory.limit_in_bytes")))
        limit.write_text(str(64 << 20))
    except (OSError, StopIteration):
        pytest.skip("memory cgroups cannot be made here")
    yield made
    made.rmdir()


@pytest.mark.root
def test_a_kill_for_want_of_memory_is_counted(tight_cgroup: Path) -> None:
    """Cases V5 and K6, with a real kernel."""
    done = subprocess.run(
        [sys.executable, "-c", STARVE, str(tight_cgroup)],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert done.stdout == f"{64 << 20} 9 1\n"


def test_a_process_knows_its_own_limits() -> None:
    limits = read_limits()

    assert limits.cpus >= 0
    assert limits.requested_cpus >= 0
    assert 0 <= limits.memory_bytes < 1 << 62
    assert read_oom_kills() >= 0


def test_a_grpc_bootstrap_that_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    path = tmp_path / "grpc-bootstrap.json"
    check = GrpcBootstrap(str(path))

    missing = check.problem()
    path.write_text("{")
    broken = check.problem()

    assert missing == f"failed loading {path}: No such file or directory"
    assert broken
    assert broken.startswith(f"failed loading {path}: expected")


def test_a_grpc_bootstrap_is_read_once_but_its_certificates_are_looked_for_each_time(
    tmp_path: Path,
) -> None:
    path, certificate = tmp_path / "grpc-bootstrap.json", tmp_path / "cert-chain.pem"
    path.write_text(
        '{"certificate_providers": {"default": {"plugin_name": "file_watcher",'
        f' "config": {{"certificate_file": "{certificate}"}}}}}}}}'
    )
    check = GrpcBootstrap(str(path))

    before = check.problem()
    certificate.touch()
    path.unlink()
    after = check.problem()
    certificate.unlink()

    assert before == check.problem() == f"{certificate} does not exist"
    assert after is None
