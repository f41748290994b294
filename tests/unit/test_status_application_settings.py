"""ProxyConfig's readinessProbe, typed. Source: xds-identity-dns.md sections 9.1 and 9.2."""

from typing import Any

import pytest

from agent.reader import Reader
from agent.status.application.settings import (
    Check,
    ExecCheck,
    GrpcCheck,
    HealthSettings,
    HttpCheck,
    TcpCheck,
    Thresholds,
    parse_health,
)


def parse(probe: dict[str, Any]) -> tuple[HealthSettings | None, Reader]:
    read = Reader({})
    settings = parse_health(read, probe, host="10.0.0.5", source="127.0.0.6", offers_alpn=True)
    return settings, read


@pytest.mark.parametrize(
    ("probe", "check"),
    [
        ({"httpGet": {"port": 80}}, HttpCheck("10.0.0.5", 80)),
        (
            {
                "httpGet": {
                    "port": 8443,
                    "host": "app.internal",
                    "path": "healthz?full",
                    "scheme": "HTTPS",
                    "httpHeaders": [{"name": "Host", "value": "shop"}, {"name": "X-Empty"}],
                }
            },
            HttpCheck(
                "app.internal",
                8443,
                "/healthz?full",
                is_tls=True,
                headers=(("Host", "shop"), ("X-Empty", "")),
            ),
        ),
        ({"httpGet": {"port": 443, "scheme": "https"}}, HttpCheck("10.0.0.5", 443, is_tls=True)),
        ({"tcpSocket": {"port": 3306}}, TcpCheck("10.0.0.5", 3306)),
        ({"tcpSocket": {"port": 3306, "host": "::1"}}, TcpCheck("::1", 3306)),
        ({"exec": {"command": ["true", "-x"]}}, ExecCheck(("true", "-x"))),
        ({"grpc": {"port": 50051}}, GrpcCheck("10.0.0.5", 50051)),
        ({"grpc": {"port": 1, "service": "shop"}}, GrpcCheck("10.0.0.5", 1, "shop")),
    ],
)
def test_each_kind_has_its_defaults(probe: dict[str, Any], check: Check) -> None:
    settings, read = parse(probe)

    assert settings == HealthSettings(check)
    assert (read.errors, read.warnings) == ([], [])


def test_times_and_thresholds_are_taken_and_zero_stands_for_the_default() -> None:
    numbers = {
        "initialDelaySeconds": 5,
        "periodSeconds": 3,
        "timeoutSeconds": 2,
        "successThreshold": 4,
        "failureThreshold": 6,
    }
    probe = {"tcpSocket": {"port": 80}}

    given, _ = parse({**probe, **numbers})
    zero, _ = parse({**probe, **dict.fromkeys(numbers, 0)})

    check = TcpCheck("10.0.0.5", 80)
    assert given == HealthSettings(check, 5, 3, 2, Thresholds(4, 6))
    assert zero == HealthSettings(check, 0, 10, 1, Thresholds(1, 1))


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        ({}, "one of httpGet, tcpSocket, exec, grpc"),
        ({"periodSeconds": 5}, "one of httpGet, tcpSocket, exec, grpc"),
        ({"exec": {}}, "a command in exec"),
        ({"exec": {"command": []}}, "a command in exec"),
    ],
)
def test_a_probe_that_says_nothing_to_do_is_none(probe: dict[str, Any], expected: str) -> None:
    """D-10."""
    settings, read = parse(probe)

    assert settings is None
    assert read.errors == []
    assert read.warnings == [f"readinessProbe: expected {expected}; no health is reported"]


@pytest.mark.parametrize(
    ("probe", "error"),
    [
        ({"httpGet": {}}, "httpGet.port=0: expected a port in 1..65535"),
        ({"tcpSocket": {"port": 65536}}, "tcpSocket.port=65536: expected a port in 1..65535"),
        ({"grpc": {"service": "x"}}, "grpc.port=0: expected a port in 1..65535"),
        (
            {"httpGet": {"port": 80, "scheme": "ftp"}},
            "httpGet.scheme='ftp': expected one of http, https",
        ),
        (
            {"httpGet": {"port": 80, "httpHeaders": [{"name": "a b", "value": "x"}]}},
            "httpGet.httpHeaders[0].name='a b': expected a header's name",
        ),
        (
            {"httpGet": {"port": 80, "httpHeaders": [{"name": "a", "value": "x\r\nb: y"}]}},
            "httpGet.httpHeaders[0].value: expected printable ISO 8859-1 text",
        ),
        ({"tcpSocket": {"port": 80}, "periodSeconds": -1}, "periodSeconds=-1: expected 0 or more"),
        (
            {"tcpSocket": {"port": 80}, "initialDelaySeconds": -1},
            "initialDelaySeconds=-1: expected 0 or more",
        ),
    ],
)
def test_an_unusable_value_is_one_line(probe: dict[str, Any], error: str) -> None:
    _, read = parse(probe)

    assert read.errors == [f"readinessProbe.{error}"]
