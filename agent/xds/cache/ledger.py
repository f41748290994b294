"""What Envoy has accepted of one stream's responses, as changes of what is kept.

Theory of operation. A response is staged when it is passed on and counts once Envoy answers its
nonce with an ACK; a NACK, an answer to a later one, or the end of the stream discards it. Of a type
two of whose responses wait with one nonce nothing more is kept: an answer does not say which it
means. In delta an accepted response
changes what is kept of its type. In SotW it replaces the type where Envoy wants all of it, and
changes it where Envoy names what it wants: then Envoy's next request also says what it wants no
longer. An Envoy that begins with nothing replaces the type by the first response that it accepts,
and not before: until then, what is kept is all there is.

Source: xds-identity-dns.md sections 2.11 and 10.4.
"""

from collections.abc import Iterator
from typing import NamedTuple

from agent.protobuf.wire import fields
from agent.xds.discovery import (
    REQUEST,
    Kind,
    Request,
    Response,
    Subscription,
    read_request,
    read_subscription,
)
from agent.xds.resources import ENVOY_PREFIX, LISTENER, SECRET, WORKLOAD
from agent.xds.snapshot import WILDCARD
from agent.xds.sync import take


class Stage(NamedTuple):
    """Put a response aside until it is accepted or discarded."""

    push: int
    kind: Kind
    type_url: str
    raw: bytes


class Accept(NamedTuple):
    """A staged response counts from now on."""

    push: int
    type_url: str
    replaces: bool  #: nothing else of its type is kept


class Discard(NamedTuple):
    """A staged response is of no use."""

    push: int


class Retain(NamedTuple):
    """Nothing of a type is kept but these."""

    type_url: str
    names: tuple[str, ...]


class Forget(NamedTuple):
    """These of a type are not kept any more."""

    type_url: str
    names: tuple[str, ...]


class Drop(NamedTuple):
    """Nothing is known of a type any more."""

    type_url: str


Change = Stage | Accept | Discard | Retain | Forget | Drop


def is_kept(kind: Kind, type_url: str) -> bool:
    """Return whether resources of a type may be kept: never a secret."""
    if type_url == WORKLOAD:
        return kind is Kind.DELTA  # a SotW response does not say by which name it was asked for
    return type_url.startswith(ENVOY_PREFIX) and type_url != SECRET


def has_configuration(kind: Kind, raw: bytes) -> bool:
    """Return whether a request shows an Envoy that has listeners, and so a configuration.

    Raises:
        WireError: it cannot be read.
    """
    request = read_request(kind, raw)
    return request.type_url == LISTENER and _has_some(kind, request, raw)


def _has_some(kind: Kind, request: Request, raw: bytes) -> bool:
    if kind is Kind.SOTW:
        return bool(request.version)
    versions = REQUEST[kind].initial_versions
    return any(number == versions for number, *_ in fields(raw))


class _Type:
    """What is known of one type on the stream."""

    __slots__ = ("is_followed", "is_new", "pending", "wanted", "wildcard")

    def __init__(self, *, is_new: bool, wildcard: bool) -> None:
        self.is_followed = True  #: an answer says which push it means
        self.is_new = is_new  #: Envoy has begun with nothing, and accepted nothing yet
        self.wildcard = wildcard
        self.pending: dict[str, int] = {}  #: nonce to push
        self.wanted: int | None = None  #: hash of the names, which may be many


class Ledger:
    """One stream, as far as it has been accepted."""

    def __init__(self, kind: Kind, numbers: Iterator[int]) -> None:
        """Begin a stream.

        Args:
            kind: SotW or delta.
            numbers: what responses are numbered by, across streams.
        """
        self._kind = kind
        self._numbers = numbers
        self._types: dict[str, _Type] = {}

    def responded(self, response: Response, raw: bytes) -> list[Change]:
        """Return how to stage a response that is passed on; nothing if it is not to be kept."""
        state = self._types.get(response.type_url)
        if state is None or not response.nonce or not state.is_followed:
            return []
        if response.nonce in state.pending:
            state.is_followed = False
            return _discarded(state)
        push = next(self._numbers)
        state.pending[response.nonce] = push
        return [Stage(push, self._kind, response.type_url, raw)]

    def requested(self, raw: bytes) -> list[Change]:
        """Return what follows from a request of Envoy's.

        Raises:
            WireError: it cannot be read.
        """
        request = read_request(self._kind, raw)
        if not is_kept(self._kind, request.type_url):
            return []
        state = self._types.get(request.type_url)
        if state is None:
            self._types[request.type_url] = self._begin(request, raw)
            return []
        changes = self._answered(state, request)
        if not (state.wildcard and self._kind is Kind.SOTW):
            changes += self._subscribed(state, request, read_subscription(self._kind, raw))
        return changes

    def closed(self) -> list[Change]:
        """Return what follows from the end of the stream: what is unanswered is not accepted."""
        changes = [each for state in self._types.values() for each in _discarded(state)]
        self._types.clear()
        return changes

    def _begin(self, request: Request, raw: bytes) -> _Type:
        is_new = not _has_some(self._kind, request, raw)
        if self._kind is Kind.DELTA:
            return _Type(is_new=is_new, wildcard=False)
        names = read_subscription(self._kind, raw).names
        return _Type(is_new=is_new, wildcard=not names or WILDCARD in names)

    def _answered(self, state: _Type, request: Request) -> list[Change]:
        if request.nonce not in state.pending:
            return []
        push, passed_over = take(state.pending, request.nonce)
        changes: list[Change] = [Discard(each) for each in passed_over]
        if request.error is not None:
            return [*changes, Discard(push)]
        replaces = state.is_new or (state.wildcard and self._kind is Kind.SOTW)
        state.is_new = False
        return [*changes, Accept(push, request.type_url, replaces)]

    def _subscribed(
        self, state: _Type, request: Request, subscription: Subscription
    ) -> list[Change]:
        if state.is_new:
            return []
        if self._kind is Kind.DELTA:
            gone = subscription.unsubscribe
            return [Forget(request.type_url, gone)] if gone else []
        wanted = hash(subscription.names)
        if wanted == state.wanted:
            return []
        state.wanted = None if state.pending else wanted  # what is under way was asked for before
        return [Retain(request.type_url, subscription.names)]


def _discarded(state: _Type) -> list[Change]:
    pending = list(state.pending.values())
    state.pending.clear()
    return [Discard(push) for push in pending]
