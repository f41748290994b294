"""Proof with packets: which listener a connection reaches once its namespace is captured."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyroute2 import IPRoute

from tests.netns.namespaces import NSENTER, Namespace, namespace
from tests.netns.pods import PYTHON

pytestmark = [pytest.mark.root, pytest.mark.slow]

#: Stands in for Envoy, the agent's DNS and an application, on both families: whoever connects
#: is told the port that was reached. Ends with its standard input.
SERVE = """
import socket, socketserver, sys, threading
class Stream(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(str(self.server.server_address[1]).encode())
class Datagram(socketserver.BaseRequestHandler):
    def handle(self):
        self.request[1].sendto(str(self.server.server_address[1]).encode(), self.client_address)
class Streams(socketserver.ThreadingTCPServer):
    address_family, allow_reuse_address, daemon_threads = socket.AF_INET6, True, True
class Datagrams(socketserver.UDPServer):
    address_family = socket.AF_INET6
ports = (15001, 15006, 15008, 8080, 15020, 15053)
servers = [Streams(("::", port), Stream) for port in ports]
servers.append(Datagrams(("::1", 15053), Datagram))
Datagrams.address_family = socket.AF_INET
servers.append(Datagrams(("127.0.0.1", 15053), Datagram))
for server in servers:
    threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""
#: Connects from a source, '-' for any, and prints which port was reached, or what went wrong.
ASK = """
import socket, sys
protocol, host, port, source = sys.argv[1:]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
with socket.socket(family, kind) as client:
    client.settimeout(5)
    if source != "-":
        client.bind((source, 0))
    try:
        client.connect((host, int(port)))
        client.send(b"?")
        print(client.recv(100).decode())
    except OSError as error:
        print(type(error).__name__)
"""
APPLICATION, PROXY = "5000", "1337"
BACKENDS = ("--force-iptables-binary=nft", "--force-iptables-binary=legacy", "--native-nftables")
ARGUMENTS = ("-u", "1337", "-i", "*", "-b", "*", "-d", "15020", "--dual-stack")


@pytest.fixture
def pod() -> Iterator[Namespace]:
    """Return a namespace with a link that leads nowhere, and routes over it."""
    with namespace() as made:
        with IPRoute(netns=made.name) as kernel:
            kernel.link("add", ifname="eth0", kind="veth", peer="far")
            for name in ("eth0", "far"):
                (index,) = kernel.link_lookup(ifname=name)
                kernel.link("set", index=index, state="up")
            (index,) = kernel.link_lookup(ifname="eth0")
            kernel.addr("add", index=index, address="10.9.0.1", prefixlen=24)
            kernel.addr("add", index=index, address="2001:db8::1", prefixlen=64, flags=2)  # NODAD
            kernel.route("add", dst="default", gateway="10.9.0.2")
            kernel.route("add", dst="default", family=10, oif=index)
        yield made


def become(user: str) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")


@contextmanager
def serving(pod: Namespace) -> Iterator[None]:
    """Let every listener run as the proxy's user while the block runs."""
    argv = [NSENTER, f"--net={pod.path}", *become(PROXY), PYTHON, "-c", SERVE]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout
        assert server.stdout.readline() == b"ready\n"
        yield
        server.communicate()


def ask(pod: Namespace, user: str, protocol: str, target: str, source: str = "-") -> str:
    """Return which port was reached; the target is 'host port'."""
    argv = (PYTHON, "-c", ASK, protocol, *target.split(), source)
    return pod.run(*argv, wrapper=become(user)).stdout.strip()


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_connection_reaches_its_listener(pod: Namespace, backend: str) -> None:
    pod.run(sys.executable, "-m", "iptables", *ARGUMENTS, backend)

    with serving(pod):
        assert ask(pod, APPLICATION, "tcp", "1.2.3.4 80") == "15001"
        assert ask(pod, APPLICATION, "tcp", "2001:db8:1::1 80") == "15001"
        # The application and what shares its pod.
        assert ask(pod, APPLICATION, "tcp", "10.9.0.1 8080") == "8080"
        assert ask(pod, APPLICATION, "tcp", "2001:db8::1 8080") == "8080"
        assert ask(pod, APPLICATION, "tcp", "127.0.0.1 8080") == "8080"
        # What validation does.
        assert ask(pod, PROXY, "tcp", "127.0.0.6 15002") == "15006"
        assert ask(pod, PROXY, "tcp", "::6 15002", source="::1") == "15006"
        # Envoy's call of its own pod, as after load balancing.
        assert ask(pod, PROXY, "tcp", "10.9.0.1 8080") == "15006"
        assert ask(pod, PROXY, "tcp", "10.9.0.1 15008") == "15008"
        # Envoy's delivery to the application.
        assert ask(pod, PROXY, "tcp", "127.0.0.1 8080") == "8080"
        assert ask(pod, PROXY, "tcp", "10.9.0.1 8080", source="127.0.0.6") == "8080"
        assert ask(pod, PROXY, "tcp", "2001:db8::1 8080", source="::6") == "8080"


@pytest.mark.parametrize("backend", BACKENDS)
def test_after_cleanup_nothing_is_captured(pod: Namespace, backend: str) -> None:
    pod.run(sys.executable, "-m", "iptables", *ARGUMENTS, backend)
    pod.run(sys.executable, "-m", "iptables", *ARGUMENTS, backend, "--cleanup-only")

    with serving(pod):
        assert ask(pod, PROXY, "tcp", "127.0.0.6 8080") == "8080"


@pytest.mark.parametrize("backend", BACKENDS)
def test_dns_reaches_the_agent_unless_the_agent_asks(pod: Namespace, backend: str) -> None:
    """Case I25: what the agent asks does not come back to it."""
    dns = ("--redirect-dns", "--capture-all-dns", backend)
    pod.run(sys.executable, "-m", "iptables", *ARGUMENTS, *dns)

    with serving(pod):
        for protocol in ("udp", "tcp"):
            for server in ("10.96.0.10", "127.0.0.53", "fd00::10"):
                assert ask(pod, APPLICATION, protocol, f"{server} 53") == "15053"
            assert ask(pod, PROXY, protocol, "127.0.0.53 53") == "ConnectionRefusedError"


def test_a_flow_opened_before_is_captured_too(pod: Namespace) -> None:
    """Case I22."""
    code = """
import socket, subprocess, sys
agent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
agent.bind(("127.0.0.1", 15053))
agent.settimeout(2)
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect(("10.96.0.10", 53))
client.send(b"before")
subprocess.run([sys.executable, "-m", "iptables", *sys.argv[1:]], check=True, stdout=2)
client.send(b"after")
print(agent.recv(100).decode())
"""
    # Connection tracking is on already, as in a pod whose node tracks for its own rules.
    pod.run("iptables-nft", "-t", "nat", "-A", "POSTROUTING", "-p", "sctp", "-j", "RETURN")

    done = pod.run(sys.executable, "-c", code, *ARGUMENTS, "--redirect-dns", "--capture-all-dns")

    assert done.stdout == "after\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_inbound_connections_reach_envoy(pod: Namespace, backend: str) -> None:
    pod.run(sys.executable, "-m", "iptables", *ARGUMENTS, backend)
    with namespace() as outside, serving(pod):
        with IPRoute(netns=pod.name) as kernel:
            (far,) = kernel.link_lookup(ifname="far")
            kernel.link("set", index=far, net_ns_fd=outside.name)
        with IPRoute(netns=outside.name) as kernel:
            (far,) = kernel.link_lookup(ifname="far")
            kernel.link("set", index=far, state="up")
            kernel.addr("add", index=far, address="10.9.0.2", prefixlen=24)

        assert ask(outside, APPLICATION, "tcp", "10.9.0.1 8080") == "15006"
        assert ask(outside, APPLICATION, "tcp", "10.9.0.1 15020") == "15020"
        assert ask(outside, APPLICATION, "tcp", "10.9.0.1 15008") == "15008"
