"""Proof with packets: which listener a connection reaches once its namespace is captured."""

import sys
from collections.abc import Iterator

import pytest

from tests.netns.pods import Pod, ask, become, linked_pod, running

pytestmark = [pytest.mark.root, pytest.mark.slow]

#: Stands in for Envoy, the agent's DNS and an application, on both families: whoever connects
#: is told the port that was reached.
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
APPLICATION, PROXY = become(5000, 5000), become(1337, 1337)
BACKENDS = ("--force-iptables-binary=nft", "--force-iptables-binary=legacy", "--native-nftables")
ARGUMENTS = ("-u", "1337", "-i", "*", "-b", "*", "-d", "15020", "--dual-stack")


@pytest.fixture
def pod() -> Iterator[Pod]:
    with linked_pod() as made:
        yield made


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_connection_reaches_its_listener(pod: Pod, backend: str) -> None:
    pod.inside.capture(*ARGUMENTS, backend)

    with running(pod.inside, SERVE, wrapper=PROXY):
        assert ask(pod.inside, "1.2.3.4 80", user=APPLICATION) == "15001"
        assert ask(pod.inside, "2001:db8:1::1 80", user=APPLICATION) == "15001"
        # The application and what shares its pod.
        assert ask(pod.inside, "10.9.0.1 8080", user=APPLICATION) == "8080"
        assert ask(pod.inside, "2001:db8::1 8080", user=APPLICATION) == "8080"
        assert ask(pod.inside, "127.0.0.1 8080", user=APPLICATION) == "8080"
        # What validation does.
        assert ask(pod.inside, "127.0.0.6 15002", user=PROXY) == "15006"
        assert ask(pod.inside, "::6 15002", user=PROXY, source="::1") == "15006"
        # Envoy's call of its own pod, as after load balancing.
        assert ask(pod.inside, "10.9.0.1 8080", user=PROXY) == "15006"
        assert ask(pod.inside, "10.9.0.1 15008", user=PROXY) == "15008"
        # Envoy's delivery to the application.
        assert ask(pod.inside, "127.0.0.1 8080", user=PROXY) == "8080"
        assert ask(pod.inside, "10.9.0.1 8080", user=PROXY, source="127.0.0.6") == "8080"
        assert ask(pod.inside, "2001:db8::1 8080", user=PROXY, source="::6") == "8080"


@pytest.mark.parametrize("backend", BACKENDS)
def test_after_cleanup_nothing_is_captured(pod: Pod, backend: str) -> None:
    pod.inside.capture(*ARGUMENTS, backend)
    pod.inside.capture(*ARGUMENTS, backend, "--cleanup-only")

    with running(pod.inside, SERVE, wrapper=PROXY):
        assert ask(pod.inside, "127.0.0.6 8080", user=PROXY) == "8080"


@pytest.mark.parametrize("backend", BACKENDS)
def test_dns_reaches_the_agent_unless_the_agent_asks(pod: Pod, backend: str) -> None:
    """Case I25: what the agent asks does not come back to it."""
    dns = ("--redirect-dns", "--capture-all-dns", backend)
    pod.inside.capture(*ARGUMENTS, *dns)

    with running(pod.inside, SERVE, wrapper=PROXY):
        for protocol in ("udp", "tcp"):
            for server in ("10.96.0.10", "127.0.0.53", "fd00::10"):
                target = f"{server} 53"
                assert ask(pod.inside, target, user=APPLICATION, protocol=protocol) == "15053"
            refused = ask(pod.inside, "127.0.0.53 53", user=PROXY, protocol=protocol)
            assert refused == "ConnectionRefusedError"


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_identity_of_the_proxy_is_known_if_asked_for(pod: Pod, backend: str) -> None:
    """An Envoy of uid 0 and gid 1337, as with capNetBindService: the uid's rules hide the gid's.

    Source: traffic-capture.md sections 17.6 and 17.7.
    """
    proxy = become(0, 1337)
    argv = (*ARGUMENTS, "--redirect-dns", "--capture-all-dns", backend)

    reached = {}
    for switch in ("false", "true"):
        pod.inside.capture(*argv, "--reconcile", AGENT_CAPTURE_ALL_PROXY_IDENTITIES=switch)
        with running(pod.inside, SERVE, wrapper=PROXY):
            reached[switch] = (
                ask(pod.inside, "10.9.0.1 8080", user=proxy),
                ask(pod.inside, "127.0.0.53 53", user=proxy),
                ask(pod.inside, "10.9.0.1 8080", user=APPLICATION),
                ask(pod.inside, "1.2.3.4 80", user=APPLICATION),
            )

    assert reached == {
        "false": ("8080", "15006", "8080", "15001"),
        "true": ("15006", "ConnectionRefusedError", "8080", "15001"),
    }


#: A nameserver on the node: answers each query with its port.
ANSWER = """
import socket, sys, threading
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("10.9.0.2", 53))
def serve():
    while True:
        _, client = server.recvfrom(100)
        server.sendto(b"53", client)
threading.Thread(target=serve, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("excluded", "group"),
    [
        (("-x", "10.9.0.0/30"), ""),
        (("-o", "53"), ""),
        (("-c", "eth0"), ""),
        ((), "5000"),
    ],
)
def test_an_excluded_query_is_one_flow_with_its_answer(
    pod: Pod, backend: str, excluded: tuple[str, ...], group: str
) -> None:
    """Source: traffic-capture.md section 17.17."""
    argv = (*ARGUMENTS, "--redirect-dns", "--capture-all-dns", *excluded, backend)
    pod.inside.capture(
        *argv, ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=group, AGENT_CAPTURE_DNS_EXCLUSIONS="true"
    )

    with running(pod.node, ANSWER):
        told = ask(pod.inside, "10.9.0.2 53", user=APPLICATION, protocol="udp")

    assert told == "53"
    tracked = pod.inside.run("cat", "/proc/net/nf_conntrack").stdout.splitlines()
    (flow,) = [line for line in tracked if "dport=53 " in line]
    assert "zone=1" in flow
    assert "UNREPLIED" not in flow


def test_a_flow_opened_before_is_captured_too(pod: Pod) -> None:
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
    pod.inside.run("iptables-nft", "-t", "nat", "-A", "POSTROUTING", "-p", "sctp", "-j", "RETURN")

    done = pod.inside.run(
        sys.executable, "-c", code, *ARGUMENTS, "--redirect-dns", "--capture-all-dns"
    )

    assert done.stdout == "after\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_inbound_connections_reach_envoy(pod: Pod, backend: str) -> None:
    pod.inside.capture(*ARGUMENTS, backend)

    with running(pod.inside, SERVE, wrapper=PROXY):
        assert ask(pod.node, "10.9.0.1 8080", user=APPLICATION) == "15006"
        assert ask(pod.node, "10.9.0.1 15020", user=APPLICATION) == "15020"
        assert ask(pod.node, "10.9.0.1 15008", user=APPLICATION) == "15008"
