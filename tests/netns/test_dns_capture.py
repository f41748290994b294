"""Applications in a pod whose DNS is captured: whatever they resolve with, the answer is right.

Source: xds-identity-dns.md section 8; traffic-capture.md sections 5.3 and 6.4; cases.md I21, I25.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns.dns_pods import IMPORTS, NODE_IPV4, NODE_IPV6, PROXY, DnsPod, dns_pod
from tests.netns.pods import PYTHON

pytestmark = [pytest.mark.root, pytest.mark.slow]

BING = "204.79.197.200"
BING_IPV6 = "2620:1ec:c11::200"
NAMES = {
    "productpage": "9.9.9.9",
    "productpage.ns1": "9.9.9.9",
    "productpage.ns1.svc.cluster.local": "9.9.9.9",
    "example.ns2": "10.10.10.10",
    "example.ns2.svc": "10.10.10.10",
    "www.google.com": "1.1.1.1",
    "foo.wildcard": "10.10.10.10",
    "www.bing.com": BING,
}
PYTHONS = """
import socket, sys
for name in sys.argv[1:]:
    print(name, *sorted({found[4][0] for found in socket.getaddrinfo(name, 80)}))
"""
MUSL = """
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
int main(int argc, char **argv) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    for (int i = 1; i < argc; i++) {
        int code = getaddrinfo(argv[i], "80", &hints, &found);
        printf("%s %s\\n", argv[i], code ? gai_strerror(code)
               : inet_ntoa(((struct sockaddr_in *)found->ai_addr)->sin_addr));
    }
}
"""


@pytest.fixture(scope="module", params=["iptables", "nftables"])
def pod(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DnsPod]:
    directory = tmp_path_factory.mktemp("dns")
    directory.chmod(0o755)
    flags = ("--native-nftables",) if request.param == "nftables" else ()
    with dns_pod(directory, *flags) as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_glibc_resolves(pod: DnsPod, name: str) -> None:
    found = pod.run("getent", "ahostsv4", name).stdout

    assert set(re.findall(r"^\S+", found, re.MULTILINE)) == {NAMES[name]}


def test_glibc_resolves_both_families_at_once(pod: DnsPod) -> None:
    found = pod.run("getent", "ahosts", "www.bing.com").stdout

    assert set(re.findall(r"^\S+", found, re.MULTILINE)) == {BING, BING_IPV6}


def test_python_resolves(pod: DnsPod) -> None:
    found = pod.run(PYTHON, "-c", PYTHONS, *NAMES).stdout.splitlines()

    more = {"www.bing.com": f" {BING_IPV6}"}
    assert found == [f"{name} {ip}{more.get(name, '')}" for name, ip in NAMES.items()]


@pytest.mark.skipif(not shutil.which("dig"), reason="dig of bind9-dnsutils is not installed")
@pytest.mark.parametrize("over", ["+notcp", "+tcp"])
@pytest.mark.parametrize("name", NAMES)
def test_dig_resolves(pod: DnsPod, name: str, over: str) -> None:
    found = pod.run("dig", "+search", "+short", over, name).stdout.split()

    assert found[-1] == NAMES[name]


@pytest.mark.skipif(not shutil.which("musl-gcc"), reason="musl-gcc of musl-tools is not installed")
def test_musl_resolves(pod: DnsPod) -> None:
    program = pod.directory / "musl"
    subprocess.run(
        ["musl-gcc", "-static", "-x", "c", "-", "-o", str(program)],
        input=MUSL,
        text=True,
        check=True,
    )

    found = pod.run(str(program), *NAMES).stdout.splitlines()

    assert found == [f"{name} {ip}" for name, ip in NAMES.items()]


def test_a_name_that_nobody_knows_is_not_found(pod: DnsPod) -> None:
    assert pod.run("getent", "ahostsv4", "nowhere.example", check=False).returncode == 2


def test_names_of_the_table_are_not_asked_upstream(pod: DnsPod) -> None:
    before = len(pod.asked())

    pod.run("getent", "ahostsv4", "productpage")
    pod.run("getent", "ahostsv4", "www.google.com")

    assert pod.asked()[before:] == []


def test_the_agent_says_why(pod: DnsPod) -> None:
    lookup = (PYTHON, "-m", "agent", "dns", "lookup")
    names = ("productpage.", "www.bing.com")

    found = "".join(pod.run(*lookup, name, user=PROXY).stdout for name in names)

    assert "alternate name of productpage.ns1.svc.cluster.local" in found
    assert f"answered by nameserver {NODE_IPV4}" in found


#: Sends a query from a source port to a resolver, and prints the addresses in the answer.
FROM_PORT = """
import dns.message, dns.query, socket, sys
port, name = int(sys.argv[1]), sys.argv[2]
query = dns.message.make_query(name, "A")
reply = dns.query.udp(query, "10.9.0.2", timeout=5, source_port=port)
print(*(item.address for rrset in reply.answer for item in rrset))
"""


def test_replies_land_in_the_right_conntrack_zone(pod: DnsPod) -> None:
    """I21: application and agent use one source port to one resolver, and both are answered."""
    ask = (PYTHON, "-c", FROM_PORT, "40000", "www.bing.com")

    answers = [pod.run(*ask, user=user).stdout.strip() for user in (IMPORTS, PROXY) * 2]
    table = pod.run("cat", "/proc/net/nf_conntrack", user=()).stdout.splitlines()

    assert answers == [BING] * 4
    flows = [flow for flow in table if "sport=40000 dport=53" in flow]
    replied_from = [re.findall(r"sport=(\d+)", flow)[1] for flow in flows]
    zones = [re.findall(r"zone=(\d+)", flow)[0] for flow in flows]
    assert set(zip(replied_from, zones, strict=True)) == {("15053", "2"), ("53", "1")}
    assert not any("[UNREPLIED]" in flow for flow in flows)


def test_the_agents_own_queries_are_not_captured(pod: DnsPod) -> None:
    """R-21."""
    before = len(pod.asked())

    found = pod.run("getent", "ahostsv4", "productpage", user=PROXY, check=False)

    assert found.returncode == 2
    assert "productpage.ns1.svc.cluster.local." in "".join(pod.asked()[before:])


def test_a_resolver_on_the_loopback_makes_no_loop(tmp_path: Path) -> None:
    """I25: application to agent to local resolver to the node's, and back."""
    tmp_path.chmod(0o755)
    with dns_pod(tmp_path, nameservers=("127.0.0.1",), forwarder=True) as pod:
        upstream = pod.run("getent", "ahostsv4", "www.bing.com.").stdout.split()[0]
        table = pod.run("getent", "ahostsv4", "productpage").stdout.split()[0]
        forwarded = (tmp_path / "forwarded").read_text().splitlines()

        assert (upstream, table) == (BING, "9.9.9.9")
        assert len(forwarded) == len(pod.asked()) == 1


def test_an_agent_that_is_captured_itself_makes_no_loop(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """R-21: it knows its own queries when they come back, and does not ask them again."""
    tmp_path.chmod(0o755)
    lookup = (PYTHON, "-m", "agent", "dns", "lookup")
    with dns_pod(tmp_path, agent=IMPORTS) as pod:
        upstream, table = (
            pod.run(*lookup, name, user=IMPORTS).stdout for name in ("www.bing.com", "productpage")
        )

        assert "SERVFAIL" in upstream
        assert "9.9.9.9" in table
        assert pod.asked() == []
    assert "a query of our own to a nameserver came back to us" in capfd.readouterr().err


def test_a_resolver_with_an_ipv6_address_is_captured(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with dns_pod(tmp_path, "--dual-stack", nameservers=(NODE_IPV6,)) as pod:
        found = pod.run(PYTHON, "-c", PYTHONS, "productpage", "www.bing.com").stdout.splitlines()

        assert found == ["productpage 9.9.9.9", f"www.bing.com {BING} {BING_IPV6}"]
