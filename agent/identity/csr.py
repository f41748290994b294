"""A key pair, and the request for its certificate.

This module loads a library of 12 MB and is imported by a short-lived child only (process.py).

Source: xds-identity-dns.md section 6.5.
"""

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from agent.identity.settings import KeySettings

EXPONENT = 65537


def make_csr(settings: KeySettings) -> tuple[bytes, bytes]:
    """Return a new private key and its certificate signing request, both PEM.

    The only extension is the SPIFFE ID, critical, and the subject is one empty organisation: a
    control plane that passes requests on to another CA refuses anything more.
    """
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    digest: hashes.SHA256 | hashes.SHA384 = hashes.SHA256()
    if settings.elliptic:
        key = ec.generate_private_key(ec.SECP384R1() if settings.p384 else ec.SECP256R1())
        digest = hashes.SHA384() if settings.p384 else digest
    else:
        key = rsa.generate_private_key(EXPONENT, settings.rsa_bits)
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(settings.spiffe_id)])
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "")]))
        .add_extension(names, critical=True)
        .sign(key, digest)
    )
    style = PrivateFormat.PKCS8 if settings.pkcs8 else PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(Encoding.PEM, style, NoEncryption()), request.public_bytes(
        Encoding.PEM
    )
