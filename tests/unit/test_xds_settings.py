"""Settings of the relay. Source: xds-identity-dns.md sections 2.1 to 2.4."""

import pytest

from agent.reader import Reader, parse_duration
from agent.xds.settings import (
    CacheSettings,
    KeepaliveSettings,
    PatienceSettings,
    XdsSettings,
    parse_xds,
)


def parse(
    environ: dict[str, str] | None = None,
    *,
    address: str = "istiod.istio-system.svc:15012",
    tls: bool = True,
    proxy_metadata: dict[str, str] | None = None,
) -> tuple[XdsSettings, Reader]:
    read = Reader(environ or {})
    settings = parse_xds(
        read,
        config_path="./etc/istio/proxy",
        discovery_address=address,
        tls=tls,
        proxy_metadata=proxy_metadata or {},
        ipv4=True,
        ipv6=False,
    )
    return settings, read


def test_the_defaults_are_the_references() -> None:
    settings, read = parse()

    assert settings.socket_path == "./etc/istio/proxy/XDS"
    assert settings.keepalive == KeepaliveSettings(30.0, 10.0)
    assert settings.max_streams == 100_000
    assert settings.max_receive_bytes == 4_194_304
    assert settings.local == ""
    assert settings.upstream.metadata == (("clusterid", ""),)
    assert settings.upstream.server_name == "istiod.istio-system.svc"
    assert settings.upstream.credentials.provider == "istiod"
    assert not settings.tproxy
    assert (read.errors, read.warnings) == ([], [])


@pytest.mark.parametrize(
    ("address", "san", "name"),
    [
        ("istiod.other.svc:15012", "", "istiod.other.svc"),
        ("localhost:15012", "", "istiod.istio-system.svc"),
        ("my.localhost.example:1", "", "istiod.istio-system.svc"),
        ("[::1]:15012", "", "::1"),
        ("localhost:15012", "istiod.example", "istiod.example"),
    ],
)
def test_the_verified_name_is_that_of_the_host_unless_configured(
    address: str, san: str, name: str
) -> None:
    settings, _ = parse({"ISTIOD_SAN": san}, address=address)

    assert settings.upstream.server_name == name


@pytest.mark.parametrize(
    "address",
    [
        "",
        "istiod",
        "istiod:",
        ":15012",
        "istiod:https",
        "istiod:0",
        "istiod:65536",
        "istiod:²",
        "istiod:" + "9" * 5000,
    ],
)
def test_an_address_without_host_and_port_is_an_error(address: str) -> None:
    _, read = parse(address=address)

    assert read.errors == [
        f"discoveryAddress={address!r}: expected host:port, as istiod.istio-system.svc:15012"
    ]


def test_a_local_control_plane_needs_no_address() -> None:
    settings, read = parse({"AGENT_LOCAL_XDS": "builtin"}, address="")

    assert settings.local == "builtin"
    assert read.errors == []


def test_headers_are_taken_from_the_environment() -> None:
    """T-X17: the value is everything after the first equals sign."""
    settings, read = parse(
        {"XDS_HEADER_FOO": "a=b", "XDS_HEADER_X_Y": "", "ISTIO_META_CLUSTER_ID": "c1"}
    )

    assert settings.upstream.metadata == (("clusterid", "c1"), ("foo", "a=b"), ("x_y", ""))
    assert read.warnings == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("XDS_HEADER_", "x"),
        ("XDS_HEADER_a b", "x"),
        ("XDS_HEADER_GRPC-TIMEOUT", "1S"),
        ("XDS_HEADER_RAW-BIN", "x"),
        ("XDS_HEADER_FOO", "line\nbreak"),
        ("XDS_HEADER_FOO", "naïve"),
    ],
)
def test_a_header_that_http2_forbids_is_left_out(name: str, value: str) -> None:
    settings, read = parse({name: value})

    assert settings.upstream.metadata == (("clusterid", ""),)
    assert len(read.warnings) == 1
    assert name in read.warnings[0]


