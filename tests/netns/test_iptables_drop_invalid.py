"""`--drop-invalid`: a segment outside its connection's window is dropped, and breaks nothing.

Connection tracking takes it for no part of the connection, so it is not redirected like the rest,
and reaches a port where nobody knows of a connection. The answer is a reset.
"""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.netns.namespaces import NSENTER, ROOT
from tests.netns.pods import Pod, become, linked_pod, running

pytestmark = [pytest.mark.root, pytest.mark.slow]

#: Stands in for Envoy: sends back what it is sent.
ECHO = """
import socket, socketserver, sys, threading
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(100):
            self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    address_family, daemon_threads = socket.AF_INET6, True
server = Server(("::", 15006), Echo)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""
#: Connects, sends a bare ACK whose sequence number is far outside the window, as a host that has
#: lost the connection's state might, and at a line of input tells what became of the connection.
CLIENT = """
import socket, struct, sys
host, port = sys.argv[1:]
client = socket.create_connection((host, int(port)))
client.settimeout(5)
client.sendall(b"1")
assert client.recv(100) == b"1"

TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ, RECEIVED, SENT, OFF = 19, 20, 21, 1, 2, -1
client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
numbers = {}
for queue in (RECEIVED, SENT):
    client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR_QUEUE, queue)
    numbers[queue] = client.getsockopt(socket.IPPROTO_TCP, TCP_QUEUE_SEQ) & 0xffffffff
client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, OFF)

def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff

family, ACK = client.family, 0x10
mine, theirs = client.getsockname(), client.getpeername()
ports = mine[1], theirs[1]
far = (numbers[SENT] + 1_000_000_000) & 0xffffffff
fields = (*ports, far, numbers[RECEIVED], 5 << 4, ACK, 1000)
addresses = socket.inet_pton(family, mine[0]) + socket.inet_pton(family, theirs[0])
segment = struct.pack("!HHIIBBHHH", *fields, 0, 0)
pseudo = addresses + struct.pack("!II", len(segment), socket.IPPROTO_TCP)
segment = struct.pack("!HHIIBBHHH", *fields, checksum(pseudo + segment), 0)
with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
    raw.sendto(segment, (theirs[0], 0))
print("sent", flush=True)
sys.stdin.readline()
try:
    client.sendall(b"2")
    print("answered" if client.recv(100) == b"2" else "closed")
except OSError as error:
    print(type(error).__name__)
"""
BACKENDS = ("--force-iptables-binary=nft", "--force-iptables-binary=legacy", "--native-nftables")
CAPTURE = (sys.executable, "-m", "iptables", "-u", "1337", "-i", "*", "-b", "*", "--dual-stack")


@pytest.fixture
def pod() -> Iterator[Pod]:
    with linked_pod() as made, running(made.inside, ECHO, wrapper=become(1337, 1337)):
        yield made


def fate(pod: Pod, host: str) -> str:
    """Return what becomes of a connection from outside after a segment that is none of it."""
    argv = [NSENTER, f"--net={pod.node.path}", sys.executable, "-c", CLIENT, host, "8080"]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as client:
        assert client.stdout
        assert client.stdout.readline() == "sent\n"
        printed, _ = client.communicate("\n")
    return printed.strip()


@pytest.mark.parametrize("host", ["10.9.0.1", "2001:db8::1"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_segment_outside_the_window_breaks_a_connection_unless_dropped(
    pod: Pod, backend: str, host: str
) -> None:
    """Case I20."""
    pod.inside.run(*CAPTURE, backend)
    without = fate(pod, host)
    pod.inside.run(*CAPTURE, backend, "--drop-invalid", "--reconcile")
    dropping = fate(pod, host)

    assert (without, dropping) == ("ConnectionResetError", "answered")
