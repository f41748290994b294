"""The settings of workload identity. Source: xds-identity-dns.md sections 5, 6 and 12."""

import pytest

from agent.identity.keys import KeySettings
from agent.identity.settings import (
    Address,
    IdentitySettings,
    KeyProvider,
    OutputSettings,
    RotationSettings,
    parse_identity,
)
from agent.reader import Reader

ISTIOD = "istiod.istio-system.svc:15012"


def parse(
    environ: dict[str, str] | None = None,
    *,
    discovery: str = ISTIOD,
    provider: object = None,
    has_control_plane: bool = True,
) -> tuple[IdentitySettings, Reader]:
    read = Reader(environ or {})
    settings = parse_identity(
        read,
        discovery_address=discovery,
        key_provider=provider,
        has_control_plane=has_control_plane,
    )
    return settings, read


def test_without_settings_the_control_plane_is_the_ca() -> None:
    settings, read = parse({"POD_NAMESPACE": "ns", "SERVICE_ACCOUNT": "sa"})

    assert settings.key == KeySettings("spiffe://cluster.local/ns/ns/sa/sa")
    assert settings.authority.addresses == (
        Address(ISTIOD, "istiod.istio-system.svc", tls=True, send_token=True),
    )
    assert settings.authority.metadata == (("clusterid", ""),)
    assert settings.authority.ttl_seconds == 86400
    assert settings.rotation == RotationSettings(0.5, 0.01)
    assert settings.output is None
    assert settings.warm_up
    assert read.errors == read.warnings == []


def test_an_unknown_policy_is_one_warning_whoever_reads_it() -> None:
    settings, read = parse({"COMPLIANCE_POLICY": "weak", "CA_ADDR": "a:1,b:2"})

    assert {address.policy for address in settings.authority.addresses} == {""}
    assert read.warnings == [
        "COMPLIANCE_POLICY='weak': expected one of fips-140-2, fips-140-3, pqc; using the default"
    ]


def test_a_policy_is_that_of_every_address() -> None:
    settings, _ = parse({"COMPLIANCE_POLICY": "fips-140-3", "CA_ADDR": "a:1,b:2"})

    assert {address.policy for address in settings.authority.addresses} == {"fips-140-3"}


def test_every_variable_has_its_place() -> None:
    settings, read = parse(
        {
            "TRUST_DOMAIN": "td",
            "POD_NAMESPACE": "ns",
            "SERVICE_ACCOUNT": "sa",
            "ECC_SIGNATURE_ALGORITHM": "ECDSA",
            "ECC_CURVE": "P384",
            "PKCS8_KEY": "true",
            "WORKLOAD_RSA_KEY_SIZE": "4096",
            "SECRET_TTL": "1h",
            "SECRET_GRACE_PERIOD_RATIO": "0.25",
            "SECRET_GRACE_PERIOD_RATIO_JITTER": "0",
            "ISTIO_META_CLUSTER_ID": "c",
            "ISTIO_META_CERT_SIGNER": "signer",
            "CA_HEADER_X": "=y",
            "CA_ROOT_CA": "/root",
            "PILOT_CERT_PROVIDER": "custom",
            "PROV_CERT": "/prov",
            "OUTPUT_CERTS": "/out",
            "WORKLOAD_IDENTITY_SOCKET_FILE": "spire.sock",
            "FILE_DEBOUNCE_DURATION": "1s",
            "PILOT_ENABLE_CA_CRL": "false",
            "PROXY_CONFIG_XDS_AGENT": "true",
        }
    )

    key, authority = settings.key, settings.authority
    assert key == KeySettings(
        "spiffe://td/ns/ns/sa/sa", elliptic=True, p384=True, rsa_bits=4096, pkcs8=True
    )
    assert settings.rotation == RotationSettings(0.25, 0.0)
    assert authority.metadata == (("clusterid", "c"), ("x", "=y"))
    assert (authority.root, authority.root_provider) == ("/root", "custom")
    assert (authority.provisioned, authority.signer) == ("/prov", "signer")
    assert authority.ttl_seconds == 3600
    assert settings.trust_domain == "td"
    assert settings.output == OutputSettings("/out", 0o600)
    assert settings.socket_file == "spire.sock"
    assert settings.debounce_seconds == 1
    assert not settings.crl
    assert settings.bundle_over_xds
    assert read.errors == read.warnings == []


