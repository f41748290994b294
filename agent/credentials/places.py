"""Where a pod's credentials lie, relative to its root directory.

Source: xds-identity-dns.md sections 2.2, 5.2, 5.6 and 6.4.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

#: Value of XDS_ROOT_CA and CA_ROOT_CA: the operating system's trust store.
SYSTEM: Final = "SYSTEM"
IMPLICIT_DIRECTORY: Final = "./etc/certs"
IMPLICIT_ROOT: Final = f"{IMPLICIT_DIRECTORY}/root-cert.pem"
DEFAULT_ROOT: Final = "./var/run/secrets/istio/root-cert.pem"
SPIFFE_DIRECTORY: Final = "./var/run/secrets/workload-spiffe-credentials"
#: Names of chain, key and root in every directory of certificates but GKE's.
CHAIN: Final = "cert-chain.pem"
KEY: Final = "key.pem"
ROOT: Final = "root-cert.pem"
TOKEN: Final = "./var/run/secrets/tokens/istio-token"  # noqa: S105 - a path, no secret
#: Where systems keep their trust store, as Go looks for it.
SYSTEM_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/etc/ssl/cert.pem",
    "/etc/ssl/certs/ca-certificates",
)

IsFile = Callable[[str], bool]


class Root(NamedTuple):
    """The file of root certificates, why it is this one, and what to do if it is unusable."""

    path: str
    rule: str
    remedy: str
    is_system: bool = False


def system_root(rule: str, is_file: IsFile) -> Root:
    """Return the operating system's trust store; its path is empty if there is none."""
    path = next(filter(is_file, SYSTEM_BUNDLES), "")
    return Root(path, rule, "install the package ca-certificates", is_system=True)


def has_spiffe_credentials(is_file: IsFile) -> bool:
    """Return whether chain, key and root are mounted where a SPIFFE provider puts them."""
    return all(is_file(f"{SPIFFE_DIRECTORY}/{name}") for name in (CHAIN, KEY, ROOT))
