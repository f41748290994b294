"""What the agent reads of its surroundings."""

from pathlib import Path

from agent.files import GrpcBootstrap, read_limits, read_oom_kills


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
