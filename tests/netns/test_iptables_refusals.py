"""Hosts that refuse what is needed: one line says what, and what to do; nothing changes."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.netns.namespaces import ROOT, Namespace

pytestmark = [pytest.mark.root, pytest.mark.slow]

USUAL = ("-u", "1337", "-i", "*", "-b", "*", "--dual-stack")
TPROXY = ("-m", "TPROXY", *USUAL)
DNS = (*USUAL, "--redirect-dns", "--capture-all-dns")
NFT, LEGACY = "--force-iptables-binary=nft", "--force-iptables-binary=legacy"
NATIVE, LIBIPTC = "--native-nftables", "--backend=libiptc"
BACKENDS = (NFT, LEGACY, NATIVE, LIBIPTC)
TOOLS = ("iptables-legacy", "iptables-nft", "ip6tables-legacy", "ip6tables-nft")
WITHOUT_NET_ADMIN = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
SECCOMP = (sys.executable, str(ROOT / "tests" / "fakes" / "seccomp.py"))
PROFILE = "a seccomp profile or a security module must allow it"
READ_ONLY = (
    "unshare", "--mount", "sh", "-c",
    'mount -o remount,ro,bind / && mount -t tmpfs -o ro none /run && exec "$@"', "sh",
)  # fmt: skip
WITHOUT_PROC = ("unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh")
NOT_ALLOWED = "packet filter rules cannot be read or changed: the process needs CAP_NET_ADMIN"


def state(inside: Namespace) -> list[object]:
    """Return the rules of every backend, without empty tables and counters, and the routing."""
    lines = [line for tool in TOOLS for line in inside.run(f"{tool}-save").stdout.splitlines()]
    native = inside.run("nft", "-s", "list", "tables", "inet").stdout
    return [
        [line for line in lines if line.startswith(("-A", ":ISTIO"))],
        native,
        inside.policies(),
    ]


def refused(inside: Namespace, *argv: str, wrapper: Sequence[str] = (), **environ: str) -> str:
    """Run the command, which must fail and change nothing; return its one error."""
    before = state(inside)
    done = inside.capture(*argv, status=1, wrapper=tuple(wrapper), **environ)
    assert not done.stderr
    assert state(inside) == before
    (error,) = [line for line in done.stdout.splitlines() if "\terror\t" in line]
    return error.rpartition("\t")[2]


@pytest.mark.parametrize("is_installed", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_without_net_admin(inside: Namespace, backend: str, *, is_installed: bool) -> None:
    if is_installed:
        inside.capture(*USUAL, backend)

    for argv in (USUAL, TPROXY, (*USUAL, "--cleanup-only")):
        error = refused(inside, *argv, backend, wrapper=WITHOUT_NET_ADMIN)
        assert error == NOT_ALLOWED


def test_without_programs(inside: Namespace, tmp_path: Path) -> None:
    error = refused(inside, *USUAL, "--backend=iptables", PATH=str(tmp_path))

    missing = ("iptables-legacy-save", "iptables-nft-save", "iptables-save")
    assert error == (
        "no iptables for IPv4 can be used: "
        + "; ".join(f"{tool}: not found in PATH" for tool in missing)
        + ": install the package iptables, or python-iptables (mesh-agent[libiptc]), "
        "or nftables for --native-nftables"
    )


@pytest.mark.parametrize("argv", [USUAL, (*USUAL, LIBIPTC)])
def test_without_programs_and_without_the_library(
    inside: Namespace, tmp_path: Path, argv: Sequence[str]
) -> None:
    (tmp_path / "iptc.py").write_text("raise ImportError('not here')\n")

    error = refused(inside, *argv, PATH=str(tmp_path), PYTHONPATH=str(tmp_path))

    assert "libiptc: python-iptables (mesh-agent[libiptc]) cannot be used: not here" in error
    assert ": install the package iptables, or python-iptables" in error


def test_without_nft(inside: Namespace, tmp_path: Path) -> None:
    error = refused(inside, *USUAL, NATIVE, PATH=str(tmp_path))

    assert error.endswith("on the host filesystem: install the package nftables")


def test_a_read_only_file_system_is_enough_for_nft(inside: Namespace) -> None:
    for backend in ((), (NATIVE, "--reconcile")):
        inside.capture(*TPROXY, *backend, wrapper=READ_ONLY)

        assert state(inside)[2] == [(1337, 133)] * 2


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ((), ""),
        ((NFT,), ""),
        (
            (LEGACY,),
            "iptables-legacy-save: it prints the tables that /proc lists, which is not there",
        ),
        ((NATIVE,), ""),
    ],
)
def test_without_proc_what_the_legacy_tools_print_is_not_taken_for_all(
    inside: Namespace, backend: Sequence[str], said: str
) -> None:
    if said and backend:
        inside.capture(*USUAL, *backend)
        for argv in (USUAL, (*USUAL, "--cleanup-only")):
            assert said in refused(inside, *argv, *backend, wrapper=WITHOUT_PROC)
        return

    done = inside.run(
        sys.executable, "-m", "iptables", *USUAL, *backend, "--run-validation", wrapper=WITHOUT_PROC
    )

    assert "Validation passed" in done.stdout
    assert (NATIVE in backend) != ("which is not there: what it may have of ours" in done.stdout)


def test_without_proc_nftables_warns_of_rules_that_may_be_left(inside: Namespace) -> None:
    inside.capture(*USUAL, LEGACY)

    done = inside.capture(*USUAL, NATIVE, wrapper=WITHOUT_PROC)

    assert "legacy iptables tables may have rules of ours: iptables-legacy-save:" in done.stdout


@pytest.mark.parametrize("files", [8, 9])
@pytest.mark.parametrize("backend", [NFT, LEGACY, NATIVE])
def test_without_files_left(inside: Namespace, backend: str, files: int) -> None:
    error = refused(inside, *USUAL, backend, wrapper=("prlimit", f"--nofile={files}"))

    assert "cannot be run: Too many open files" in error


@pytest.mark.parametrize("backend", [LEGACY, LIBIPTC])
def test_a_read_only_file_system_has_no_lock_for_legacy_tables(
    inside: Namespace, backend: str
) -> None:
    error = refused(inside, *USUAL, backend, wrapper=READ_ONLY)

    assert error.endswith(
        "can't open lock file /run/xtables.lock: Read-only file system "
        "(XTABLES_LOCKFILE may name another that can be written)"
    )


@pytest.mark.parametrize(
    ("calls", "backend", "said"),
    [
        (
            "socket",
            NFT,
            f"addresses of this network namespace cannot be read: netlink: {{}}: {PROFILE}",
        ),
        ("clone,vfork", NFT, "iptables-nft-save: cannot be run: {}"),
        ("clone,vfork", NATIVE, "nft: exit status 126: cannot be run: {}"),
        ("sendmsg", NFT, "sendmsg() failed: {}"),
        ("sendmsg", NATIVE, "Could not process rule: {}"),
        ("setsockopt", LIBIPTC, "can't commit: '{}'"),
        ("setsockopt", LEGACY, "no reason is given: a seccomp profile may deny it"),
    ],
)
def test_a_seccomp_profile(inside: Namespace, calls: str, backend: str, said: str) -> None:
    error = refused(inside, *USUAL, backend, wrapper=(*SECCOMP, calls))

    assert said.format("Operation not permitted") in error
    assert "seccomp profile" in error


@pytest.mark.parametrize(
    ("library", "argv", "modules"),
    [
        ("libxt_owner.so", USUAL, "table nat needs the kernel modules nft_compat, xt_owner"),
        ("libxt_CT.so", DNS, "table raw needs the kernel modules nft_compat, xt_owner, xt_CT"),
        ("libxt_TPROXY.so", TPROXY, "table mangle needs the kernel modules nft_compat, xt_TPROXY"),
    ],
)
def test_an_extension_that_is_missing(
    inside: Namespace, tmp_path: Path, library: str, argv: Sequence[str], modules: str
) -> None:
    """Case I9."""
    (extensions,) = Path("/usr/lib").glob("*/xtables")
    for path in extensions.iterdir():
        if path.name != library:
            (tmp_path / path.name).symlink_to(path)

    error = refused(inside, *argv, NFT, XTABLES_LIBDIR=str(tmp_path))

    assert "iptables-nft-restore refused line " in error
    assert modules in error


#: What the tools say where the kernel has no owner match, or no nat table. This one has both.
NO_MATCH = """Warning: Extension owner revision 0 not supported, missing kernel module?
ip6tables-nft-restore v1.8.9 (nf_tables):
line 14: RULE_APPEND failed (No such file or directory): rule in chain ISTIO_OUTPUT
"""
NO_TABLE = """ip6tables-restore v1.8.9 (legacy): ip6tables-restore: unable to initialize table 'nat'

Error occurred at line: 1
"""


@pytest.mark.parametrize(
    ("variant", "said", "modules"),
    [("nft", NO_MATCH, "nft_compat, xt_owner"), ("legacy", NO_TABLE, "ip6table_nat")],
)
def test_a_kernel_module_that_is_missing(
    inside: Namespace, tmp_path: Path, variant: str, said: str, modules: str
) -> None:
    """Cases I6 and I12."""
    tool = tmp_path / f"ip6tables-{variant}-restore"
    tool.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{said}EOF\nexit 1\n")
    tool.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"

    error = refused(inside, *USUAL, f"--force-iptables-binary={variant}", PATH=path)

    assert error.endswith(f"(table nat needs the kernel modules {modules})")
