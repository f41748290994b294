"""Command lines that run a program inside a pod: which namespaces, which user, which capabilities.

Everything is done by util-linux, so that `agent demo --keep` can print what a user types.
"""

import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple


class Credentials(NamedTuple):
    """Who a program runs as; supplementary groups are always dropped."""

    uid: int
    gid: int
    #: Names such as "net_admin". Only uid 0 gets them when it executes a program.
    capabilities: tuple[str, ...] = ()


#: securityContext of the injected containers. Source: bootstrap.md section 1.10.
ISTIO_INIT: Final = Credentials(0, 0, ("net_admin", "net_raw"))
ISTIO_PROXY: Final = Credentials(1337, 1337)
APPLICATION: Final = Credentials(1000, 1000)


def hold(*, mounts: bool) -> list[str]:
    """Return a program that makes namespaces and keeps them until its standard input ends.

    It echoes what it reads, which tells when the namespaces are there. It dies with its parent,
    so that nobody can leave a namespace behind.
    """
    kinds = ["--net", "--mount", "--propagation=private"] if mounts else ["--net"]
    return ["setpriv", "--pdeathsig=KILL", "--", "unshare", *kinds, "--", "cat"]


def enter(
    holder: int,
    argv: Sequence[str],
    *,
    mounts: bool = False,
    credentials: Credentials | None = None,
    directory: str = "/",
) -> list[str]:
    """Return the command that runs `argv` in the namespaces of a process, and dies with its parent.

    Args:
        holder: the process whose network namespace is entered.
        argv: the program, looked up in PATH, and its arguments.
        mounts: enter its mount namespace too.
        credentials: who to become; without, root as it is.
        directory: the working directory, as the mount namespace entered sees it.
    """
    return [
        *("nsenter", f"--target={holder}", "--net", *(["--mount"] if mounts else []), "--"),
        *("env", f"--chdir={directory}"),
        *("setpriv", "--pdeathsig=KILL", *_restrict(credentials), "--", *argv),
    ]


def identify_root(pid: int) -> list[str]:
    """Return the command that prints device and inode of the root of a process's mounts."""
    return ["nsenter", f"--target={pid}", "--mount", "--", "stat", "--format=%d:%i", "/"]


def look_around(
    pod: int,
    node: int,
    directory: str,
    program: Sequence[str],
    request: Sequence[str],
    *,
    page: str,
) -> list[str]:
    """Return lines that tell a user how to look at a running pod.

    Args:
        pod: a process in the pod.
        node: a process on its node.
        directory: where the run keeps its files.
        program: the command that starts this agent.
        request: the command that asks the application from the node.
        page: where a browser finds the agent's page.
    """
    into_pod, into_node = f"nsenter -t {pod} -n -m", f"nsenter -t {node} -n"
    agent = f"{into_pod} {shlex.join(program)}"
    lines = (
        ("the agent's page", page),
        ("a shell in the pod", f"{into_pod} sh"),
        ("its rules", f"{into_pod} iptables-save -t nat"),
        ("what Envoy was sent", f"{agent} xds status"),
        ("Envoy's counters", f"{agent} request GET stats"),
        ("the agent's metrics", f"{agent} request --debug-port 15020 GET metrics"),
        ("the agent's log", f"tail -f {directory}/agent.log"),
        ("its files", f"ls -lR {directory}/pod"),
        ("a request from the node", f"{into_node} {shlex.join(request)}"),
    )
    return [f"{what + ':':<25}{line}" for what, line in lines]


def _restrict(credentials: Credentials | None) -> list[str]:
    if credentials is None:
        return []
    kept = "".join(f",+{name}" for name in credentials.capabilities)
    return [
        f"--reuid={credentials.uid}",
        f"--regid={credentials.gid}",
        "--clear-groups",
        "--inh-caps=-all",
        f"--bounding-set=-all{kept}",
        "--no-new-privs",
    ]
