"""A set of resources, and one ADS stream of a control plane that serves it.

Theory of operation. A subscription remembers the version of each resource that its client was
sent. What is due is the difference between that and what the snapshot holds for it; the same
difference serves the first request, a change of names and a change of the snapshot, in SotW (send
the whole set when it differs) and in delta (send the difference). Types are answered in the order
of make before break. Clusters and endpoints that a new snapshot no longer has are kept until the
client has accepted everything else: listeners and routes that it still uses may name them.

Source: xds-identity-dns.md sections 2.11, 2.17 and 10.4.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from agent.xds.discovery import (
    Kind,
    Request,
    Resource,
    Subscription,
    read_request,
    read_subscription,
    write_response,
)
from agent.xds.resources import CLUSTER, ENDPOINT, PUSH_ORDER

WILDCARD: Final = "*"
BROKEN_LAST: Final = (CLUSTER, ENDPOINT)
#: In place of a version: the client was told that there is no such resource.
GONE: Final = ""

ByName = Mapping[str, Resource]


class Snapshot(NamedTuple):
    """Resources by type URL and name; `version` names the whole set."""

    version: str
    resources: Mapping[str, ByName]
    #: Whether a type that is not in it has no resources; else nothing is known, or said, of it.
    is_whole: bool = True


class Answer(NamedTuple):
    """What a client says of the last response of a type."""

    type_url: str
    error: str | None  #: of a NACK


def make_snapshot(version: str, resources: Iterable[Resource]) -> Snapshot:
    """Return a snapshot of resources."""
    by_type: dict[str, dict[str, Resource]] = {}
    for resource in resources:
        by_type.setdefault(resource.type_url, {})[resource.name] = resource
    return Snapshot(version, by_type)


def keeping_stale_clusters(old: Snapshot, new: Snapshot) -> Snapshot:
    """Return the new snapshot plus the clusters and endpoints that only the old one has."""
    kept = {
        type_url: {**old.resources.get(type_url, {}), **new.resources.get(type_url, {})}
        for type_url in BROKEN_LAST
    }
    return new._replace(resources={**new.resources, **kept})


class _State:
    """What one client wants of one type, and what it has."""

    __slots__ = ("accepted", "due", "names", "nonce", "sent", "wildcard")

    def __init__(self) -> None:
        self.wildcard = False
        self.names: set[str] = set()
        self.sent: dict[str, str] = {}  #: name to version
        self.nonce = ""
        self.accepted = False
        self.due = True  #: an answer is owed, even an empty one

    def wants(self, name: str) -> bool:
        return self.wildcard or name in self.names


class ServedStream:
    """The server's side of one stream."""

    def __init__(self, kind: Kind, snapshot: Snapshot | None) -> None:
        """Make a stream; without a snapshot nothing is answered until `replace`."""
        self._kind = kind
        self._shown = snapshot
        self._latest = snapshot
        self._states: dict[str, _State] = {}
        self._responses = 0

    def replace(self, snapshot: Snapshot) -> None:
        """Serve another snapshot from now on."""
        self._latest = snapshot
        self._shown = (
            snapshot if self._shown is None else keeping_stale_clusters(self._shown, snapshot)
        )

    def receive_request(self, raw: bytes) -> Answer | None:
        """Take a request; return what it says of the last response, if it answers that.

        Raises:
            WireError: the request cannot be read.
        """
        request = read_request(self._kind, raw)
        subscription = read_subscription(self._kind, raw)
        state = self._states.get(request.type_url)
        if state is None:
            state = self._states[request.type_url] = _State()
            _start(state, subscription)
            return None
        if self._kind is Kind.DELTA:
            _change(state, subscription)
            return _answer(state, request)
        if request.nonce and request.nonce != state.nonce:
            return None  # about a response that a later one has replaced
        _restate(state, subscription)
        return _answer(state, request)

    def next_response(self) -> bytes | None:
        """Return the next response that is due; none if the client has everything."""
        response = self._due()
        if response is None and self._shown is not self._latest and self._all_accepted():
            self._shown = self._latest
            response = self._due()
        return response

    def _all_accepted(self) -> bool:
        return all(state.accepted for state in self._states.values())

    def _due(self) -> bytes | None:
        if self._shown is None:
            return None
        others = (type_url for type_url in self._states if type_url not in PUSH_ORDER)
        for type_url in (*PUSH_ORDER, *others):
            state = self._states.get(type_url)
            if state is not None and (self._shown.is_whole or type_url in self._shown.resources):
                response = self._difference(type_url, state, self._shown)
                if response is not None:
                    return response
        return None

    def _difference(self, type_url: str, state: _State, snapshot: Snapshot) -> bytes | None:
        held = snapshot.resources.get(type_url, {})
        wanted = held if state.wildcard else _named(held, state.names)
        changed = [item for item in wanted.values() if state.sent.get(item.name) != item.version]
        removed = [
            name
            for name in sorted(state.sent.keys() | state.names)
            if name not in wanted and state.sent.get(name) != GONE
        ]
        if not (state.due or changed or removed):
            return None
        self._responses += 1
        state.nonce = str(self._responses)
        state.accepted = state.due = False
        state.sent = {item.name: item.version for item in wanted.values()}
        state.sent.update((name, GONE) for name in state.names if name not in wanted)
        return write_response(
            self._kind,
            type_url,
            version=snapshot.version,
            nonce=state.nonce,
            resources=wanted.values() if self._kind is Kind.SOTW else changed,
            removed=removed,
        )


def _named(held: ByName, names: Iterable[str]) -> ByName:
    return {name: held[name] for name in sorted(names) if name in held}


def _start(state: _State, subscription: Subscription) -> None:
    """Take the first request of a type: no names at all mean every resource."""
    state.names = set(subscription.names) - {WILDCARD}
    state.wildcard = not subscription.names or WILDCARD in subscription.names
    state.sent = dict(subscription.initial_versions)


def _restate(state: _State, subscription: Subscription) -> None:
    """Take a later SotW request, which repeats all that its client wants."""
    state.names = set(subscription.names) - {WILDCARD}
    state.wildcard = WILDCARD in subscription.names or (state.wildcard and not subscription.names)
    state.sent = {name: version for name, version in state.sent.items() if state.wants(name)}


def _change(state: _State, subscription: Subscription) -> None:
    """Take a later delta request, which says what its client wants more or no longer."""
    for name in subscription.names:
        state.sent.pop(name, None)  # whoever asks again has lost it
        if name == WILDCARD:
            state.wildcard = True
        else:
            state.names.add(name)
    for name in subscription.unsubscribe:
        state.names.discard(name)
        if name == WILDCARD:
            state.wildcard = False
    state.sent = {name: version for name, version in state.sent.items() if state.wants(name)}


def _answer(state: _State, request: Request) -> Answer | None:
    if not request.nonce or request.nonce != state.nonce:
        return None
    state.accepted = request.error is None
    return Answer(request.type_url, request.error)
