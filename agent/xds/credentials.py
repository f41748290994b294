"""Which certificate files secure the connection to the control plane, and what they must hold.

Source: xds-identity-dns.md sections 2.2, 5.2 and 5.6, deviation D-5.
"""

import base64
import binascii
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from agent.errors import AgentError
from agent.xds.settings import CredentialSettings

SYSTEM: Final = "SYSTEM"
SYSTEM_RULE: Final = "XDS_ROOT_CA=SYSTEM"
IMPLICIT_ROOT: Final = "./etc/certs/root-cert.pem"
DEFAULT_ROOT: Final = "./var/run/secrets/istio/root-cert.pem"
SPIFFE_DIRECTORY: Final = "./var/run/secrets/workload-spiffe-credentials"
SPIFFE_FILES: Final = ("cert-chain.pem", "key.pem", "root-cert.pem")
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

# Tags of X.509's encoding (ITU-T X.690, RFC 5280 section 4.1).
SEQUENCE: Final = 0x30
VERSION_TAG: Final = 0xA0
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
LONG_LENGTH: Final = 0x80
PIVOT_YEAR: Final = 50  #: a two-digit year below it is in this century, RFC 5280 4.1.2.5.1


class Root(NamedTuple):
    """The file of root certificates, and why it is this one."""

    path: str
    rule: str
    remedy: str


class ClientPair(NamedTuple):
    """The files of the client certificate; empty paths mean none."""

    chain: str = ""
    key: str = ""


def choose_root(settings: CredentialSettings, is_file: Callable[[str], bool]) -> Root:
    """Return the root file by the first rule that applies.

    Args:
        settings: what was configured.
        is_file: whether a path is a regular file after following links.

    Raises:
        AgentError: no file, or none where it must be; names path, rule and remedy.
    """
    root = _first_rule(settings, is_file)
    if not root.path or not is_file(root.path):
        where = root.path or "no file"
        raise AgentError(f"{where} ({root.rule}): expected the control plane's root; {root.remedy}")
    return root


def _first_rule(settings: CredentialSettings, is_file: Callable[[str], bool]) -> Root:
    return _configured_root(settings, is_file) or _root_of_mode(settings, is_file)


def _configured_root(settings: CredentialSettings, is_file: Callable[[str], bool]) -> Root | None:
    if settings.root == SYSTEM:
        path = next(filter(is_file, SYSTEM_BUNDLES), "")
        return Root(path, SYSTEM_RULE, "install the package ca-certificates")
    if settings.root:
        return Root(settings.root, "XDS_ROOT_CA", "correct XDS_ROOT_CA or mount the file")
    if is_file(IMPLICIT_ROOT):
        return Root(IMPLICIT_ROOT, "mounted certificates", "replace the file")
    if settings.provisioned:
        path = f"{settings.provisioned}/root-cert.pem"
        return Root(path, "PROV_CERT", "put the root there or set XDS_ROOT_CA")
    return None


def _root_of_mode(settings: CredentialSettings, is_file: Callable[[str], bool]) -> Root:
    # Without a root of their own the SPIFFE credentials must not keep the agent from starting.
    spiffe = _has_spiffe_credentials(is_file)
    if settings.file_mounted or (spiffe and settings.mounted_root):
        return Root(
            settings.mounted_root,
            "ISTIO_META_TLS_CLIENT_ROOT_CERT of proxyMetadata, certificates are mounted",
            "correct it or set XDS_ROOT_CA",
        )
    if settings.provider == "none":
        return Root("", "PILOT_CERT_PROVIDER=none", "set XDS_ROOT_CA")
    return Root(
        DEFAULT_ROOT,
        f"PILOT_CERT_PROVIDER={settings.provider}",
        "mount the ConfigMap istio-ca-root-cert there or set XDS_ROOT_CA",
    )


def choose_client_pair(settings: CredentialSettings, is_file: Callable[[str], bool]) -> ClientPair:
    """Return the files of the client certificate, if one is configured."""
    if settings.provisioned:
        directory = settings.provisioned
        return ClientPair(f"{directory}/cert-chain.pem", f"{directory}/key.pem")
    if settings.file_mounted or _has_spiffe_credentials(is_file):
        return ClientPair(settings.mounted_chain, settings.mounted_key)
    return ClientPair()


def _has_spiffe_credentials(is_file: Callable[[str], bool]) -> bool:
    return all(is_file(f"{SPIFFE_DIRECTORY}/{name}") for name in SPIFFE_FILES)


def certificates(pem: bytes) -> list[bytes]:
    """Return the DER of each certificate in a PEM file; what is no base64 is left out."""
    pattern = rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----"
    found = []
    for body in re.findall(pattern, pem, re.DOTALL):
        try:
            found.append(base64.b64decode(b"".join(body.split()), validate=True))
        except binascii.Error:
            continue
    return found


def not_after(der: bytes) -> float:
    """Return when a certificate expires, in Unix seconds; ValueError if it is no certificate.

    A handful of lines instead of a library of 12 MB, which only a child process may load.
    """
    _, start, _ = _element(der, 0, SEQUENCE)
    _, at, end = _element(der, start, SEQUENCE)
    if at < end and der[at] == VERSION_TAG:
        _, _, at = _element(der, at)
    for _field in ("serialNumber", "signature", "issuer"):
        _, _, at = _element(der, at)
    _, at, _ = _element(der, at, SEQUENCE)  # validity
    _, _, at = _element(der, at)  # notBefore
    tag, start, end = _element(der, at)
    return _time(tag, der[start:end])


def _element(der: bytes, at: int, expected: int | None = None) -> tuple[int, int, int]:
    """Return tag, begin and end of the content of the element at a position."""
    if at + 2 > len(der):
        raise ValueError("certificate ends too early")
    tag, length, start = der[at], der[at + 1], at + 2
    if length >= LONG_LENGTH:
        size = length - LONG_LENGTH
        length = int.from_bytes(der[start : start + size], "big")
        start += size
    if start + length > len(der):
        raise ValueError("certificate ends too early")
    if expected is not None and tag != expected:
        raise ValueError(f"expected tag {expected:#x} in a certificate, got {tag:#x}")
    return tag, start, start + length


def _time(tag: int, content: bytes) -> float:
    digits = content.decode("ascii", "replace")
    if tag == UTC_TIME and re.fullmatch(r"\d{12}Z", digits):
        year = int(digits[:2])
        digits = f"{20 if year < PIVOT_YEAR else 19}{digits}"
    elif tag != GENERALIZED_TIME or not re.fullmatch(r"\d{14}Z", digits):
        raise ValueError(f"expected a time in a certificate, got {digits!r}")
    numbers = [int(digits[:4]), *(int(digits[at : at + 2]) for at in range(4, 14, 2))]
    import calendar  # noqa: PLC0415 - 1 ms, for the few pods with a client certificate

    return float(calendar.timegm((*numbers, 0, 0, 0)))
