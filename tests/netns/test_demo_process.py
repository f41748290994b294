"""Namespaces that live as long as their user, and processes inside them."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.demo.addresses import CABLE
from agent.demo.commands import ISTIO_INIT, ISTIO_PROXY
from agent.demo.process import Namespace, first_gone, kill, namespace, network
from tests.waiting import block_until

pytestmark = pytest.mark.root

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 9), timeout=5)"
MAKE_AND_WAIT = """
from agent.demo.process import namespace
with namespace() as made:
    sleeper = made.spawn(["sh", "-c", "echo; exec sleep 60"], stdout=-1)
    sleeper.stdout.readline()
    print(made.holder, sleeper.pid, flush=True)
    input()
"""


@pytest.fixture(scope="module")
def joined() -> Iterator[tuple[Namespace, Namespace]]:
    with network() as (node, pod):
        yield node, pod


def status(of: Namespace, **how: object) -> dict[str, str]:
    credentials = how.get("credentials")
    assert credentials is None or isinstance(credentials, type(ISTIO_PROXY))
    text = of.run(["cat", "/proc/self/status"], credentials=credentials).stdout
    return {key: value.strip() for key, _, value in (x.partition(":") for x in text.splitlines())}


@pytest.mark.parametrize("address", [CABLE.pod_ipv4, CABLE.pod_ipv6])
def test_the_node_reaches_the_pod_at_once(
    joined: tuple[Namespace, Namespace], address: str
) -> None:
    node, _ = joined

    tried = node.run([sys.executable, "-I", "-c", CONNECT, address])

    assert "ConnectionRefusedError" in tried.stderr


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_the_pod_has_a_route_to_everywhere(
    joined: tuple[Namespace, Namespace], address: str
) -> None:
    _, pod = joined
    with pod.netlink() as netlink:
        route = netlink.route("get", dst=address)[0]

    assert route.get("gateway") in (CABLE.node_ipv4, CABLE.node_ipv6)


def test_the_sidecar_runs_without_capabilities(joined: tuple[Namespace, Namespace]) -> None:
    shown = status(joined[1], credentials=ISTIO_PROXY)

    assert shown["Uid"].split() == ["1337"] * 4
    assert shown["Gid"].split() == ["1337"] * 4
    assert shown["Groups"] == ""
    assert {int(shown[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert shown["NoNewPrivs"] == "1"


def test_the_init_container_has_exactly_two_capabilities(
    joined: tuple[Namespace, Namespace],
) -> None:
    shown = status(joined[1], credentials=ISTIO_INIT)

    assert int(shown["CapEff"], 16) == 1 << 12 | 1 << 13  # NET_ADMIN, NET_RAW


def test_what_runs_inside_is_listed() -> None:
    with namespace() as made, made.spawn(["sleep", "60"]) as sleeper:
        assert made.holder in made.processes()
        kill(sleeper.pid)

        assert sleeper.wait() == -signal.SIGKILL
        assert made.processes() == [made.holder]


def test_leaving_kills_whatever_runs_inside() -> None:
    with namespace() as made:
        sleeper = made.spawn(["sleep", "60"])
        block_until(lambda: sleeper.pid in made.processes())

    assert sleeper.wait() == -signal.SIGKILL
    assert made.processes() == []


def test_an_error_inside_removes_the_namespace() -> None:
    with pytest.raises(ZeroDivisionError), namespace() as made:
        raise ZeroDivisionError

    assert not Path(f"/proc/{made.holder}").exists()


def test_a_killed_user_leaves_no_namespace_and_no_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAKE_AND_WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout
        pids = [int(word) for word in user.stdout.readline().split()]

        user.kill()

    assert [first_gone([pid], 10) for pid in pids] == pids