@pytest.mark.parametrize(
    ("environ", "discovery", "expected"),
    [
        ({}, "localhost:15012", [("localhost:15012", "istiod.istio-system.svc", True)]),
        ({"ISTIOD_SAN": "san"}, ISTIOD, [(ISTIOD, "san", True)]),
        # The name is istiod's, and says nothing of another CA.
        ({"ISTIOD_SAN": "san", "CA_ADDR": "ca:1"}, ISTIOD, [("ca:1", "ca", True)]),
        ({"CA_ADDR": "ca:15010"}, ISTIOD, [("ca:15010", "ca", False)]),
        ({"CA_ADDR": "[::1]:15012"}, ISTIOD, [("[::1]:15012", "::1", True)]),
        ({"CA_ADDR": "a:1, b:2,"}, ISTIOD, [("a:1", "a", True), ("b:2", "b", True)]),
    ],
)
def test_where_the_ca_is(
    environ: dict[str, str], discovery: str, expected: list[tuple[str, str, bool]]
) -> None:
    settings, read = parse(environ, discovery=discovery)

    found = [(each.target, each.server_name, each.tls) for each in settings.authority.addresses]
    assert found == expected
    assert read.errors == []


@pytest.mark.parametrize(
    ("environ", "sent"),
    [
        ({"CA_ADDR": "ca:15010"}, False),
        ({"CA_ADDR": "ca:15010", "AGENT_CA_PLAINTEXT_TOKEN": "true"}, True),
        ({"CA_ADDR": "127.0.0.1:15010"}, True),
        ({"CA_ADDR": "ca:15012"}, True),
    ],
)
def test_the_token_leaves_the_pod_under_tls_only(
    environ: dict[str, str],
    sent: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    """D-18."""
    settings, _ = parse(environ)

    assert settings.authority.addresses[0].send_token is sent


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"ECC_SIGNATURE_ALGORITHM": "RSA"}, "ECC_SIGNATURE_ALGORITHM='RSA': expected 'ECDSA'"),
        ({"WORKLOAD_RSA_KEY_SIZE": "1024"}, "WORKLOAD_RSA_KEY_SIZE=1024: expected 2048 to"),
        ({"CA_ADDR": "nonsense"}, "CA_ADDR='nonsense': expected host:port, as istiod"),
        ({"CA_ADDR": "ca:99999"}, "CA_ADDR='ca:99999': expected host:port"),
        ({"CA_ADDR": "ca:٣"}, "CA_ADDR='ca:٣': expected host:port"),
        ({"CA_ADDR": " , "}, "CA_ADDR=' , ': expected host:port, or nothing for istiod"),
        ({"CA_PROVIDER": "GoogleCAS"}, 'CA provider "GoogleCAS" not registered'),
        ({"CA_ADDR": "meshca.googleapis.com:443"}, 'CA provider "GoogleCA" not registered'),
        (
            {"PROV_CERT": "/p", "FILE_MOUNTED_CERTS": "true"},
            "PROV_CERT and FILE_MOUNTED_CERTS: expected one",
        ),
        (
            {"PROV_CERT": "/p", "CA_PROVIDER": "GkeWorkloadCertificate"},
            "PROV_CERT and CA_PROVIDER=GkeWorkloadCertificate: expected one",
        ),
        ({"WORKLOAD_IDENTITY_SOCKET_FILE": "a/b"}, "expected a file name without a directory"),
        ({"WORKLOAD_IDENTITY_SOCKET_FILE": ""}, "expected a file name without a directory"),
    ],
)
def test_what_cannot_work_is_an_error(environ: dict[str, str], problem: str) -> None:
    _, read = parse(environ)

    assert len(read.errors) == 1
    assert problem in read.errors[0]


