"""Reads credentials from files, each time they are needed: whatever was rotated counts at once.

Source: xds-identity-dns.md sections 2.2 and 6.4.
"""

import logging
import time
from typing import Final

from agent.credentials.places import Root
from agent.credentials.x509 import certificate_pem, certificates, read_certificate
from bootstrap.files import read_file

log = logging.getLogger(__name__)

#: What is missing where there is no token.
EXPECTED: Final = "expected a service account token that a volume of the pod projects there"


def read_root(root: Root) -> bytes:
    """Return the usable certificates of a root file, as PEM.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no certificate.
    """
    pem = read_file(root.path)
    return pem if root.is_system else usable_roots(pem, root.path)


def usable_roots(pem: bytes, path: str) -> bytes:
    """Return the certificates that can be parsed, each once; one that is broken spoils no other.

    Args:
        pem: a bundle; what is beside its certificates is dropped.
        path: where it is from, for messages.

    Raises:
        ValueError: there is none.

    Source: requirement R-13.
    """
    found = list(dict.fromkeys(certificates(pem)))
    if len(found) == 1:  # the usual case, in which there is nothing to sort out: 3 ms, 1.3 MB less
        try:
            read_certificate(found[0])
        except ValueError as error:
            raise ValueError(f"holds no certificate: {error}") from error
        return certificate_pem(found[0])
    import ssl  # noqa: PLC0415 - few pods need it

    good = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for der in found:
        try:
            read_certificate(der)
            context.load_verify_locations(cadata=der)
        except (ValueError, ssl.SSLError) as error:
            log.warning("ignored root certificate path=%s reason=%r", path, str(error))
        else:
            good.append(certificate_pem(der))
    if not good:
        raise ValueError("holds no certificate")
    return b"".join(good)


def read_client_pair(chain_path: str, key_path: str) -> tuple[bytes | None, bytes | None]:
    """Return chain and key, or nothing where only the token can speak for this pod.

    Raises:
        OSError: there is a chain, but no key.
    """
    if not (chain_path and key_path):
        return None, None
    try:
        chain = read_file(chain_path)
        expires = read_certificate((certificates(chain) or [b""])[0]).not_after
    except (OSError, ValueError) as error:
        log.warning("no client certificate path=%s reason=%r", chain_path, str(error))
        return None, None
    if expires < time.time():
        log.warning("no client certificate path=%s reason='it has expired'", chain_path)
        return None, None
    return chain, read_file(key_path)


def read_token(path: str) -> str:
    """Return the token, "" if there is none, which is logged."""
    try:
        token = read_file(path).decode("ascii").strip()
        if token and token.isprintable():  # another one could be in no header
            return token
        reason = "has more than one line, or what is no text" if token else "is empty"
    except UnicodeDecodeError:
        reason = "is no ASCII"
    except OSError as error:
        reason = error.strerror or str(error)
    log.warning("no token path=%s reason=%r", path, f"{reason}; {EXPECTED}")
    return ""
