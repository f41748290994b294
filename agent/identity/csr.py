"""A key pair, and the request for its certificate.

Keys and signatures are those of `cryptography`, which takes 10 MB and is imported by a short-lived
child only (process.py). The request around them is put together here: the library's own, `x509`,
takes as long to import as all the rest of the child, and the start of every pod waits for it. The
tests compare the two byte by byte.

Source: xds-identity-dns.md section 6.5; RFC 2986 section 4; RFC 5280 sections 4.1 and 4.2.1.6.
"""

import base64
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from agent.identity.keys import KeySettings

EXPONENT: Final = 65537
SEQUENCE: Final = 0x30
SET: Final = 0x31
OCTET_STRING: Final = 0x04
BIT_STRING: Final = 0x03
URI: Final = 0x86
ATTRIBUTES: Final = 0xA0
VERSION_1: Final = b"\x02\x01\x00"
TRUE: Final = b"\x01\x01\xff"
NULL: Final = b"\x05\x00"
EMPTY_TEXT: Final = b"\x0c\x00"
ORGANIZATION: Final = bytes.fromhex("060355040a")
SUBJECT_ALT_NAME: Final = bytes.fromhex("0603551d11")
EXTENSION_REQUEST: Final = bytes.fromhex("06092a864886f70d01090e")
RSA_SHA256: Final = bytes.fromhex("06092a864886f70d01010b") + NULL
ECDSA_SHA256: Final = bytes.fromhex("06082a8648ce3d040302")
ECDSA_SHA384: Final = bytes.fromhex("06082a8648ce3d040303")
LONG_LENGTH: Final = 0x80
COLUMNS: Final = 64

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def make_key(settings: KeySettings) -> Key:
    """Return a new private key."""
    if settings.elliptic:
        return ec.generate_private_key(ec.SECP384R1() if settings.p384 else ec.SECP256R1())
    return rsa.generate_private_key(EXPONENT, settings.rsa_bits)


def write_csr(key: Key, settings: KeySettings) -> tuple[bytes, bytes]:
    """Return a private key and its certificate signing request, both PEM.

    The only extension is the SPIFFE ID, critical, and the subject is one empty organisation: a
    control plane that passes requests on to another CA refuses anything more.

    Raises:
        ValueError: no certificate can name this SPIFFE ID.
    """
    if not settings.spiffe_id.isascii():
        raise ValueError(f"{settings.spiffe_id!r}: expected a SPIFFE ID in ASCII")
    style = PrivateFormat.PKCS8 if settings.pkcs8 else PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(Encoding.PEM, style, NoEncryption()), _request(key, settings.spiffe_id)


def _request(key: Key, spiffe_id: str) -> bytes:
    subject = _element(SEQUENCE, _element(SET, _element(SEQUENCE, ORGANIZATION, EMPTY_TEXT)))
    public_key = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    names = _element(SEQUENCE, _element(URI, spiffe_id.encode()))
    extension = _element(SEQUENCE, SUBJECT_ALT_NAME, TRUE, _element(OCTET_STRING, names))
    wanted = _element(SEQUENCE, EXTENSION_REQUEST, _element(SET, _element(SEQUENCE, extension)))
    info = _element(SEQUENCE, VERSION_1, subject, public_key, _element(ATTRIBUTES, wanted))
    algorithm, signature = _sign(key, info)
    der = _element(
        SEQUENCE,
        info,
        _element(SEQUENCE, algorithm),
        _element(BIT_STRING, b"\x00", signature),  # no bits of its last byte are unused
    )
    text = base64.b64encode(der)
    lines = b"\n".join(text[at : at + COLUMNS] for at in range(0, len(text), COLUMNS))
    return b"-----BEGIN CERTIFICATE REQUEST-----\n%b\n-----END CERTIFICATE REQUEST-----\n" % lines


def _sign(key: Key, info: bytes) -> tuple[bytes, bytes]:
    """Return algorithm and signature."""
    if isinstance(key, rsa.RSAPrivateKey):
        return RSA_SHA256, key.sign(info, padding.PKCS1v15(), hashes.SHA256())
    if key.key_size == ec.SECP384R1.key_size:
        return ECDSA_SHA384, key.sign(info, ec.ECDSA(hashes.SHA384()))
    return ECDSA_SHA256, key.sign(info, ec.ECDSA(hashes.SHA256()))


def _element(tag: int, *parts: bytes) -> bytes:
    """Return an element of DER. Source: ITU-T X.690 section 8.1."""
    content = b"".join(parts)
    length = len(content)
    if length < LONG_LENGTH:
        return bytes((tag, length)) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, LONG_LENGTH | len(size))) + size + content
