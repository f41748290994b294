import pytest

from bootstrap.config import DEFAULTS
from bootstrap.validation import validate

#: Ends of the line, after the field's path.
TLS = "tracing.tlsSettings."
CONNECTION = "connectionSettings."
NO_HOST = "expected a DNS name or an IP address before the port"
NEGATIVE = ": expected a duration that is not negative"


def problems(**fields: object) -> list[str]:
    return validate({**DEFAULTS, **fields}, dict.fromkeys(fields, "x: "))


def tracing(**members: object) -> list[str]:
    return problems(tracing=members)


def connection(**settings: object) -> list[str]:
    return problems(connectionSettings=settings)


def test_the_built_in_values_are_valid() -> None:
    assert validate(DEFAULTS, {}) == []


def test_a_missing_value_has_no_source() -> None:
    document = {key: value for key, value in DEFAULTS.items() if key != "drainDuration"}

    assert validate(document, {}) == [
        "built-in value: drainDuration: expected whole seconds, at least 1s"
    ]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"configPath": ""}, "configPath='': expected a path"),
        ({"binaryPath": ""}, "binaryPath='': expected a path"),
        ({"drainDuration": "0s"}, "drainDuration='0s': expected whole seconds, at least 1s"),
        (
            {"drainDuration": "1.500s"},
            "drainDuration='1.500s': expected whole seconds, at least 1s",
        ),
        ({"discoveryAddress": "istiod"}, "discoveryAddress='istiod': expected host:port"),
        ({"discoveryAddress": ""}, "discoveryAddress='': expected host:port"),
        ({"discoveryAddress": "a:1, b"}, "discoveryAddress='a:1, b': expected host:port"),
        (
            {"discoveryAddress": "$(HOST_IP):1"},
            f"discoveryAddress='$(HOST_IP):1': {NO_HOST}",
        ),
        ({"proxyAdminPort": 0}, "proxyAdminPort=0: expected a port in 1..65535"),
        ({"statusPort": 65536}, "statusPort=65536: expected a port in 1..65535"),
        (
            {"controlPlaneAuthPolicy": "INHERIT"},
            "controlPlaneAuthPolicy='INHERIT': expected NONE or MUTUAL_TLS",
        ),
        (
            {"envoyMetricsService": {"address": "m"}},
            "envoyMetricsService.address='m': expected host:port",
        ),
        (
            {"envoyAccessLogService": {"address": "m"}},
            "envoyAccessLogService.address='m': expected host:port",
        ),
        ({"privateKeyProvider": {}}, "privateKeyProvider: expected cryptomb or qat"),
        (
            {"privateKeyProvider": {"qat": {"pollDelay": "0s"}}},
            "privateKeyProvider.qat.pollDelay='0s': expected a duration that is not zero",
        ),
        (
            {"privateKeyProvider": {"cryptomb": {}}},
            "privateKeyProvider.cryptomb.pollDelay: expected a duration that is not zero",
        ),
    ],
)
def test_a_bad_field_is_named_with_value_and_source(fields: dict[str, object], line: str) -> None:
    assert problems(**fields) == [f"x: {line}"]


@pytest.mark.parametrize(
    "fields",
    [
        {"controlPlaneAuthPolicy": "NONE"},
        {"envoyMetricsService": {}},
        {"envoyMetricsService": {"address": "m:1"}},
        {"privateKeyProvider": {"qat": {"pollDelay": "0.001s"}}},
        {"tracing": {}},
        {"tracing": {"zipkin": {"address": "$(HOST_IP):9411"}}},
        {"tracing": {"datadog": {"address": "$(HOST_IP):8126"}}},
        {"tracing": {"lightstep": {"address": "l:1", "accessToken": "t"}}},
        {"connectionSettings": {"httpIdleTimeout": "0s", "profile": "EDGE"}},
        {"connectionSettings": {"listenerPerConnectionBufferLimitBytes": 0}},
    ],
)
def test_a_good_field_passes(fields: dict[str, object]) -> None:
    assert problems(**fields) == []


@pytest.mark.parametrize(
    ("tracer", "line"),
    [
        ({"zipkin": {}}, "x: tracing.zipkin.address: expected host:port"),
        ({"datadog": {"address": "d"}}, "x: tracing.datadog.address='d': expected host:port"),
        (
            {"zipkin": {"address": "$(HOST_IP):0"}},
            "x: tracing.zipkin.address='$(HOST_IP):0': expected host:port with a port in 1..65535",
        ),
        (
            {"lightstep": {"address": "$(HOST_IP):1", "accessToken": "t"}},
            f"x: tracing.lightstep.address='$(HOST_IP):1': {NO_HOST}",
        ),
        (
            {"lightstep": {"address": "l:1", "accessToken": ""}},
            "x: tracing.lightstep.accessToken: expected a token",
        ),
    ],
)
def test_a_tracer_needs_an_address(tracer: dict[str, object], line: str) -> None:
    assert tracing(**tracer) == [line]


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"mode": "DISABLE"}, []),
        ({"mode": "SIMPLE", "caCertificates": "ca", "subjectAltNames": ["a"]}, []),
        ({"mode": "MUTUAL"}, ["clientCertificate", "privateKey"]),
        ({"mode": "MUTUAL", "clientCertificate": "c", "privateKey": "k"}, []),
        ({"mode": "MUTUAL", "credentialName": "n"}, []),
        (
            {
                "mode": "SIMPLE",
                "credentialName": "n",
                "clientCertificate": "c",
                "privateKey": "k",
                "caCertificates": "ca",
                "caCrl": "l",
            },
            ["clientCertificate", "privateKey", "caCertificates", "caCrl"],
        ),
        (
            {"insecureSkipVerify": True, "caCertificates": "ca", "subjectAltNames": ["a"]},
            ["caCertificates", "subjectAltNames"],
        ),
        ({"insecureSkipVerify": True, "mode": "SIMPLE", "credentialName": "n"}, ["credentialName"]),
        ({"insecureSkipVerify": True, "mode": "MUTUAL", "credentialName": "n"}, []),
        ({"insecureSkipVerify": False, "caCertificates": "ca"}, []),
    ],
)
def test_tls_settings_may_not_contradict_each_other(
    settings: dict[str, object], fields: list[str]
) -> None:
    found = tracing(tlsSettings=settings)

    assert [line.partition(":")[2].split(":")[0].split("=")[0] for line in found] == [
        f" {TLS}{field}" for field in fields
    ]


@pytest.mark.parametrize(
    ("settings", "ending"),
    [
        ({"httpMaxConcurrentStreams": 0}, "=0: expected a whole number in 1..2147483647"),
        ({"listenerConnectionLimit": 0}, "=0: expected a whole number in 1..2147483647"),
        ({"globalDownstreamConnectionLimit": -1}, "=-1: expected a whole number in 1..2147483647"),
        (
            {"clusterPerConnectionBufferLimitBytes": -1},
            "=-1: expected a whole number in 0..2147483647",
        ),
        (
            {"http2InitialStreamWindowSize": 65534},
            "=65534: expected a whole number in 65535..2147483647",
        ),
        ({"httpRequestTimeout": "-1s"}, f"='-1s'{NEGATIVE}"),
    ],
)
def test_connection_settings_have_lower_limits(settings: dict[str, object], ending: str) -> None:
    (name,) = settings

    assert connection(**settings) == [f"x: {CONNECTION}{name}{ending}"]