def test_bad_values_become_defaults_with_a_warning() -> None:
    settings, read = parse({"GRPC_KEEPALIVE_INTERVAL": "30", "ISTIO_GPRC_MAXSTREAMS": "many"})

    assert settings.keepalive.interval_seconds == 30.0
    assert settings.max_streams == 100_000
    assert len(read.warnings) == 2


def test_limits_are_read() -> None:
    settings, _ = parse(
        {
            "GRPC_KEEPALIVE_INTERVAL": "1m",
            "GRPC_KEEPALIVE_TIMEOUT": "500ms",
            "ISTIO_GPRC_MAXSTREAMS": "7",
            "ISTIO_GPRC_MAXRECVMSGSIZE": "1000000",
            "ISTIO_META_INTERCEPTION_MODE": "TPROXY",
        }
    )

    assert settings.keepalive == KeepaliveSettings(60.0, 0.5)
    assert (settings.max_streams, settings.max_receive_bytes) == (7, 1_000_000)
    assert settings.tproxy


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ISTIO_GPRC_MAXRECVMSGSIZE", "99999999999999", "bytes in 262144..2147483647"),
        ("ISTIO_GPRC_MAXRECVMSGSIZE", "2147483648", "bytes in 262144..2147483647"),
        ("ISTIO_GPRC_MAXRECVMSGSIZE", "10", "bytes in 262144..2147483647"),
        ("ISTIO_GPRC_MAXRECVMSGSIZE", "-1", "bytes in 262144..2147483647"),
        ("ISTIO_GPRC_MAXSTREAMS", "999999999999", "streams in 1..2147483647"),
        ("ISTIO_GPRC_MAXSTREAMS", "0", "streams in 1..2147483647"),
        ("GRPC_KEEPALIVE_INTERVAL", "999999999h", "from 1s to 596h"),
        ("GRPC_KEEPALIVE_INTERVAL", "9" * 400 + "h", "from 1s to 596h"),
        ("GRPC_KEEPALIVE_INTERVAL", "0", "from 1s to 596h"),
        ("GRPC_KEEPALIVE_INTERVAL", "-5s", "from 1s to 596h"),
        ("GRPC_KEEPALIVE_TIMEOUT", "597h", "from 1ms to 596h"),
        ("GRPC_KEEPALIVE_TIMEOUT", "0s", "from 1ms to 596h"),
    ],
)
def test_what_grpc_or_envoy_could_not_live_with_becomes_the_default(
    name: str, value: str, expected: str
) -> None:
    settings, read = parse({name: value})

    assert settings == parse()[0]
    assert len(read.warnings) == 1
    assert read.warnings[0].startswith(f"{name}='{value}': expected ")
    assert f"{expected}; using the default" in read.warnings[0]


def test_what_names_certificates_is_gathered() -> None:
    settings, _ = parse(
        {
            "XDS_ROOT_CA": "/root.pem",
            "PROV_CERT": "/prov",
            "PILOT_CERT_PROVIDER": "none",
            "CA_PROVIDER": "GkeWorkloadCertificate",
        },
        proxy_metadata={
            "ISTIO_META_TLS_CLIENT_ROOT_CERT": "/r",
            "ISTIO_META_TLS_CLIENT_CERT_CHAIN": "/c",
            "ISTIO_META_TLS_CLIENT_KEY": "/k",
        },
    )

    assert settings.upstream.credentials == ("/root.pem", "/prov", True, "/r", "/c", "/k", "none")


