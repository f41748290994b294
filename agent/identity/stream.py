"""One SDS stream: which secrets a request, or a change, has us send.

A request is an ACK, a NACK, or a change of what is subscribed to; which one, its nonce and names
tell. A nonce is that of the last response, or else the request was written before it arrived and
another will follow. Without a nonce, or after everything was unsubscribed, it begins anew.

Source: xds-identity-dns.md section 4.3, deviation D-19.
"""

from collections.abc import Collection
from enum import Enum, auto
from typing import NamedTuple

from agent.identity.secret import HEALTH, SECRET, SecretRequest


class Meaning(Enum):
    """What a request is."""

    SUBSCRIBE = auto()
    UNSUBSCRIBE = auto()
    ACK = auto()
    NACK = auto()
    STALE = auto()  #: its nonce is not that of the last response
    FOREIGN = auto()  #: not about secrets
    ANONYMOUS = auto()  #: the first one, without a node: the stream must end


class Reaction(NamedTuple):
    """What a request is, and the names to be sent for it."""

    meaning: Meaning
    names: tuple[str, ...] = ()


class SdsStream:
    """What one stream is subscribed to, and what it has."""

    __slots__ = ("_has_node", "_nonce", "_subscribed")

    def __init__(self) -> None:
        self._has_node = False
        self._nonce = ""
        #: Name -> digest of the secret sent last, none before the first.
        self._subscribed: dict[str, int | None] = {}

    def receive(self, request: SecretRequest) -> Reaction:
        """Return what a request calls for."""
        if request.type_url == HEALTH:
            return Reaction(Meaning.FOREIGN)
        if not self._has_node and not request.node_id:
            return Reaction(Meaning.ANONYMOUS)
        self._has_node = True
        if request.error is not None:
            return Reaction(Meaning.NACK)
        if request.type_url not in ("", SECRET):
            return Reaction(Meaning.FOREIGN)
        return self._subscribe(request)

    def _subscribe(self, request: SecretRequest) -> Reaction:
        if not request.names:
            self._subscribed.clear()
            return Reaction(Meaning.UNSUBSCRIBE)
        if request.nonce and self._subscribed and request.nonce != self._nonce:
            return Reaction(Meaning.STALE)
        if not request.nonce:
            self._subscribed.clear()
        wanted = dict.fromkeys(request.names)
        for name in [name for name in self._subscribed if name not in wanted]:
            del self._subscribed[name]
        # The names that are there stay the same objects: others hold them, too.
        added = tuple(name for name in wanted if name not in self._subscribed)
        self._subscribed |= dict.fromkeys(added)
        return Reaction(Meaning.SUBSCRIBE if added else Meaning.ACK, added)

    def names(self) -> Collection[str]:
        """Return what is subscribed to."""
        return self._subscribed.keys()

    def is_subscribed(self, name: str) -> bool:
        """Return whether a change of this secret concerns the stream."""
        return name in self._subscribed

    def is_new(self, name: str, digest: int) -> bool:
        """Return whether a subscribed secret is another one than was sent last."""
        return self._subscribed.get(name) != digest

    def sent(self, nonce: str, digests: dict[str, int]) -> None:
        """Note a response: its nonce, and the digest of each secret in it."""
        self._nonce = nonce
        for name, digest in digests.items():
            if name in self._subscribed:
                self._subscribed[name] = digest