def test_what_is_not_used_is_not_judged() -> None:
    """An elliptic key has no RSA size; mounted certificates and local resources need no CA."""
    assert parse({"ECC_SIGNATURE_ALGORITHM": "ECDSA", "WORKLOAD_RSA_KEY_SIZE": "1"})[1].errors == []
    assert parse({"FILE_MOUNTED_CERTS": "true", "CA_ADDR": "x"})[1].errors == []
    settings, read = parse({"CA_ADDR": "x"}, has_control_plane=False)
    assert read.errors == []
    assert not settings.warm_up


@pytest.mark.parametrize("text", ["nan", "inf", "x"])
def test_a_ratio_is_a_number(text: str) -> None:
    settings, read = parse({"SECRET_GRACE_PERIOD_RATIO": text})

    assert settings.rotation.grace_ratio == 0.5
    assert "expected a number" in read.warnings[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SECRET_TTL", "0s"),
        ("SECRET_TTL", "-1h"),
        ("SECRET_TTL", "9999999h"),
        ("FILE_DEBOUNCE_DURATION", "0"),
        ("FILE_DEBOUNCE_DURATION", "-1s"),
        ("FILE_DEBOUNCE_DURATION", "1h"),
    ],
)
def test_a_duration_that_cannot_work_is_the_default(name: str, text: str) -> None:
    """Without a delay files that are not good would be read without a pause."""
    settings, read = parse({name: text})

    assert (settings.authority.ttl_seconds, settings.debounce_seconds) == (86_400, 0.1)
    assert read.warnings[0].startswith(f"{name}='{text}': expected a duration from ")


@pytest.mark.parametrize(
    ("environ", "mode", "key_mode"),
    [
        ({}, 0o600, 0o600),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, 0o644, 0o600),
        ({"KUBERNETES_SERVICE_HOST": "::1", "AGENT_OUTPUT_KEY_MODE": "0644"}, 0o644, 0o644),
        ({"AGENT_OUTPUT_KEY_MODE": "640"}, 0o600, 0o640),
    ],
)
def test_files_for_others_are_readable_in_a_pod_but_the_key(
    environ: dict[str, str], mode: int, key_mode: int
) -> None:
    """C16."""
    settings, read = parse({"OUTPUT_CERTS": "/out", **environ})

    assert settings.output == OutputSettings("/out", mode, key_mode)
    assert read.warnings == []


@pytest.mark.parametrize("text", ["", "0666", "0777", "600 ", "0o600", "rw", "٦٠٠"])
def test_a_key_is_not_for_everyone_to_write(text: str) -> None:
    settings, read = parse({"OUTPUT_CERTS": "/out", "AGENT_OUTPUT_KEY_MODE": text})

    assert settings.output == OutputSettings("/out")
    assert read.warnings == [
        f"AGENT_OUTPUT_KEY_MODE={text!r}: expected one of 0600, 0640, 0644; using the default"
    ]


@pytest.mark.parametrize(
    ("environ", "mounted", "gke"),
    [
        ({}, False, False),
        ({"FILE_MOUNTED_CERTS": "true"}, True, False),
        ({"CA_PROVIDER": "GkeWorkloadCertificate"}, True, True),
    ],
)
def test_certificates_may_be_mounted(
    environ: dict[str, str],
    mounted: bool,  # noqa: FBT001 - a parameter of the table
    gke: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    settings, read = parse(environ)

    assert (settings.file_mounted, settings.gke) == (mounted, gke)
    assert read.errors == []


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (None, None),
        ({}, None),
        (
            {"cryptomb": {"pollDelay": "1.5s", "fallback": True}},
            KeyProvider("cryptomb", 1, 500_000_000, fallback=True),
        ),
        ({"qat": {"pollDelay": "0.02s"}}, KeyProvider("qat", 0, 20_000_000)),
        ({"qat": {"pollDelay": "soon"}}, KeyProvider("qat")),
    ],
)
def test_the_provider_of_private_keys_keeps_whole_seconds(
    document: object, expected: KeyProvider | None
) -> None:
    """D-3."""
    assert parse(provider=document)[0].key_provider == expected
