"""Whatever the bytes, the reader of certificates raises its own error."""

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given
from hypothesis import strategies as st

from agent.credentials.x509 import certificate_pem, certificates, name_text, read_certificate

KEY = ed25519.Ed25519PrivateKey.generate()
TIMES = st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001 - hypothesis wants naive bounds
LABELS = st.text("abcxyz", min_size=1, max_size=20)


@given(st.binary(max_size=64))
def test_hostile_certificates_raise_nothing_but_value_errors(der: bytes) -> None:
    for read in (read_certificate, name_text):
        try:
            read(der)
        except ValueError:
            continue


@given(st.binary(), st.binary(max_size=9))
def test_what_is_written_as_pem_is_read_back(der: bytes, around: bytes) -> None:
    assert certificates(around + certificate_pem(der) + around) == [der]


@given(
    st.integers(1, 2**159 - 1),
    st.tuples(TIMES, TIMES).filter(lambda pair: pair[0] <= pair[1]),
    st.lists(LABELS, max_size=3),
)
def test_any_certificate_reads_as_the_library_made_it(
    serial: int, times: tuple[dt.datetime, dt.datetime], uris: list[str]
) -> None:
    times = (times[0].replace(microsecond=0), times[1].replace(microsecond=0))
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(serial)
        .not_valid_before(times[0])
        .not_valid_after(times[1])
    )
    names = [x509.UniformResourceIdentifier(f"spiffe://{uri}") for uri in uris]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = builder.sign(KEY, None)  # Ed25519 has a hash of its own

    read = read_certificate(made.public_bytes(serialization.Encoding.DER))

    assert read.serial == serial
    assert (read.not_before, read.not_after) == tuple(time.timestamp() for time in times)
    assert list(read.names) == [f"URI:{each.value}" for each in names]
