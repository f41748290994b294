"""Keys and requests for certificates. Source: xds-identity-dns.md section 6.5."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from agent.identity.csr import make_key, write_csr
from agent.identity.keys import KeySettings

SPIFFE_ID = "spiffe://cluster.local/ns/default/sa/hello"


def make_csr(settings: KeySettings) -> tuple[bytes, bytes]:
    return write_csr(make_key(settings), settings)


@pytest.mark.parametrize(
    ("settings", "label", "size", "digest"),
    [
        (KeySettings(SPIFFE_ID), b"RSA PRIVATE KEY", 2048, hashes.SHA256),
        (KeySettings(SPIFFE_ID, rsa_bits=4096, pkcs8=True), b"PRIVATE KEY", 4096, hashes.SHA256),
        (KeySettings(SPIFFE_ID, elliptic=True), b"EC PRIVATE KEY", 256, hashes.SHA256),
        (
            KeySettings(SPIFFE_ID, elliptic=True, p384=True, pkcs8=True),
            b"PRIVATE KEY",
            384,
            hashes.SHA384,
        ),
    ],
)
def test_a_key_is_as_configured(
    settings: KeySettings, label: bytes, size: int, digest: type[hashes.HashAlgorithm]
) -> None:
    """T-A2."""
    pem, request = make_csr(settings)

    key = load_pem_private_key(pem, None)
    csr = x509.load_pem_x509_csr(request)
    assert pem.startswith(b"-----BEGIN " + label)
    assert isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    assert key.key_size == size
    assert csr.public_key() == key.public_key()
    assert csr.is_signature_valid
    assert isinstance(csr.signature_hash_algorithm, digest)


def test_a_request_has_the_spiffe_id_and_nothing_more() -> None:
    _, request = make_csr(KeySettings(SPIFFE_ID, elliptic=True))

    csr = x509.load_pem_x509_csr(request)
    (extension,) = csr.extensions
    assert isinstance(extension.value, x509.SubjectAlternativeName)
    assert extension.critical
    assert list(extension.value) == [x509.UniformResourceIdentifier(SPIFFE_ID)]
    assert [each.value for each in csr.subject] == [""]


def like(settings: KeySettings, key: bytes) -> x509.CertificateSigningRequest:
    """Return what the library makes of the same."""
    private = load_pem_private_key(key, None)
    assert isinstance(private, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(settings.spiffe_id)])
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "")]))
        .add_extension(names, critical=True)
        .sign(private, hashes.SHA384() if settings.p384 else hashes.SHA256())
    )


@pytest.mark.parametrize("length", [1, 50, 100, 127, 128, 200, 255, 256, 1000, 70_000])
@pytest.mark.parametrize(
    "settings",
    [
        KeySettings(""),
        KeySettings("", elliptic=True),
        KeySettings("", elliptic=True, p384=True),
    ],
)
def test_it_is_what_the_library_makes(settings: KeySettings, length: int) -> None:
    """Byte for byte; each length of DER has its own form."""
    settings = settings._replace(spiffe_id="spiffe://" + "x" * length)
    key, request = make_csr(settings)

    csr, expected = x509.load_pem_x509_csr(request), like(settings, key)

    assert csr.tbs_certrequest_bytes == expected.tbs_certrequest_bytes
    assert csr.signature_algorithm_oid == expected.signature_algorithm_oid
    assert csr.is_signature_valid
    assert request == csr.public_bytes(Encoding.PEM)
    if not settings.elliptic:  # whose signatures have chance in them
        assert request == expected.public_bytes(Encoding.PEM)


def test_a_name_that_no_certificate_has_is_refused() -> None:
    with pytest.raises(ValueError, match="'spiffe://ä': expected a SPIFFE ID in ASCII"):
        make_csr(KeySettings("spiffe://ä"))


def test_every_request_has_a_key_of_its_own() -> None:
    settings = KeySettings(SPIFFE_ID, elliptic=True)

    assert make_csr(settings)[0] != make_csr(settings)[0]
