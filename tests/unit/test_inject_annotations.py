"""Source: status-lifecycle.md section 11.13; traffic-capture.md section 4.2; cases.md I19."""

import pytest

from agent.inject.annotations import check_annotations, parse_bool

TRAFFIC = "traffic.sidecar.istio.io/"
READINESS = "readiness.status.sidecar.istio.io/"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sidecar.istio.io/interceptionMode", "TPROXY"),
        ("status.sidecar.istio.io/port", " 0 "),
        ("status.sidecar.istio.io/port", "65535"),
        (f"{READINESS}periodSeconds", "4294967295"),
        (f"{TRAFFIC}includeOutboundIPRanges", "*"),
        (f"{TRAFFIC}includeOutboundIPRanges", ""),
        (f"{TRAFFIC}includeOutboundIPRanges", "127.0.0.1/24,10.96.0.1/24,fd00::1/64"),
        (f"{TRAFFIC}excludeOutboundIPRanges", "10.0.0.0/8"),
        (f"{TRAFFIC}includeInboundPorts", "*"),
        (f"{TRAFFIC}includeInboundPorts", "80, 8080 ,0"),
        (f"{TRAFFIC}excludeInboundPorts", ""),
        (f"{TRAFFIC}includeOutboundPorts", "1,2"),
        (f"{TRAFFIC}excludeInterfaces", "eth0, bond0.100,br-docker0"),
        (f"{TRAFFIC}kubevirtInterfaces", ""),
        ("istio.io/reroute-virtual-interfaces", "net1"),
        ("prometheus.istio.io/merge-metrics", "T"),
        ("sidecar.istio.io/proxyCPU", "4000m"),
        ("something.else/port", "not a port"),
    ],
)
def test_usable_values_pass(name: str, value: str) -> None:
    assert list(check_annotations({name: value})) == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("sidecar.istio.io/interceptionMode", "redirect", "expected one of REDIRECT, TPROXY, NONE"),
        ("status.sidecar.istio.io/port", "65536", "expected a port in 0..65535"),
        ("status.sidecar.istio.io/port", "", "expected a port in 0..65535"),
        ("status.sidecar.istio.io/port", "٣", "expected a port in 0..65535"),
        (f"{READINESS}failureThreshold", "-1", "expected a whole number that is not negative"),
        (f"{READINESS}failureThreshold", "4294967296", "expected a whole number"),
        (f"{READINESS}failureThreshold", "1" * 5000, "expected a whole number"),
        (
            f"{TRAFFIC}includeOutboundIPRanges",
            "10.0.0.1",
            "item '10.0.0.1': expected a list of CIDR",
        ),
        (f"{TRAFFIC}includeOutboundIPRanges", "10.0.0.0/8, 10.1.0.0/16", "item ' 10.1.0.0/16'"),
        (f"{TRAFFIC}includeOutboundIPRanges", "10.0.0.0/255.0.0.0", "item '10.0.0.0/255.0.0.0'"),
        (f"{TRAFFIC}includeOutboundIPRanges", "10.0.0.0/33", "item '10.0.0.0/33'"),
        (f"{TRAFFIC}excludeOutboundIPRanges", "*", "item '*'"),
        (f"{TRAFFIC}excludeOutboundIPRanges", "fe80::1%eth0/64", "item 'fe80::1%eth0/64'"),
        (f"{TRAFFIC}excludeInboundPorts", "*", "item '*': expected a list of ports"),
        (f"{TRAFFIC}includeInboundPorts", "80,", "item '': expected a list of ports"),
        (f"{TRAFFIC}includeOutboundPorts", "http", "item 'http': expected a list of ports"),
        (f"{TRAFFIC}excludeInterfaces", "eth0,,eth1", "item '': expected a list of interfaces"),
        (f"{TRAFFIC}excludeInterfaces", "eth0 -j ACCEPT", "item 'eth0 -j ACCEPT'"),
        (f"{TRAFFIC}excludeInterfaces", "0eth", "item '0eth'"),
        (f"{TRAFFIC}excludeInterfaces", "eth0\n", None),
        (f"{TRAFFIC}kubevirtInterfaces", "a" * 16, "each of at most 15 characters"),
        ("prometheus.istio.io/merge-metrics", "yes", "expected 'true' or 'false'"),
        ("sidecar.istio.io/proxyCPU", "lots", "expected a quantity such as"),
        ("sidecar.istio.io/proxyMemoryLimit", "1Gi\n", "without control characters"),
    ],
)
def test_other_values_are_named(name: str, value: str, expected: str | None) -> None:
    found = list(check_annotations({name: value}))

    if expected is None:  # blanks around an item are no matter
        assert found == []
        return
    assert len(found) == 1
    assert found[0].startswith(f"annotation {name}=")
    assert expected in found[0]
    assert "\n" not in found[0]


def test_all_problems_are_found_at_once() -> None:
    bad = {"sidecar.istio.io/interceptionMode": "x", "prometheus.istio.io/merge-metrics": "x"}

    assert len(list(check_annotations(bad))) == 2


def test_booleans_are_gos() -> None:
    assert [parse_bool(text) for text in ("1", "True", "f", "FALSE", "yes", "")] == [
        True,
        True,
        False,
        False,
        None,
        None,
    ]
