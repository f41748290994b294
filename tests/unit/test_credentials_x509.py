"""The agent's own reading of certificates, held against the real library's."""

import datetime as dt
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent.credentials.x509 import (
    certificate_pem,
    certificates,
    name_text,
    pem_bodies,
    read_certificate,
    request_public_key,
)

KEY = ec.generate_private_key(ec.SECP256R1())
NAME = x509.Name(
    [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "o" * 60),
        x509.NameAttribute(NameOID.COMMON_NAME, "x" * 60),
    ]
)
SPIFFE_ID = "spiffe://cluster.local/ns/default/sa/hello"
START = dt.datetime(1999, 1, 1, tzinfo=dt.UTC)
END = dt.datetime(2026, 12, 31, tzinfo=dt.UTC)


def certificate(expires: dt.datetime = END, *names: x509.GeneralName) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(NAME)
        .public_key(KEY.public_key())
        .serial_number(2**64 + 1)
        .not_valid_before(START)
        .not_valid_after(expires)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
    return builder.sign(KEY, hashes.SHA256())


def der_of(made: x509.Certificate) -> bytes:
    return made.public_bytes(serialization.Encoding.DER)


def spki() -> bytes:
    return KEY.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def element(tag: int, *content: bytes) -> bytes:
    body = b"".join(content)
    return bytes((tag, len(body))) + body


def test_the_outline_is_read() -> None:
    names = (
        x509.DNSName("x"),
        x509.UniformResourceIdentifier(SPIFFE_ID),
        x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
        x509.IPAddress(ipaddress.ip_address("10.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("fd00::1")),
        x509.RFC822Name("a@b"),
    )

    read = read_certificate(der_of(certificate(END, *names)))

    assert read.serial == 2**64 + 1
    assert read.issuer == read.subject == NAME.public_bytes()
    assert (read.not_before, read.not_after) == (START.timestamp(), END.timestamp())
    assert read.public_key == spki()
    assert read.names == ("DNS:x", f"URI:{SPIFFE_ID}", "IP:10.0.0.1", "IP:fd00::1", "email:a@b")


def test_an_address_of_no_family_is_shown_as_it_is() -> None:
    address = element(0x87, b"\1\2")
    names = element(0x30, b"\x06\x03\x55\x1d\x11", element(0x04, element(0x30, address)))

    read = read_certificate(handmade(more=element(0xA3, element(0x30, names))))

    assert read.names == ("IP:0102",)


def test_there_may_be_no_other_names() -> None:
    assert read_certificate(der_of(certificate(END))).names == ()


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 9999])
def test_the_end_of_validity_is_read(year: int) -> None:
    """Up to 2049 the year has two digits."""
    expires = dt.datetime(year, 12, 31, 23, 59, 59, tzinfo=dt.UTC)

    assert read_certificate(der_of(certificate(expires))).not_after == expires.timestamp()


def handmade(
    *, serial: bytes = b"\x01", times: tuple[bytes, ...] | None = None, more: bytes = b""
) -> bytes:
    """Return a certificate of the first version: it has no version, and no extensions."""
    if times is None:
        times = (element(0x17, b"990101000000Z"), element(0x17, b"300101000000Z"))
    empty = element(0x30)
    body = (element(2, serial), empty, empty, element(0x30, *times), empty, empty, more)
    return element(0x30, element(0x30, *body))


def test_a_certificate_of_the_first_version_has_no_version() -> None:
    read = read_certificate(handmade())

    assert read.not_after == dt.datetime(2030, 1, 1, tzinfo=dt.UTC).timestamp()
    assert read.names == ()


def test_identifiers_before_the_extensions_are_passed_over() -> None:
    """RFC 5280 section 4.1.2.8; some CA may still write them."""
    assert read_certificate(handmade(more=element(0x81, b"\0unique"))).names == ()


@pytest.mark.parametrize(
    ("der", "problem"),
    [
        (handmade(serial=b"\xff"), "negative serial number"),
        (handmade(times=()), "expected two times in a certificate, got 0"),
        (handmade(times=(element(0x17, b"991301000000Z"),) * 2), "got '19991301000000Z'"),
        (handmade(times=(element(0x17, b"9901010000Z"),) * 2), "got '9901010000Z'"),
        (handmade(times=(element(0x16, b"990101000000Z"),) * 2), "expected a time"),
        (b"\x31" + handmade()[1:], "expected tag 0x30 in a certificate, got 0x31"),
        (b"\x30\x80" + handmade(), "length of 0 bytes"),
        (b"\x30\x85" + handmade(), "length of 5 bytes"),
    ],
)
def test_what_is_bent_is_no_certificate(der: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_certificate(der)


def test_anything_cut_off_is_no_certificate() -> None:
    der = der_of(certificate(END, x509.UniformResourceIdentifier(SPIFFE_ID)))

    for end in range(len(der)):
        with pytest.raises(ValueError, match="certificate"):
            read_certificate(der[:end])


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

    assert certificates(pem) == [der_of(one), der_of(two)]


def test_a_block_without_an_end_spoils_no_other() -> None:
    """However many there are: each byte is looked at once, or this would take days."""
    begun = b"-----BEGIN CERTIFICATE-----\nMAA=\n" * 100_000

    made = certificate()

    assert certificates(begun + made.public_bytes(serialization.Encoding.PEM)) == [der_of(made)]


def test_a_certificate_is_written_as_everybody_does() -> None:
    made = certificate()

    assert certificate_pem(der_of(made)) == made.public_bytes(serialization.Encoding.PEM)


def test_the_key_of_a_request_is_read() -> None:
    request = x509.CertificateSigningRequestBuilder().subject_name(NAME).sign(KEY, hashes.SHA256())
    pem = request.public_bytes(serialization.Encoding.PEM)

    (der,) = pem_bodies(pem, b"CERTIFICATE REQUEST")

    assert request_public_key(der) == spki()
    with pytest.raises(ValueError, match="expected tag"):
        request_public_key(der_of(certificate()))


def test_a_name_reads_as_text() -> None:
    unknown = x509.NameAttribute(NameOID.SERIAL_NUMBER, "7")

    assert name_text(NAME.public_bytes()) == f"O={'o' * 60}, CN={'x' * 60}"
    assert name_text(x509.Name([unknown]).public_bytes()) == "?=7"
    assert name_text(x509.Name([]).public_bytes()) == ""
