"""The DNS branch of the settings. Source: xds-identity-dns.md sections 8.1, 8.2 and 12."""

import pytest

from agent.dns.settings import DnsSettings, parse_dns
from agent.reader import Reader

CAPTURE = {"ISTIO_META_DNS_CAPTURE": "true", "POD_NAMESPACE": "ns1"}


def parse(
    environ: dict[str, str],
    *,
    is_sidecar: bool = True,
    is_root: bool = False,
    is_local: bool = False,
    domain: str = "",
) -> tuple[DnsSettings, Reader]:
    read = Reader(environ)
    settings = parse_dns(
        read, is_sidecar=is_sidecar, is_root=is_root, is_local=is_local, domain=domain
    )
    return settings, read


@pytest.mark.parametrize(
    ("environ", "is_sidecar", "enabled"),
    [
        ({}, True, False),
        ({"ISTIO_META_DNS_CAPTURE": "true"}, True, True),
        ({"ISTIO_META_DNS_CAPTURE": "true"}, False, False),
        ({"ISTIO_META_ENABLE_DNS_SERVER": "true"}, True, True),
        ({"ISTIO_META_ENABLE_DNS_SERVER": "true"}, False, True),
        ({"ISTIO_META_DNS_CAPTURE": "yes"}, True, False),
    ],
)
def test_dns_is_on_where_asked_for(
    environ: dict[str, str],
    is_sidecar: bool,  # noqa: FBT001 - a parameter
    enabled: bool,  # noqa: FBT001 - a parameter
) -> None:
    assert parse(environ, is_sidecar=is_sidecar)[0].enabled is enabled


def test_defaults() -> None:
    settings, read = parse(CAPTURE)

    assert settings == DnsSettings(enabled=True, namespace="ns1", domain="ns1.svc.cluster.local")
    assert (settings.host, settings.port, settings.timeout_seconds) == ("localhost", 15053, 5.0)
    assert (read.warnings, read.errors) == ([], [])


def test_everything_can_be_set() -> None:
    environ = {
        "DNS_PROXY_ADDR": "[fd00::1]:53",
        "DNS_FORWARD_PARALLEL": "true",
        "DNS_FORWARD_TIMEOUT": "100ms",
        "AGENT_DNS_CACHE": "true",
        "AGENT_DNS_READY_TIMEOUT": "15s",
    }

    settings, _ = parse({**CAPTURE, **environ}, is_root=True, is_local=True, domain="x.mesh")

    assert settings == DnsSettings(
        enabled=True,
        host="fd00::1",
        port=53,
        is_resolver=True,
        is_local=True,
        parallel=True,
        timeout_seconds=0.1,
        cache=True,
        ready_timeout_seconds=15.0,
        namespace="ns1",
        domain="x.mesh",
    )


def test_the_port_of_dns_is_for_root() -> None:
    settings, read = parse({**CAPTURE, "DNS_PROXY_ADDR": "0.0.0.0:53"})

    assert (settings.host, settings.port, settings.is_resolver) == ("localhost", 15053, False)
    assert read.warnings == [
        "DNS_PROXY_ADDR=0.0.0.0:53: only root may listen on port 53; using localhost:15053"
    ]


@pytest.mark.parametrize("address", ["localhost", "::1:15053", "localhost:x", "localhost:70000"])
def test_an_address_that_is_none_is_an_error(address: str) -> None:
    _, read = parse({**CAPTURE, "DNS_PROXY_ADDR": address})

    assert len(read.errors) == 1
    assert parse({"DNS_PROXY_ADDR": address})[1].errors == []


@pytest.mark.parametrize(
    ("address", "host"), [("", "localhost"), (":15053", ""), ("10.0.0.1:15053", "10.0.0.1")]
)
def test_a_host_may_be_left_out(address: str, host: str) -> None:
    assert parse({**CAPTURE, "DNS_PROXY_ADDR": address})[0].host == host


@pytest.mark.parametrize("text", ["0s", "-1s", "soon"])
def test_a_time_that_is_none_is_a_warning(text: str) -> None:
    settings, read = parse({**CAPTURE, "DNS_FORWARD_TIMEOUT": text})

    assert settings.timeout_seconds == 5.0
    assert len(read.warnings) == 1
