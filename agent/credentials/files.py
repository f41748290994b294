"""Reads credentials from files, each time they are needed: whatever was rotated counts at once.

Source: xds-identity-dns.md sections 2.2 and 6.4.
"""

import errno
import logging
import os
import stat
import time
from typing import Final

from agent.credentials.places import Root
from agent.credentials.x509 import certificate_pem, certificates, read_certificate

log = logging.getLogger(__name__)

#: More than any bundle has; what is larger is something else.
LIMIT_BYTES: Final = 16 << 20


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
    """Return the token, "" if there is none."""
    try:
        token = read_file(path).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        log.warning("no token path=%s reason=%r", path, str(error))
        return ""
    if not token.isprintable():  # no header could carry it
        log.warning("no token path=%s reason='expected one line of printable ASCII'", path)
        return ""
    return token


def read_file(path: str) -> bytes:
    """Return the content of a regular file: another one might have us wait, or never end.

    Raises:
        OSError: it cannot be read, is no regular file, or too large.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file")
        if seen.st_size > LIMIT_BYTES:
            raise OSError(errno.EFBIG, f"Has more than {LIMIT_BYTES} bytes")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)
