"""What key a workload has, and whom its certificate is for.

A module of its own, and a small one: the agent imports it before nearly everything else, and the
child that makes a key for a renewal imports nothing more of ours.

Source: xds-identity-dns.md section 6.5.
"""

from typing import Final, NamedTuple

MIN_RSA_BITS: Final = 2048


class KeySettings(NamedTuple):
    """The key pair of a CSR, and whom the certificate is for."""

    spiffe_id: str
    #: ECDSA instead of RSA. ECC_SIGNATURE_ALGORITHM.
    elliptic: bool = False
    #: P-384 instead of P-256. ECC_CURVE.
    p384: bool = False
    #: WORKLOAD_RSA_KEY_SIZE.
    rsa_bits: int = MIN_RSA_BITS
    #: PEM label `PRIVATE KEY` instead of that of the algorithm. PKCS8_KEY.
    pkcs8: bool = False


def write_words(settings: KeySettings) -> list[str]:
    """Return what tells a child what to make; no word is secret."""
    return [
        "ec" if settings.elliptic else "rsa",
        ("384" if settings.p384 else "256") if settings.elliptic else str(settings.rsa_bits),
        "pkcs8" if settings.pkcs8 else "traditional",
        settings.spiffe_id,
    ]


def read_words(words: list[str]) -> KeySettings:
    """Return what a child was told to make."""
    algorithm, size, style, spiffe_id = words
    elliptic = algorithm == "ec"
    return KeySettings(
        spiffe_id=spiffe_id,
        elliptic=elliptic,
        p384=elliptic and size == "384",
        rsa_bits=MIN_RSA_BITS if elliptic else int(size),
        pkcs8=style == "pkcs8",
    )
