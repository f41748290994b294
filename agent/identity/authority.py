"""What is asked of the CA, what of its answers is taken, and whom to ask next.

Source: xds-identity-dns.md sections 5.10, 6.2, 6.3 and 7.1; cases C3, C8 and C13.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from agent.credentials import places
from agent.credentials.places import IsFile, Root
from agent.credentials.x509 import (
    Certificate,
    certificates,
    pem_bodies,
    read_certificate,
    request_public_key,
)
from agent.errors import SecretError
from agent.identity.bundle import join_chain
from agent.identity.secret import PrivateKey
from agent.identity.settings import AuthoritySettings
from agent.protobuf.wire import LENGTH, fields, message, text

METHOD: Final = "/istio.v1.auth.IstioCertificateService/CreateCertificate"
#: gRPC codes worth another attempt (6.3): RESOURCE_EXHAUSTED, ABORTED, INTERNAL, UNAVAILABLE.
RETRIED: Final = frozenset((8, 10, 13, 14))
UNAUTHENTICATED: Final = 16
#: In one call; but each address is asked once.
ATTEMPTS: Final = 5
FIRST_WAIT_SECONDS: Final = 0.1
WAIT_SPREAD: Final = 0.1
#: Chain elements: at least a leaf, and the root as the last one.
MIN_ELEMENTS: Final = 2
REQUEST: Final = b"-----BEGIN CERTIFICATE REQUEST-----"
KEY_MARK: Final = b"PRIVATE KEY"
BEGIN: Final = b"-----BEGIN "


class Csr(NamedTuple):
    """A new key and the request for its certificate."""

    key: PrivateKey
    request: str  #: PEM
    public_key: bytes  #: DER


class Issued(NamedTuple):
    """A certificate that the CA has issued for a key of ours."""

    chain: bytes
    key: PrivateKey
    roots: bytes  #: PEM, as the CA sent them
    leaf: Certificate


def read_csr(output: PrivateKey) -> Csr:
    """Return what a child has made (process.py): a key, and the request after it.

    Raises:
        SecretError: it has failed; ends with what it said last, which is never a key.
    """
    at = output.find(REQUEST)
    request = output[at:] if at >= 0 else b""
    bodies = pem_bodies(request, b"CERTIFICATE REQUEST")
    if not bodies:
        # Not taken apart if there is a key in it: no exception's frame shall show any of that.
        has_key = output.find(KEY_MARK) >= 0
        lines = [] if has_key else output.decode(errors="replace").strip().splitlines()
        said = lines[-1] if lines else "no output"
        raise SecretError(f"cannot make key and CSR: {said}")
    try:
        public_key = request_public_key(bodies[0])
    except ValueError as error:
        raise SecretError(f"cannot read the CSR just made: {error}") from None
    return Csr(PrivateKey(output[:at]), request.decode(), public_key)


def write_csr_request(settings: AuthoritySettings, request: str) -> bytes:
    """Return an IstioCertificateRequest; its metadata is a Struct of one string."""
    value = message((3, settings.signer))
    metadata = message((1, message((1, "CertSigner"), (2, value))))
    return message((1, request), (3, int(settings.ttl_seconds)), (4, metadata))


def read_chain(raw: bytes) -> list[str]:
    """Return the elements of an IstioCertificateResponse; WireError if it cannot be read."""
    return [
        text(raw, start, end)
        for number, wire_type, start, end in fields(raw)
        if number == 1 and wire_type == LENGTH
    ]


def take_issued(csr: Csr, chain: Sequence[str], *, now: float, has_valid: bool) -> Issued:
    """Return the certificate in a CA's answer.

    Args:
        csr: what was asked for.
        chain: the elements of the answer: leaf first, root last.
        now: Unix seconds.
        has_valid: whether there is a certificate that is still good.

    Raises:
        SecretError: the answer is worse than what is there, or than nothing.
    """
    if len(chain) < MIN_ELEMENTS:
        raise SecretError("invalid empty CertChain")
    leaf = _read_all(chain[:-1])
    if leaf.public_key != csr.public_key:
        raise SecretError(
            "the CA's first certificate is not for the key it was asked for: wrong key, or a chain "
            "that does not begin with the leaf"
        )
    if leaf.not_after <= now:
        raise SecretError(
            f"the CA issued a certificate that expired {now - leaf.not_after:.0f}s ago"
        )
    # Whose clock is wrong is not known: without another certificate this one is tried.
    if leaf.not_before > now and has_valid:
        ahead = leaf.not_before - now
        raise SecretError(f"the CA issued a certificate that is not valid for another {ahead:.0f}s")
    roots = chain[-1].encode()
    if not certificates(roots):
        raise SecretError("the last element of the CA's chain is no root certificate")
    return Issued(join_chain(chain), csr.key, roots, leaf)


def _read_all(elements: Sequence[str]) -> Certificate:
    """Return the leaf of a chain, all of which can be read: Envoy would refuse one that cannot."""
    pem = join_chain(elements)
    ders = certificates(pem)
    if len(ders) != pem.count(BEGIN) or not ders:
        raise SecretError("the CA's chain cannot be read: expected certificates in PEM")
    try:
        leaf, *_ = map(read_certificate, ders)
    except ValueError as error:
        raise SecretError(f"the CA's chain cannot be read: {error}") from None
    return leaf


def choose_root(settings: AuthoritySettings, is_file: IsFile) -> Root:
    """Return the file of roots that the CA's own certificate is checked against.

    Raises:
        SecretError: there is none; names rule and remedy.
    """
    root = _first_rule(settings, is_file)
    if not root.path or not is_file(root.path):
        where = root.path or "no file"
        raise SecretError(f"{where} ({root.rule}): expected the CA's root; {root.remedy}")
    return root


def _first_rule(settings: AuthoritySettings, is_file: IsFile) -> Root:
    if settings.root == places.SYSTEM:
        return places.system_root("CA_ROOT_CA=SYSTEM", is_file)
    if settings.root:
        return Root(settings.root, "CA_ROOT_CA", "correct CA_ROOT_CA or mount the file")
    rule = f"PILOT_CERT_PROVIDER={settings.root_provider}"
    if settings.root_provider == "custom":
        return Root(places.IMPLICIT_ROOT, rule, "mount the file or set CA_ROOT_CA")
    if settings.provisioned:
        path = f"{settings.provisioned}/{places.ROOT}"
        return Root(path, "PROV_CERT", "put the root there or set CA_ROOT_CA")
    if settings.root_provider == "none":
        return Root("", rule, "set CA_ROOT_CA")
    remedy = "mount the ConfigMap istio-ca-root-cert there or set CA_ROOT_CA"
    return Root(places.DEFAULT_ROOT, rule, remedy)


def wait_seconds(attempt: int, addresses: int, chance: float) -> float:
    """Return the wait after a failed attempt that is worth another.

    Args:
        attempt: counted from 1.
        addresses: how many there are: each is asked once before there is any wait.
        chance: in [0, 1).
    """
    rounds, place = divmod(attempt, addresses)
    if place:
        return 0.0
    doubled: float = FIRST_WAIT_SECONDS * 2 ** (rounds - 1)
    return doubled * (1 + WAIT_SPREAD * (2 * chance - 1))
