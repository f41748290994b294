"""Validation with real connections, as the injected container runs it and as root."""

import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pyroute2
import pytest
import yaml
from pyroute2 import IPRoute

from tests.netns.namespaces import ROOT
from tests.netns.pods import PYTHON, Pod, become, linked_pod, readable, running

pytestmark = [pytest.mark.root, pytest.mark.slow]

INJECTED = (
    "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "",
    "-b", "*", "-d", "15090,15021,15020", "--log_output_level=default:info",
)  # fmt: skip
ONLY = ("--run-validation", "--skip-rule-apply")
BOTH = (*INJECTED, "--dual-stack", "--redirect-dns", "--capture-all-dns")
#: As the injector has the container run. Source: traffic-capture.md section 1.
CONTAINER = (*become(1337, 1337), "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
NOBODY = (*become(5000, 5000), "--bounding-set=-all")
#: As istio-init: root that cannot become another user.
INIT = ("setpriv", "--bounding-set=-all,+net_admin,+net_raw", "--inh-caps=-all")
#: Listens where Envoy does, as Envoy does, and answers nothing.
ENVOY = """
import socket, sys
listeners = []
for port in (15001, 15006):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("0.0.0.0", port))
    listener.listen(64)
    listeners.append(listener)
print("ready", flush=True)
sys.stdin.read()
"""
WITHOUT_RAW = ("setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw")
#: Listens at a port as an application does.
APPLICATION = """
import socket, sys
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
sys.stdin.read()
"""
WITHOUT_JUMP = (
    *("iptables-nft", "-t", "nat", "-D", "PREROUTING"),
    *("-p", "tcp", "-j", "ISTIO_INBOUND"),
)
OUTSIDE = ["inbound from outside, IPv4", "inbound from outside, IPv6"]
SHARED = ROOT.parent / "shared"
PACKAGES = Path(pyroute2.__file__).parents[1]
INJECTED_POD = SHARED / "data/injected-pods/hello-cni.injected.yaml"


@pytest.fixture
def pod() -> Iterator[Pod]:
    with linked_pod() as made:
        yield made


def run(
    pod: Pod, *argv: str, wrapper: tuple[str, ...] = (), status: int = 0, **environ: str
) -> CompletedProcess[str]:
    done = pod.inside.run(
        PYTHON,
        *("-m", "iptables", *argv),
        check=False,
        wrapper=wrapper,
        environ={"PYTHONPATH": readable(), **environ},
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def seen(done: CompletedProcess[str]) -> list[str]:
    """Return what was proven, such as 'inbound, IPv4'."""
    lines = [line.rpartition("\t")[2] for line in done.stdout.splitlines()]
    return [line.partition(":")[0] for line in lines if line.endswith(tuple(PORTS))]


PORTS = [f"expected port {port}, seen port {port}" for port in (15001, 15006, 15053)]


def test_the_injected_container_passes_once_rules_are_there(pod: Pod, tmp_path: Path) -> None:
    run(pod, *INJECTED)

    done = run(pod, *INJECTED, *ONLY, wrapper=CONTAINER, PATH=str(tmp_path))

    assert seen(done) == ["inbound, IPv4"]
    assert "Validation passed" in done.stdout
    assert "not to be proven as uid 1337, gid 1337: outbound, IPv4" in done.stdout


def test_without_rules_it_fails_at_once_and_says_what_to_do(pod: Pod, tmp_path: Path) -> None:
    """Case S8."""
    done = run(
        pod, *INJECTED, *ONLY, "--probe-timeout=60s",
        wrapper=CONTAINER, status=126, PATH=str(tmp_path),
    )  # fmt: skip

    assert (
        "inbound, IPv4: tcp to 127.0.0.6:15002 as uid 1337, gid 1337: expected port 15006, seen "
        "connection refused; missing, or behind another rule: nat OUTPUT: -j ISTIO_OUTPUT or "
    ) in done.stdout
    assert "iptables validation failed; workload is not ready for Istio." in done.stdout
    assert "cni.repair.deletePods" in done.stdout


@pytest.mark.skipif(not INJECTED_POD.exists(), reason="the injected pods are not beside the tree")
@pytest.mark.parametrize("status", [0, 126])
def test_the_arguments_that_the_injector_writes_are_taken(pod: Pod, status: int) -> None:
    documents = yaml.safe_load_all(INJECTED_POD.read_text())
    (manifest,) = [each for each in documents if each and each["kind"] == "Deployment"]
    containers = manifest["spec"]["template"]["spec"]["initContainers"]
    (words,) = [each["args"] for each in containers if each["name"] == "istio-validation"]
    if not status:
        run(pod, *INJECTED)

    run(pod, *words[1:], wrapper=CONTAINER, status=status)


@pytest.mark.parametrize(
    "backend",
    ["--force-iptables-binary=nft", "--force-iptables-binary=legacy", "--native-nftables"],
)
def test_root_proves_all_of_both_families(pod: Pod, backend: str) -> None:
    """Source: traffic-capture.md section 17.16."""
    done = run(pod, *BOTH, backend, "--run-validation")

    concerns = ["inbound", "outbound", "DNS over UDP", "DNS over TCP"]
    assert seen(done) == [
        *(f"{concern}, IPv{family}" for family in (4, 6) for concern in concerns),
        *OUTSIDE,
    ]
    assert "not to be proven" not in done.stdout
    assert [link.get_attr("IFLA_IFNAME") for link in links(pod)] == ["lo", "eth0"]


@pytest.mark.parametrize("mode", ["REDIRECT", "TPROXY"])
def test_an_init_container_proves_what_its_user_can(pod: Pod, mode: str) -> None:
    done = run(
        pod, *BOTH, "-m", mode, "--run-validation", wrapper=INIT, PYTHONPATH=f"{ROOT}:{PACKAGES}"
    )

    assert "not to be proven as uid 0, gid 0: inbound, IPv4; inbound, IPv6\n" in done.stdout
    assert len(seen(done)) == 8
    assert seen(done)[6:] == OUTSIDE


def links(pod: Pod) -> list[Any]:
    with IPRoute(netns=pod.inside.name) as kernel:
        return list(kernel.get_links())


@pytest.mark.parametrize(
    ("port", "problem"), [("15002", "another program's listener"), ("1", "connection refused")]
)
def test_without_the_jump_what_comes_from_outside_is_not_captured(
    pod: Pod, port: str, problem: str
) -> None:
    """Also where the application answers there."""
    run(pod, *INJECTED)
    pod.inside.run(*WITHOUT_JUMP)

    with running(pod.inside, APPLICATION, port):
        done = run(pod, *INJECTED, *ONLY, wrapper=INIT, status=126)

    assert (
        "inbound from outside, IPv4: tcp to 10.9.0.1:15002 from 203.0.113.255: expected port 15006,"
        f" seen {problem}; missing, or behind another rule: nat PREROUTING: -p tcp -j ISTIO_INBOUND"
    ) in done.stdout
    assert len(links(pod)) == 2


def test_what_others_drop_from_outside_proves_nothing(pod: Pod) -> None:
    pod.inside.run("iptables-nft", "-A", "INPUT", "-i", "istio+", "-j", "DROP")

    done = run(pod, *INJECTED, "--run-validation")

    assert ": expected port 15006, not proven: nothing within 1.5 s" in done.stdout
    assert "Validation passed" in done.stdout


def test_what_a_killed_validation_has_left_is_in_nobodys_way(pod: Pod) -> None:
    with IPRoute(netns=pod.inside.name) as kernel:
        kernel.link("add", ifname="istio-probe", kind="veth", peer="istio-outside")

    done = run(pod, *INJECTED, "--run-validation")

    assert seen(done)[-1:] == OUTSIDE[:1]
    assert len(links(pod)) == 2


def test_a_port_that_another_program_has_taken_is_not_proven_from_outside(pod: Pod) -> None:
    run(pod, *INJECTED)

    with running(pod.inside, ENVOY, wrapper=become(5000, 5000)):
        done = run(pod, *INJECTED, *ONLY, wrapper=INIT, status=126)

    assert "expected port 15006, not proven: port 15006 is taken" in done.stdout


def test_who_may_only_read_the_rules_is_told_that_they_were_read(pod: Pod) -> None:
    run(pod, *INJECTED)

    done = run(pod, *INJECTED, *ONLY, wrapper=WITHOUT_RAW)

    assert (
        "not to be proven without CAP_NET_ADMIN and CAP_NET_RAW, as nothing that is sent here "
        "meets 'nat PREROUTING: -p tcp -j ISTIO_INBOUND': inbound from outside, IPv4\n"
    ) in done.stdout
    assert "the installed rules were read: they are as planned" in done.stdout


def test_the_proxy_proves_both_families(pod: Pod) -> None:
    run(pod, *BOTH)

    done = run(pod, *BOTH, *ONLY, wrapper=CONTAINER)

    assert seen(done) == ["inbound, IPv4", "inbound, IPv6"]


def test_a_family_that_fails_fails_it_all(pod: Pod) -> None:
    run(pod, *BOTH)
    pod.inside.run("ip6tables-nft", "-t", "nat", "-F", "ISTIO_IN_REDIRECT")

    done = run(pod, *BOTH, *ONLY, wrapper=CONTAINER, status=126)

    assert seen(done) == ["inbound, IPv4"]
    (error,) = [line for line in done.stdout.splitlines() if "\terror\tinbound" in line]
    assert "tcp to [::6]:15002" in error
    assert error.endswith("or nat ISTIO_IN_REDIRECT: -p tcp -j REDIRECT --to-ports 15006")


def test_a_missing_passthrough_address_is_named(pod: Pod) -> None:
    run(pod, *BOTH)
    pod.inside.python("from iptables import client; client.remove_passthrough_address()")

    done = run(pod, *BOTH, *ONLY, wrapper=CONTAINER, status=126)

    assert "seen ::6, where Envoy delivers from, is not on lo" in done.stdout


def test_who_may_read_the_rules_is_told_how_they_differ(pod: Pod) -> None:
    run(pod, *INJECTED)
    pod.inside.run("iptables-nft", "-t", "nat", "-D", "ISTIO_OUTPUT", "-j", "ISTIO_REDIRECT")

    done = run(pod, *INJECTED, *ONLY, status=126, PROBE_TIMEOUT="500ms")

    assert "\terror\toutbound, IPv4: tcp to 192.0.2.1:15002 as uid 0" in done.stdout
    assert "missing, or behind another rule: nat ISTIO_OUTPUT: -j ISTIO_REDIRECT" in done.stdout
    assert ": -j ISTIO_REDIRECT  # every other destination is captured" in done.stdout


def test_what_connections_do_not_prove_is_read_from_the_rules_if_that_is_allowed(pod: Pod) -> None:
    run(pod, *INJECTED)
    pod.inside.run(*WITHOUT_JUMP)

    done = run(pod, *INJECTED, *ONLY, wrapper=WITHOUT_RAW)

    assert "\twarn\tinstalled rules and the plan: IPv4 iptables-nft nat PREROUTING" in done.stdout


def test_without_any_time_it_fails_in_good_order(pod: Pod) -> None:
    run(pod, *INJECTED)

    done = run(pod, *INJECTED, *ONLY, status=126, PROBE_TIMEOUT="0s")

    assert "seen nothing within 0.0 s" in done.stdout
    assert done.stderr == ""


def test_a_user_whose_traffic_proves_nothing_fails(pod: Pod) -> None:
    run(pod, *INJECTED, "-i", "")

    done = run(pod, *INJECTED, "-i", "", *ONLY, wrapper=NOBODY, status=126)

    assert "nothing is captured that could be proven here" in done.stdout


def test_silence_is_waited_for_as_long_as_is_allowed(pod: Pod) -> None:
    pod.inside.run("iptables-nft", "-A", "OUTPUT", "-p", "tcp", "--dport", "15002", "-j", "DROP")

    started = time.monotonic()
    done = run(
        pod, *INJECTED, *ONLY, wrapper=CONTAINER, status=126, PROBE_TIMEOUT="700ms"
    )  # fmt: skip

    assert "seen nothing within 0.7 s" in done.stdout
    assert time.monotonic() - started > 0.7


def test_a_running_envoy_does_not_disturb(pod: Pod) -> None:
    run(pod, *INJECTED)

    with running(pod.inside, ENVOY, wrapper=become(1337, 1337)):
        done = run(pod, *INJECTED, *ONLY, wrapper=CONTAINER)

    assert seen(done) == ["inbound, IPv4"]


def test_without_a_port_to_listen_on_it_fails(pod: Pod) -> None:
    run(pod, *INJECTED)

    with running(pod.inside, ENVOY, wrapper=become(5000, 5000)):
        done = run(pod, *INJECTED, *ONLY, wrapper=CONTAINER, status=126)

    assert "listen on port 15006 (tcp): Address already in use; validate before" in done.stdout
    assert "no listener available" in done.stdout
    assert "missing, or behind another rule" not in done.stdout


def test_where_nothing_is_to_be_captured_nothing_is_to_be_validated(pod: Pod) -> None:
    run(pod, "-m", "NONE", *ONLY, wrapper=NOBODY)
