"""Reads secrets from files, and writes those that the CA issued for others to use.

Source: xds-identity-dns.md sections 4.5, 5.4 and 5.8, deviation D-16.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

from agent.credentials import places
from agent.credentials.files import usable_roots
from agent.credentials.x509 import pem_bodies
from agent.errors import SecretError
from agent.identity.names import FileResource
from agent.identity.secret import KeyPair, PrivateKey, Roots
from agent.identity.settings import OutputSettings
from bootstrap.files import read_file

CRL_PATH: Final = "/var/run/secrets/istio/crl/ca-crl.pem"
CRL_LABEL: Final = b"X509 CRL"
#: What Envoy accepts is not for this system's policy to refuse.
ANY_STRENGTH: Final = "ALL:@SECLEVEL=0"


def read_secret(resource: FileResource) -> KeyPair | Roots:
    """Return what is in the files of a resource, checked.

    Raises:
        SecretError: not all is there, or it is not what it must be; names the file.
    """
    certificate = _read(resource.certificate)
    if not resource.key:
        try:
            return Roots(usable_roots(certificate, resource.certificate))
        except ValueError as error:
            raise SecretError(f"{resource.certificate}: {error}") from None
    key = PrivateKey(_read(resource.key))
    try:
        _check_pair(resource, certificate, key)
    except OSError as error:  # no more descriptors
        raise SecretError(f"{resource.certificate}: cannot be checked: {error.strerror}") from None
    return KeyPair(certificate, key)


def read_crl(resource: FileResource) -> bytes:
    """Return the revoked certificates, PEM; empty if there are none, or no such file.

    Raises:
        SecretError: the file is no CRL.
    """
    try:
        crl = read_file(resource.certificate)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise SecretError(f"{resource.certificate}: {error.strerror}") from error
    # An empty one is none to Envoy, too.
    if crl.strip() and not pem_bodies(crl, CRL_LABEL):
        raise SecretError(f"{resource.certificate}: expected a CRL in PEM")
    return crl


def _read(path: str) -> bytes:
    try:
        content = read_file(path)
    except OSError as error:
        raise SecretError(f"{path}: {error.strerror}") from error
    if not content:
        raise SecretError(f"{path}: is empty")
    return content


def _check_pair(resource: FileResource, chain: bytes, key: PrivateKey) -> None:
    """Raise SecretError unless the leaf is for the key: both are read, or none (R-4).

    OpenSSL judges the very bytes that were read, out of memory: the files may change meanwhile.
    """
    import ssl  # noqa: PLC0415 - 1.4 MB, for the pods whose certificates are mounted

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # a new one: it keeps a copy of the key
    context.set_ciphers(ANY_STRENGTH)
    with _in_memory(chain) as chain_path, _in_memory(key) as key_path:
        try:
            context.load_cert_chain(chain_path, key_path, password=_no_password)
        except ssl.SSLError as error:
            files = f"{resource.certificate} and {resource.key}"
            if error.reason == "KEY_VALUES_MISMATCH":
                raise SecretError(f"{files}: the certificate is not for this key") from None
            raise SecretError(f"{files}: expected a certificate and its key in PEM") from None


def _no_password() -> NoReturn:
    raise SecretError("the key is encrypted; expected one that is not")


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Provide a path to a file that is on no disk."""
    descriptor = os.memfd_create("secret", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def write_output(settings: OutputSettings, pair: KeyPair, roots: bytes) -> list[str]:
    """Write key, chain and root for others; return the names of the files that changed.

    All are complete beside their places before the first is moved there, so that a reader meets
    a mixture for no longer than three renames take.

    Raises:
        OSError: the directory is missing, full or not writable; nothing has changed.
    """
    wanted = {places.KEY: pair.key, places.CHAIN: pair.chain, places.ROOT: roots}
    changed = [name for name, content in wanted.items() if _differs(settings, name, content)]
    try:
        for name in changed:
            _stage(settings, name, wanted[name])
        for name in changed:
            os.replace(_staged(settings, name), f"{settings.directory}/{name}")  # noqa: PTH105 - strings
    except OSError:
        for name in changed:
            with suppress(OSError):
                os.unlink(_staged(settings, name))  # noqa: PTH108 - strings
        raise
    return changed


def _differs(settings: OutputSettings, name: str, content: bytes) -> bool:
    path = f"{settings.directory}/{name}"
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116 - strings
        return mode != _mode(settings, name) or _read(path) != content
    except (OSError, SecretError):
        return True


def _mode(settings: OutputSettings, name: str) -> int:
    return settings.key_mode if name == places.KEY else settings.mode


def _staged(settings: OutputSettings, name: str) -> str:
    return f"{settings.directory}/.{name}.new"


def _stage(settings: OutputSettings, name: str, content: bytes) -> None:
    path = _staged(settings, name)
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - strings
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        os.fchmod(descriptor, _mode(settings, name))
        file.write(content)
        file.flush()
        os.fsync(descriptor)  # or after a crash of the machine its name may have no content
