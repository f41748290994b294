"""What TLS may be spoken with the control plane and the CA under COMPLIANCE_POLICY.

Source: xds-identity-dns.md section 2.2.
"""

from typing import Final, NamedTuple

TLS_1_2: Final = 0x0303
TLS_1_3: Final = 0x0304
_FIPS_CIPHERS: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384"
)
_AES_GCM: Final = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384"


class Policy(NamedTuple):
    """All that is offered; names and lists are OpenSSL's."""

    minimum: int
    maximum: int
    ciphers: str  #: of TLS 1.2
    suites: str  #: of TLS 1.3
    groups: str

    def __str__(self) -> str:
        """Return it for a person."""
        names = {TLS_1_2: "1.2", TLS_1_3: "1.3"}
        versions = dict.fromkeys((names[self.minimum], names[self.maximum]))
        groups = " or ".join(self.groups.split(":"))
        return f"TLS {' or '.join(versions)} with AES-GCM and {groups}"


POLICIES: Final = {
    "fips-140-2": Policy(TLS_1_2, TLS_1_2, _FIPS_CIPHERS, _AES_GCM, "P-256"),
    "fips-140-3": Policy(TLS_1_2, TLS_1_3, _FIPS_CIPHERS, _AES_GCM, "P-256:P-384"),
    "pqc": Policy(TLS_1_3, TLS_1_3, _FIPS_CIPHERS, _AES_GCM, "X25519MLKEM768"),
}
