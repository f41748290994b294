"""TPROXY: its policy rules and routes, and proof with packets that addresses are kept."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyroute2 import IPRoute

from tests.netns.namespaces import Namespace
from tests.netns.pods import Pod, ask, become, linked_pod, running

pytestmark = [pytest.mark.root, pytest.mark.slow]

FAMILIES = {4: 2, 6: 10}
EVERYTHING = {4: "0.0.0.0/0", 6: "::/0"}
TPROXY = ("-m", "TPROXY", "-u", "1337", "-i", "*", "-b", "*", "-d", "15020", "--dual-stack")
#: In TPROXY mode the injector has Envoy run so. Source: traffic-capture.md section 4.1.
PROXY, APPLICATION = become(0, 1337), become(5000, 5000)
#: Answers on every port named with the address that the connection comes from.
APPLICATION_SERVER = """
import socketserver, socket, sys, threading
class Say(socketserver.BaseRequestHandler):
    def handle(self):
        client = self.client_address[0].removeprefix("::ffff:")
        self.request.sendall(f"application saw {client}".encode())
class Server(socketserver.ThreadingTCPServer):
    address_family, allow_reuse_address, daemon_threads = socket.AF_INET6, True, True
for port in (8080, 15020):
    threading.Thread(target=Server(("::", port), Say).serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""
#: As Envoy with original_src: what comes in is passed on from the client's address, marked.
ENVOY = """
import socket, socketserver, sys, threading
MARK, TRANSPARENT = 1337, {socket.AF_INET: (socket.SOL_IP, 19), socket.AF_INET6: (41, 75)}
class Pass(socketserver.BaseRequestHandler):
    def handle(self):
        host, port = self.request.getsockname()[:2]
        upstream = socket.socket(self.request.family)
        upstream.setsockopt(*TRANSPARENT[self.request.family], 1)
        upstream.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
        upstream.bind((self.client_address[0], 0))
        upstream.settimeout(5)
        upstream.connect((host, port))
        answer = upstream.recv(100).decode()
        self.request.sendall(f"Envoy got {host} {port}, {answer}".encode())
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads = True, True
    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self.socket.setsockopt(*TRANSPARENT[self.address_family], 1)
        super().server_bind()
servers = [Server(("0.0.0.0", 15006), Pass)]
Server.address_family = socket.AF_INET6
servers.append(Server(("::", 15006), Pass))
for server in servers:
    threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def pod() -> Iterator[Pod]:
    with linked_pod() as made:
        yield made


def routing(inside: Namespace) -> dict[int, list[Any]]:
    """Return, by family, policy rules that match marks, and the local routes beside table local."""
    found = {}
    with IPRoute(netns=inside.name) as kernel:
        for family, number in FAMILIES.items():
            rules = [
                (rule.get("fwmark"), rule.get("table"))
                for rule in kernel.get_rules(family=number)
                if rule.get("fwmark")
            ]
            routes = [
                (route.get("table"), route["dst_len"], route.get("oif"))
                for route in kernel.get_routes(family=number, type=2)
                if route.get("table") not in (253, 254, 255)
            ]
            found[family] = [*rules, *routes]
    return found


BACKENDS = ("--force-iptables-binary=nft", "--force-iptables-binary=legacy", "--native-nftables")
NOTHING: dict[int, list[Any]] = {4: [], 6: []}
USUAL = {family: [(1337, 133), (133, 0, 1)] for family in FAMILIES}


def test_rules_and_routes_are_there_once_and_go(inside: Namespace) -> None:
    """Source: traffic-capture.md section 17.2 and 17.3."""
    inside.capture(*TPROXY)
    first = routing(inside)
    again = inside.capture(*TPROXY)

    assert first == USUAL
    assert routing(inside) == first
    assert "reconciliation not needed" in again.stdout
    assert "Added" not in again.stdout
    inside.capture("--cleanup-only")
    assert routing(inside) == NOTHING


def test_duplicates_of_another_agent_go(inside: Namespace) -> None:
    with IPRoute(netns=inside.name) as kernel:
        for priority in (100, 200):
            kernel.rule("add", fwmark=1337, table=133, priority=priority)

    inside.capture(*TPROXY)

    assert routing(inside) == USUAL


def test_routes_go_whatever_their_protocol(inside: Namespace) -> None:
    """As `ip route` and the reference add them: of protocol boot, not static."""
    inside.capture(*TPROXY)
    with IPRoute(netns=inside.name) as kernel:
        for family, number in FAMILIES.items():
            route = {"family": number, "dst": EVERYTHING[family], "type": "local", "oif": 1}
            kernel.route("del", **route, scope="host", table=133)
            kernel.route("add", **route, scope="host", table=133, proto=3)

    inside.capture("--cleanup-only")

    assert routing(inside) == NOTHING


def test_an_interrupted_clean_up_is_completed_by_its_configuration(inside: Namespace) -> None:
    with IPRoute(netns=inside.name) as kernel:
        kernel.rule("add", fwmark=1337, table=133)
        kernel.route("add", dst="0.0.0.0/0", type="local", scope="host", oif=1, table=133)

    inside.capture(*TPROXY, "--cleanup-only")

    assert routing(inside) == NOTHING


def test_another_mark_and_another_mode_leave_nothing_of_the_first(inside: Namespace) -> None:
    inside.capture(*TPROXY)
    inside.capture(*TPROXY, "-t", "99", "-r", "7700", "--reconcile")

    assert routing(inside) == {family: [(99, 7700), (7700, 0, 1)] for family in FAMILIES}
    inside.capture("-i", "*", "--dual-stack", "--reconcile")
    assert routing(inside) == NOTHING


def test_rules_of_others_stay(inside: Namespace) -> None:
    with IPRoute(netns=inside.name) as kernel:
        kernel.rule("add", fwmark=7, table=133, priority=300)
        kernel.rule("add", fwmark=1337, fwmask=0xFFFF, table=9, priority=301)
        kernel.rule("add", fwmark=1337, src="10.0.0.0", src_len=8, table=9, priority=302)
    before = routing(inside)

    inside.capture(*TPROXY)
    inside.capture(*TPROXY, "--cleanup-only")

    assert routing(inside) == before


def test_without_captured_ports_no_route_is_needed(inside: Namespace) -> None:
    inside.capture("-m", "TPROXY", "-b", "", "-i", "*")

    assert routing(inside) == NOTHING


@pytest.mark.parametrize("was_installed", [False, True])
def test_refused_rules_leave_the_routing_as_it_was(
    inside: Namespace, tmp_path: Path, *, was_installed: bool
) -> None:
    for tool in ("ip6tables-nft-restore", "ip6tables-legacy-restore"):
        (tmp_path / tool).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / tool).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    if was_installed:
        inside.capture(*TPROXY)
    before = routing(inside)

    if was_installed:
        inside.capture("--cleanup-only", status=1, PATH=path)
    else:
        inside.capture(*TPROXY, status=1, PATH=path)

    assert routing(inside) == before
    addresses = inside.python(
        "import json; from iptables import client; print(json.dumps(client.interface_addresses()))"
    )
    assert ("::6" in [item[3] for item in json.loads(addresses)]) is was_installed


def imported(inside: Namespace, *argv: str) -> set[str]:
    """Return the modules that the command imports, its own child's among them."""
    done = inside.run(sys.executable, "-X", "importtime", "-m", "iptables", *argv)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_the_usual_mode_does_not_load_the_library(inside: Namespace) -> None:
    for action in ("--dual-stack", "--cleanup-only"):
        names = imported(inside, "-i", "*", action)

        assert "iptables.routing.client" in names
        assert not [name for name in names if name.startswith("pyroute2")]


def test_of_the_library_its_messages_alone_are_loaded(inside: Namespace) -> None:
    names = imported(inside, *TPROXY)

    assert {"pyroute2.netlink.rtnl.fibmsg", "pyroute2.netlink.rtnl.rtmsg"} <= names
    assert not names & {"pyroute2", "pyroute2.iproute", "asyncio"}


@pytest.mark.parametrize("before", ["", "import pyroute2"])
def test_the_library_works_beside_the_command(inside: Namespace, before: str) -> None:
    code = f"""
import sys
{before}
from iptables.cli import main
main(sys.argv[1:], {{}})
from pyroute2 import IPRoute
with IPRoute() as kernel:
    print([rule.get("fwmark") for rule in kernel.get_rules(family=2) if rule.get("fwmark")])
"""
    inside.capture(*TPROXY)

    done = inside.run(sys.executable, "-c", code, "--log_target=stderr", *TPROXY)

    assert done.stdout == "[1337]\n"
    assert "reconciliation not needed" in done.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_connections_keep_their_addresses(pod: Pod, backend: str) -> None:
    pod.inside.capture(*TPROXY, backend, "--reconcile")

    with (
        running(pod.inside, APPLICATION_SERVER, wrapper=APPLICATION),
        running(pod.inside, ENVOY, wrapper=PROXY),
    ):
        for mine, node in (("10.9.0.1", "10.9.0.2"), ("2001:db8::1", "2001:db8::2")):
            told = ask(pod.node, f"{mine} 8080", user=APPLICATION)
            assert told == f"Envoy got {mine} 8080, application saw {node}"
            told = ask(pod.node, f"{mine} 15020", user=APPLICATION)
            assert told == f"application saw {node}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_of_the_own_pod_is_captured_for_envoy_alone(pod: Pod, backend: str) -> None:
    """Source: traffic-capture.md, R21."""
    pod.inside.capture(*TPROXY, backend, "--reconcile")

    with (
        running(pod.inside, APPLICATION_SERVER, wrapper=APPLICATION),
        running(pod.inside, ENVOY, wrapper=PROXY),
    ):
        for mine in ("10.9.0.1", "2001:db8::1"):
            told = ask(pod.inside, f"{mine} 8080", user=APPLICATION)
            assert told == f"application saw {mine}"
            told = ask(pod.inside, f"{mine} 8080", user=PROXY)
            assert told == f"Envoy got {mine} 8080, application saw {mine}"
