"""CNI mode: what the tools see of the node, and what the node sees of them."""

import os
import shutil
from pathlib import Path

import pytest

from tests.netns.namespaces import Namespace

pytestmark = [pytest.mark.root, pytest.mark.slow]

ARGV = ("-u", "1337", "-i", "*", "--force-iptables-binary=legacy")
#: Says what it sees, then does its work.
SPY = """#!/bin/sh
{
  readlink /proc/self/ns/mnt
  wc -c < /etc/nsswitch.conf
  env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= -e ^OLDPWD= | sort
} > "$0.seen"
exec TOOL "$@"
"""
WITHOUT_SYS_ADMIN = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")


@pytest.fixture
def spy(tmp_path: Path) -> Path:
    """Return a directory with a tool that writes down what it sees."""
    tool = shutil.which("iptables-legacy-restore")
    assert tool
    script = tmp_path / "iptables-legacy-restore"
    script.write_text(SPY.replace("TOOL", tool))
    script.chmod(0o755)
    return tmp_path


def capture(
    inside: Namespace, *argv: str, path: str, status: int = 0, wrapper: tuple[str, ...] = ()
) -> str:
    environ = {"PATH": path, "NSS_WRAPPER": "x", "ENVOY_USER": "nobody"}
    return inside.capture(*argv, status=status, wrapper=wrapper, **environ).stdout


def test_the_tools_run_without_name_service_with_the_lock_of_the_namespace(
    inside: Namespace, spy: Path
) -> None:
    before = Path("/etc/nsswitch.conf").read_bytes()
    path = f"{spy}:{os.environ['PATH']}"

    log = capture(inside, *ARGV, "--cni-mode", f"--network-namespace={inside.path}", path=path)

    mounts, size, *environ = (spy / "iptables-legacy-restore.seen").read_text().splitlines()
    assert mounts != str(Path("/proc/self/ns/mnt").readlink())
    assert size == "0"
    assert environ == [f"PATH={path}", f"XTABLES_LOCKFILE={inside.path}"]
    assert "Final iptables state" in log
    assert Path("/etc/nsswitch.conf").read_bytes() == before
    assert "ISTIO_OUTPUT" in inside.run("iptables-legacy-save").stdout
    assert "not needed" in capture(inside, *ARGV, "--cni-mode", path=path)


def test_without_the_mode_the_namespace_is_only_a_name(inside: Namespace, spy: Path) -> None:
    path = f"{spy}:{os.environ['PATH']}"

    capture(inside, *ARGV, "--network-namespace=/no/such/file", path=path)

    seen = (spy / "iptables-legacy-restore.seen").read_text()
    assert str(Path("/proc/self/ns/mnt").readlink()) in seen
    assert "XTABLES_LOCKFILE" not in seen


def test_where_no_sandbox_can_be_made_it_goes_on_without(inside: Namespace, spy: Path) -> None:
    path = f"{spy}:{os.environ['PATH']}"

    log = capture(inside, *ARGV, "--cni-mode", path=path, wrapper=WITHOUT_SYS_ADMIN)

    assert "--cni-mode: no mount namespace, going on without: " in log
    assert "unshare: Operation not permitted" in log
    assert "ISTIO_OUTPUT" in inside.run("iptables-legacy-save").stdout


def test_a_file_of_the_namespace_that_is_not_there_is_named(inside: Namespace, spy: Path) -> None:
    inside.run("iptables-legacy", "-S")  # makes the tools' lock
    path = f"{spy}:{os.environ['PATH']}"
    argv = (*ARGV, "--force-iptables-binary=nft", "--cni-mode", "--network-namespace=/no/such")

    log = capture(inside, *argv, path=path)

    assert "mount of /no/such on /run/xtables.lock: No such file or directory" in log
    assert "ISTIO_OUTPUT" in inside.run("iptables-nft-save").stdout


def test_the_exit_status_is_that_of_the_work(inside: Namespace, tmp_path: Path) -> None:
    capture(inside, *ARGV, "--cni-mode", "--backend=iptables", path=str(tmp_path), status=1)


def test_settings_from_the_environment_are_read_all_the_same(inside: Namespace) -> None:
    capture(inside, "-i", "*", "--cni-mode", path=os.environ["PATH"])

    assert "--uid-owner 65534" in inside.run("iptables-nft-save").stdout
