"""A pod whose DNS is captured: real rules, the agent's proxy, a resolver on the node."""

import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.netns.namespaces import ROOT, Namespace
from tests.netns.pods import Pod, become, linked_pod, running

#: For programs of users who may not look where the clone lies.
IMPORTS = ("env", f"PYTHONPATH={sysconfig.get_paths()['purelib']}:{ROOT}")
READING = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
APPLICATION = become(5000, 5000)
PROXY = (*IMPORTS, *become(1337, 1337), *READING)
NODE_IPV4, NODE_IPV6 = "10.9.0.2", "2001:db8::2"
SEARCH = "ns1.svc.cluster.local svc.cluster.local cluster.local"
#: Answers www.bing.com on port 53 of the given addresses, and writes down who asks for what.
RESOLVER = """
import dns.flags, dns.message, dns.rcode, dns.rrset, socket, socketserver, sys, threading
path, *hosts = sys.argv[1:]
RECORDS = {"A": "204.79.197.200", "AAAA": "2620:1ec:c11::200"}
def answer(wire, peer, over):
    query = dns.message.from_wire(wire)
    name, kind = query.question[0].name, query.question[0].rdtype.name
    with open(path, "a") as log:
        log.write(f"{over} {peer[1]} {name} {kind}\\n")
    reply = dns.message.make_response(query, recursion_available=True)
    if name.to_text().lower() != "www.bing.com.":
        reply.set_rcode(dns.rcode.NXDOMAIN)
    elif kind in RECORDS:
        reply.answer.append(dns.rrset.from_text(name, 60, "IN", kind, RECORDS[kind]))
    return reply.to_wire()
class Datagram(socketserver.BaseRequestHandler):
    def handle(self):
        wire, sock = self.request
        sock.sendto(answer(wire, self.client_address, "udp"), self.client_address)
class Stream(socketserver.StreamRequestHandler):
    def handle(self):
        wire = self.rfile.read(int.from_bytes(self.rfile.read(2), "big"))
        reply = answer(wire, self.client_address, "tcp")
        self.wfile.write(len(reply).to_bytes(2, "big") + reply)
for base, handler in (
    (socketserver.ThreadingUDPServer, Datagram), (socketserver.ThreadingTCPServer, Stream)
):
    base.daemon_threads = base.allow_reuse_address = True
    for host in hosts:
        base.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        threading.Thread(target=base((host, 53), handler).serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""
#: A resolver on the pod's own loopback, as dnsmasq: it passes everything on, once.
LOCAL_FORWARDER = """
import socket, sys, threading
path, upstream = sys.argv[1:]
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
def serve():
    while True:
        wire, peer = server.recvfrom(4096)
        with open(path, "a") as log:
            log.write(f"{len(wire)}\\n")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(5)
            client.sendto(wire, (upstream, 53))
            server.sendto(client.recv(4096), peer)
threading.Thread(target=serve, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""
#: The agent's DNS proxy with the table of the specification's cases.
AGENT = """
import asyncio, sys
from agent.dns.run import serving
from agent.dns.settings import DnsSettings
from agent.metrics import Metrics
from tests.fakes.dns_table import DOMAIN, NAMESPACE, TABLE, serialised
async def main():
    settings = DnsSettings(
        enabled=True, namespace=NAMESPACE, domain=DOMAIN, timeout_seconds=1.0
    )
    async with serving(settings, Metrics()) as proxy:
        await proxy.replace(serialised(TABLE))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""


class DnsPod:
    """A pod, how to run programs in it, and what its resolver was asked."""

    def __init__(self, pod: Pod, directory: Path) -> None:
        self.pod = pod
        self.directory = directory
        self.resolv_conf = directory / "resolv.conf"
        self.log = directory / "asked"
        self.log.touch(mode=0o666)
        self.log.chmod(0o666)

    def mounted(self, user: Sequence[str] = ()) -> tuple[str, ...]:
        """Return what runs a command as a user, with the pod's resolv.conf in its place."""
        script = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        unshare = ("unshare", "--mount", "--propagation", "private")
        return (*unshare, "sh", "-c", script, str(self.resolv_conf), *user)

    def run(
        self, *argv: str, user: Sequence[str] = APPLICATION, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the pod, as the application unless told otherwise."""
        return self.pod.inside.run(*argv, wrapper=self.mounted(user), check=check)

    def asked(self) -> list[str]:
        """Return what the resolver was asked, as 'udp 40000 www.bing.com. A'."""
        return self.log.read_text().splitlines()


@contextmanager
def dns_pod(
    directory: Path,
    *flags: str,
    nameservers: Sequence[str] = (NODE_IPV4,),
    forwarder: bool = False,
    agent: Sequence[str] = PROXY,
) -> Iterator[DnsPod]:
    """Make a pod whose DNS is captured.

    Args:
        directory: for its files.
        flags: further ones of istio-iptables.
        nameservers: of the pod's resolv.conf.
        forwarder: whether a resolver on the pod's own loopback passes queries on to the node.
        agent: what the agent's proxy is put behind to run as its user.
    """
    with ExitStack() as stack:
        made = DnsPod(stack.enter_context(linked_pod()), directory)
        lines = "".join(f"nameserver {address}\n" for address in nameservers)
        made.resolv_conf.write_text(f"search {SEARCH}\n{lines}options ndots:5 timeout:3\n")
        stack.enter_context(running(made.pod.node, RESOLVER, str(made.log), NODE_IPV4, NODE_IPV6))
        inside: Namespace = made.pod.inside
        if forwarder:
            log = directory / "forwarded"
            log.touch()
            stack.enter_context(running(inside, LOCAL_FORWARDER, str(log), NODE_IPV4))
        capture = ("-m", "agent", "istio-iptables", "-u", "1337", "-i", "*", "-b", "*")
        made.run(sys.executable, *capture, "--redirect-dns", *flags, user=())
        stack.enter_context(running(inside, AGENT, wrapper=made.mounted(agent)))
        yield made
