from typing import Any

import pytest

from agent.reader import Reader
from agent.status.application.settings import HealthSettings, TcpCheck
from agent.status.probes import HttpProbe
from agent.status.scrape import Target
from agent.status.settings import (
    ProbeSettings,
    ReadinessSettings,
    ScrapeSettings,
    StatusSettings,
    parse_status,
)


def parse(
    environ: dict[str, str] | None = None,
    *,
    instance_ip: str = "10.0.0.1",
    ipv6: bool = False,
    is_sidecar: bool = True,
    envoy_enabled: bool = True,
    readiness_probe: dict[str, Any] | None = None,
) -> tuple[StatusSettings, Reader]:
    read = Reader(environ or {})
    settings = parse_status(
        read,
        port=15020,
        admin_host="127.0.0.1",
        admin_port=15000,
        instance_ip=instance_ip,
        ipv6=ipv6,
        is_sidecar=is_sidecar,
        envoy_enabled=envoy_enabled,
        readiness_probe=readiness_probe,
        proxy_address="10.0.0.9",
    )
    return settings, read


def test_an_empty_environment_gives_the_defaults() -> None:
    settings, read = parse()

    assert settings == StatusSettings(
        port=15020,
        admin_host="127.0.0.1",
        admin_port=15000,
        envoy_enabled=True,
        probes=ProbeSettings(host="10.0.0.1"),
        scrape=ScrapeSettings(),
    )
    assert read.errors == read.warnings == []


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, HealthSettings(TcpCheck("10.0.0.9", 80))),
        (
            {
                "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION": "true",
                "ISTIO_ENABLE_HTTP2_PROBING": "false",
            },
            HealthSettings(TcpCheck("localhost", 80), offers_alpn=False),
        ),
        ({"AGENT_LOCAL_XDS": "builtin"}, None),  # there is nobody to tell
    ],
)
def test_a_readiness_probe_is_of_the_proxys_address(
    environ: dict[str, str], expected: HealthSettings | None
) -> None:
    settings, _ = parse(environ, readiness_probe={"tcpSocket": {"port": 80}})

    assert settings.health == expected


def test_every_variable_is_read() -> None:
    settings, read = parse(
        {
            "ISTIO_KUBE_APP_PROBERS": '{"/app-health/a/livez": {"httpGet": {"port": 80}}}',
            "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION": "true",
            "ISTIO_ENABLE_HTTP2_PROBING": "false",
            "ENABLE_PROBE_KEEPALIVE_CONNECTIONS": "true",
            "METRICS_LOCALHOST_ACCESS_ONLY": "1",
            "ENVOY_PROMETHEUS_PORT": "15091",
            "ISTIO_PROMETHEUS_ANNOTATIONS": '{"port": "9090"}',
        },
        ipv6=True,
    )

    assert settings.probes == ProbeSettings(
        {"/app-health/a/livez": HttpProbe("/", 80)},
        "localhost",
        "::6",
        offers_alpn=False,
        keeps_connections=True,
    )
    assert settings.scrape == ScrapeSettings(
        15091, (Target(9090, "/metrics"),), localhost_only=True
    )
    assert read.errors == read.warnings == []


def test_an_empty_pod_address_is_this_host() -> None:
    assert parse(instance_ip="")[0].probes.host == "127.0.0.1"
    assert parse(instance_ip="", ipv6=True)[0].probes.host == "::1"


def test_envoy_is_left_out_where_there_is_none_or_it_is_not_wanted() -> None:
    assert parse(envoy_enabled=False)[0].scrape.envoy_port is None
    assert parse({"PILOT_AGENT_MERGE_ENVOY_STATS": "false"})[0].scrape.envoy_port is None


def test_a_gateway_never_scrapes_an_application() -> None:
    settings, read = parse({"ISTIO_PROMETHEUS_ANNOTATIONS": "nonsense"}, is_sidecar=False)

    assert settings.scrape.targets == ()
    assert read.errors == []


def test_what_stops_the_start_is_an_error() -> None:
    _, read = parse(
        {"ISTIO_PROMETHEUS_ANNOTATIONS": "", "ISTIO_KUBE_APP_PROBERS": '{"x": {}, "y": {}}'}
    )

    assert [error.partition(":")[0] for error in read.errors] == [
        "ISTIO_KUBE_APP_PROBERS",
        "ISTIO_KUBE_APP_PROBERS",
        "failed to unmarshal ISTIO_PROMETHEUS_ANNOTATIONS",
    ]


def test_what_is_not_done_as_asked_is_a_warning() -> None:
    _, read = parse(
        {
            "ISTIO_KUBE_APP_PROBERS": (
                '{"/app-health/a/livez": {"tcpSocket": {"port": 80, "host": "b"}}}'
            ),
        }
    )

    assert read.errors == []
    assert read.warnings == [
        (
            "ISTIO_KUBE_APP_PROBERS: host 'b' of /app-health/a/livez is ignored: "
            "the pod itself is probed"
        ),
    ]


@pytest.mark.parametrize(
    ("environ", "is_local"),
    [({}, False), ({"AGENT_LOCAL_XDS": ""}, False), ({"AGENT_LOCAL_XDS": "builtin"}, True)],
)
def test_it_is_known_whether_there_is_a_control_plane(
    environ: dict[str, str],
    is_local: bool,  # noqa: FBT001 -- a column
) -> None:
    assert parse(environ)[0].is_local is is_local


def test_readiness_may_wait_longer_and_for_more() -> None:
    settings, read = parse(
        {
            "AGENT_READINESS_CONFIG_TIMEOUT": "500ms",
            "AGENT_READINESS_LIVE_TIMEOUT": "2s",
            "AGENT_READINESS_MIN_LISTENERS": "3",
        }
    )

    assert settings.readiness == ReadinessSettings(0.5, 2.0, 3)
    assert read.warnings == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("AGENT_READINESS_CONFIG_TIMEOUT", "0s", "expected a duration above zero"),
        ("AGENT_READINESS_LIVE_TIMEOUT", "-1s", "expected a duration above zero"),
        ("AGENT_READINESS_MIN_LISTENERS", "-1", "expected 0 or more"),
    ],
)
def test_what_readiness_cannot_be_is_a_warning(name: str, value: str, expected: str) -> None:
    settings, read = parse({name: value})

    assert settings.readiness == ReadinessSettings()
    assert read.warnings == [f"{name}={value!r}: {expected}; using the default"]


def test_pages_may_be_strict_and_over_https() -> None:
    annotations = '{"targets": [{"port": "8443"}, {"port": "8080"}]}'
    settings, read = parse(
        {
            "AGENT_METRICS_STRICT": "true",
            "AGENT_METRICS_HTTPS_PORTS": " 8443, 9443,",
            "ISTIO_PROMETHEUS_ANNOTATIONS": annotations,
        }
    )
    plain, other = parse(
        {"AGENT_METRICS_HTTPS_PORTS": "all", "ISTIO_PROMETHEUS_ANNOTATIONS": annotations}
    )

    assert settings.scrape == ScrapeSettings(
        targets=(Target(8443, "/metrics", is_tls=True), Target(8080, "/metrics")), strict=True
    )
    assert read.warnings == []
    assert not any(target.is_tls for target in plain.scrape.targets)
    assert other.warnings == [
        "AGENT_METRICS_HTTPS_PORTS='all': expected a whole number; using the default"
    ]