@pytest.mark.parametrize(
    ("tls", "address", "switch", "sent"),
    [
        (True, "istiod.istio-system.svc:15012", "", True),
        (False, "istiod.istio-system.svc:15010", "", False),
        (False, "istiod.istio-system.svc:15010", "true", True),
        (False, "localhost:15010", "", True),
        (False, "[::1]:15010", "", True),
    ],
)
def test_the_token_leaves_the_pod_under_tls_only(
    tls: bool,  # noqa: FBT001 - a parameter of the table
    address: str,
    switch: str,
    sent: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    """D-18."""
    environ = {"AGENT_XDS_PLAINTEXT_TOKEN": switch} if switch else {}

    settings, _ = parse(environ, address=address, tls=tls)

    assert settings.upstream.send_token is sent


def test_a_policy_restricts_every_connection() -> None:
    settings, read = parse({"COMPLIANCE_POLICY": "pqc"}, address="one:15012,two:15012")

    assert [place.policy for place in (settings.upstream, *settings.others)] == ["pqc", "pqc"]
    assert read.warnings == []


def test_several_addresses_are_several_control_planes() -> None:
    """S6: each has its own name, and the token goes only where it may."""
    settings, read = parse(address="istiod.one:15010, localhost:15010,", tls=False)

    (other,) = settings.others
    assert read.errors == []
    assert (settings.upstream.address, settings.upstream.server_name) == (
        "istiod.one:15010",
        "istiod.one",
    )
    assert (other.address, other.server_name) == ("localhost:15010", "istiod.istio-system.svc")
    assert (settings.upstream.send_token, other.send_token) == (False, True)


def test_each_of_several_addresses_must_be_one() -> None:
    _, read = parse(address="istiod:15012,istiod")

    assert read.errors == [
        "discoveryAddress='istiod': expected host:port, as istiod.istio-system.svc:15012"
    ]


def test_what_envoy_accepts_is_kept_in_the_configuration_directory_if_asked_for() -> None:
    default, _ = parse()
    asked, _ = parse({"AGENT_XDS_CACHE": "true", "AGENT_XDS_CACHE_AFTER": "500ms"})
    local, _ = parse({"AGENT_XDS_CACHE": "true", "AGENT_LOCAL_XDS": "builtin"})

    assert default.cache == CacheSettings("", 5.0)
    assert asked.cache == CacheSettings("./etc/istio/proxy/known-good", 0.5)
    assert local.cache.directory == ""


@pytest.mark.parametrize("value", ["0s", "10s", "45m"])
def test_silence_is_limited_if_asked_for(value: str) -> None:
    default, _ = parse()
    settings, read = parse({"AGENT_XDS_MAX_SILENCE": value})

    assert default.patience == PatienceSettings(30.0, 0.0)
    assert settings.patience.silence_seconds == parse_duration(value)
    assert read.warnings == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AGENT_XDS_MAX_SILENCE", "9s"),
        ("AGENT_XDS_MAX_SILENCE", "597h"),
        ("AGENT_XDS_CACHE_AFTER", "99ms"),
        ("AGENT_XDS_CACHE_AFTER", "597h"),
    ],
)
def test_times_that_make_no_sense_are_the_default_with_a_warning(name: str, value: str) -> None:
    settings, read = parse({name: value})

    assert (settings.patience, settings.cache) == (PatienceSettings(), CacheSettings())
    assert len(read.warnings) == 1
    assert f"{name}='{value}': expected" in read.warnings[0]


def test_each_address_has_its_proxy_and_what_is_wrong_with_that_is_said_once() -> None:
    proxy = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "10.0.0.0/8"}
    settings, read = parse(proxy, address="10.1.2.3:15012,istiod.example:15012")
    _, broken = parse({"HTTPS_PROXY": "http://"}, address="10.1.2.3:15012,istiod.example:15012")

    assert [each.proxy for each in (settings.upstream, *settings.others)] == [
        "",
        "http://proxy:3128",
    ]
    assert (read.errors, read.warnings) == ([], [])
    assert broken.warnings == ["HTTPS_PROXY: expected the URL of a proxy; ignored"]


def test_the_loopback_needs_no_proxy() -> None:
    settings, _ = parse({"HTTPS_PROXY": "http://proxy:3128"}, address="127.0.0.1:15012")

    assert settings.upstream.proxy == ""
