"""Which files secure the connection. Source: xds-identity-dns.md section 2.2."""

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent.errors import AgentError
from agent.xds.credentials import (
    DEFAULT_ROOT,
    IMPLICIT_ROOT,
    SPIFFE_DIRECTORY,
    ClientPair,
    certificates,
    choose_client_pair,
    choose_root,
    not_after,
)
from agent.xds.settings import CredentialSettings

SPIFFE = {f"{SPIFFE_DIRECTORY}/{name}.pem" for name in ("cert-chain", "key", "root-cert")}
PLAIN = CredentialSettings()
PROVISIONED = CredentialSettings(provisioned="/prov")
MOUNTED = CredentialSettings(
    file_mounted=True, mounted_root="/r", mounted_chain="/c", mounted_key="/k"
)


@pytest.mark.parametrize(
    ("settings", "files", "path"),
    [
        (PLAIN, {DEFAULT_ROOT}, DEFAULT_ROOT),
        (PLAIN, {DEFAULT_ROOT, IMPLICIT_ROOT}, IMPLICIT_ROOT),
        (CredentialSettings(root="/x"), {"/x", IMPLICIT_ROOT}, "/x"),
        (
            CredentialSettings(root="SYSTEM"),
            {"/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"},
            "/etc/ssl/ca-bundle.pem",
        ),
        (PROVISIONED, {"/prov/root-cert.pem"}, "/prov/root-cert.pem"),
        (PROVISIONED, {"/prov/root-cert.pem", IMPLICIT_ROOT}, IMPLICIT_ROOT),
        (MOUNTED, {"/r", DEFAULT_ROOT}, "/r"),
        (PLAIN._replace(mounted_root="/r"), SPIFFE | {"/r"}, "/r"),
        # D-5: without more settings these credentials do not keep the agent from starting.
        (PLAIN, SPIFFE | {DEFAULT_ROOT}, DEFAULT_ROOT),
    ],
)
def test_the_first_rule_that_applies_gives_the_root(
    settings: CredentialSettings, files: set[str], path: str
) -> None:
    assert choose_root(settings, files.__contains__).path == path


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (PLAIN, (DEFAULT_ROOT, "PILOT_CERT_PROVIDER=istiod", "istio-ca-root-cert")),
        (CredentialSettings(root="/x"), ("/x", "XDS_ROOT_CA", "correct XDS_ROOT_CA")),
        (CredentialSettings(root="SYSTEM"), ("no file", "XDS_ROOT_CA=SYSTEM", "ca-certificates")),
        (PROVISIONED, ("/prov/root-cert.pem", "PROV_CERT", "set XDS_ROOT_CA")),
        (MOUNTED, ("/r", "ISTIO_META_TLS_CLIENT_ROOT_CERT", "set XDS_ROOT_CA")),
        (CredentialSettings(provider="none"), ("no file", "PILOT_CERT_PROVIDER=none", "set")),
    ],
)
def test_a_missing_root_names_path_rule_and_remedy(
    settings: CredentialSettings, parts: tuple[str, ...]
) -> None:
    with pytest.raises(AgentError) as caught:
        choose_root(settings, set[str]().__contains__)

    assert all(part in str(caught.value) for part in parts)


@pytest.mark.parametrize(
    ("settings", "files", "pair"),
    [
        (PLAIN, set(), ClientPair()),
        (PROVISIONED, set(), ClientPair("/prov/cert-chain.pem", "/prov/key.pem")),
        (MOUNTED, set(), ClientPair("/c", "/k")),
        (MOUNTED._replace(file_mounted=False), SPIFFE, ClientPair("/c", "/k")),
        (MOUNTED._replace(file_mounted=False), set(), ClientPair()),
    ],
)
def test_the_client_certificate_comes_from_where_it_is_mounted(
    settings: CredentialSettings, files: set[str], pair: ClientPair
) -> None:
    assert choose_client_pair(settings, files.__contains__) == pair


def certificate(expires: dt.datetime) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 60)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(dt.datetime(1999, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(expires)
        .sign(key, hashes.SHA256())
    )


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 9999])
def test_the_end_of_validity_is_read(year: int) -> None:
    """Up to 2049 the year has two digits."""
    expires = dt.datetime(year, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
    der = certificate(expires).public_bytes(serialization.Encoding.DER)

    assert not_after(der) == expires.timestamp()


def test_a_certificate_of_the_first_version_has_no_version() -> None:
    def element(tag: int, *content: bytes) -> bytes:
        body = b"".join(content)
        return bytes((tag, len(body))) + body

    times = element(0x17, b"990101000000Z"), element(0x17, b"300101000000Z")
    body = element(0x30, element(2, b"1"), element(0x30), element(0x30), element(0x30, *times))

    assert not_after(element(0x30, body)) == dt.datetime(2030, 1, 1, tzinfo=dt.UTC).timestamp()


def test_anything_cut_off_or_bent_is_no_certificate() -> None:
    expires = dt.datetime(2026, 12, 31, tzinfo=dt.UTC)
    der = certificate(expires).public_bytes(serialization.Encoding.DER)

    for end in range(len(der)):
        with pytest.raises(ValueError, match="certificate"):
            not_after(der[:end])
    with pytest.raises(ValueError, match="expected a time in a certificate, got '26123100000Z0'"):
        not_after(der.replace(b"\x17\x0d261231000000Z", b"\x17\x0d26123100000Z0"))
    with pytest.raises(ValueError, match="expected tag 0x30 in a certificate, got 0x31"):
        not_after(b"\x31" + der[1:])


def test_certificates_are_found_between_other_things_in_a_file() -> None:
    one, two = (certificate(dt.datetime(2030, 1, day, tzinfo=dt.UTC)) for day in (1, 2))
    pem = b"".join(
        (
            b"some text\n",
            one.public_bytes(serialization.Encoding.PEM),
            b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n",
            two.public_bytes(serialization.Encoding.PEM),
            b"-----BEGIN CERTIFICATE-----\nAAAA",
        )
    )

    found = certificates(pem)

    assert found == [each.public_bytes(serialization.Encoding.DER) for each in (one, two)]
