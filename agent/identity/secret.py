"""Secrets as values, and as the messages that carry them to Envoy.

Source: xds-identity-dns.md sections 4.4, 4.5 and 7.2.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from agent.identity.settings import KeyProvider
from agent.protobuf.wire import LENGTH, Value, fields, message, text

TYPES: Final = "type.googleapis.com/"
SECRET: Final = f"{TYPES}envoy.extensions.transport_sockets.tls.v3.Secret"
HEALTH: Final = f"{TYPES}istio.v1.HealthInformation"
#: Provider name -> type of its configuration.
PROVIDER_TYPES: Final = {
    name: f"{TYPES}envoy.extensions.private_key_providers.{name}.v3alpha.{type_name}"
    for name, type_name in (
        ("cryptomb", "CryptoMbPrivateKeyMethodConfig"),
        ("qat", "QatPrivateKeyMethodConfig"),
    )
}


class PrivateKey(bytes):
    """A private key, PEM; printing it, or a value that holds it, shows nothing of it (R-29)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<private key>"

    __str__ = __repr__


class KeyPair(NamedTuple):
    """A certificate chain and its key."""

    chain: bytes
    key: PrivateKey


class Roots(NamedTuple):
    """Whom to trust."""

    pem: bytes
    crl: bytes = b""


Secret = KeyPair | Roots


class SecretRequest(NamedTuple):
    """A DiscoveryRequest of an SDS stream."""

    type_url: str = ""
    nonce: str = ""
    names: tuple[str, ...] = ()
    error: str | None = None  #: message of error_detail: the request is a NACK
    node_id: str = ""


def read_request(raw: bytes) -> SecretRequest:
    """Return a request; WireError if it cannot be read."""
    found: dict[int, bytes] = {}
    names = []
    for number, wire_type, start, end in fields(raw):
        if wire_type != LENGTH:
            continue
        if number == 3:  # noqa: PLR2004 - resource_names, section 2.17
            names.append(text(raw, start, end))
        else:  # the last occurrence of a string wins, those of a message are joined
            joined = found.get(number, b"") if number in (2, 6) else b""
            found[number] = joined + raw[start:end]
    error = None if 6 not in found else _text_field(found[6], 2)  # noqa: PLR2004 - error_detail
    return SecretRequest(
        type_url=_text(found.get(4, b"")),
        nonce=_text(found.get(5, b"")),
        names=tuple(names),
        error=error,
        node_id=_text_field(found.get(2, b""), 1),
    )


def write_response(resources: Iterable[bytes], *, version: str, nonce: str) -> bytes:
    """Return a DiscoveryResponse with serialised secrets."""
    packed = ((2, message((1, SECRET), (2, resource))) for resource in resources)
    return message((1, version), *packed, (4, SECRET), (5, nonce))


def write_secret(name: str, secret: Secret, provider: KeyProvider | None = None) -> bytes:
    """Return a serialised Secret.

    Args:
        name: the resource name that was asked for.
        secret: what it is.
        provider: what does the operations of its private key, if not Envoy itself.
    """
    if isinstance(secret, Roots):
        roots: list[tuple[int, Value]] = [(1, _inline(secret.pem))]
        if secret.crl:
            roots.append((7, _inline(secret.crl)))
        return message((1, name), (4, message(*roots)))
    key = (6, _provider(provider, secret.key)) if provider else (2, _inline(secret.key))
    return message((1, name), (2, message((1, _inline(secret.chain)), key)))


def _provider(provider: KeyProvider, key: bytes) -> bytes:
    delay = message((1, provider.poll_seconds), (2, provider.poll_nanos))
    config = message(
        (1, PROVIDER_TYPES[provider.name]), (2, message((1, _inline(key)), (2, delay)))
    )
    return message((1, provider.name), (3, config), (4, provider.fallback))


def _inline(content: bytes) -> bytes:
    """Return a DataSource that holds its content."""
    return message((2, content))


def _text(content: bytes) -> str:
    return text(content, 0, len(content))


def _text_field(data: bytes, wanted: int) -> str:
    content = b""
    for number, wire_type, start, end in fields(data):
        if number == wanted and wire_type == LENGTH:
            content = data[start:end]
    return _text(content)
