"""Which resources a client was sent, and what a push changes: worked out only for watchers.

A name that was not seen before is new only where everything that the client has is known: since the
beginning, by what it said of itself when its stream began, or by a push of the whole set.

Source: xds-identity-dns.md sections 2.11 and 2.17.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from agent.wire import LENGTH, WireError, fields, text
from agent.xds.discovery import REMOVED, RESOURCES, Kind
from agent.xds.resources import CLUSTER, ENVOY_PREFIX, LISTENER, PREFIX

#: Of these, a SotW push is the whole set; of others it may be a part.
WHOLE_SETS: Final = (CLUSTER, LISTENER)
#: In SotW it may stand around a resource, which then has a time to live.
WRAPPER: Final = f"{PREFIX}envoy.service.discovery.v3.Resource"
#: Field numbers of a Resource, and of an Any.
VERSION, BODY, NAME = 1, 2, 3
TYPE_URL, VALUE = 1, 2


class Change(NamedTuple):
    """What a push does to the set of resources; names, in the order of the push."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    #: Added or changed: what the client had before is not known.
    unknown: tuple[str, ...] = ()


class Inventory:
    """The resources of one type: name to version, or to what stands for it."""

    def __init__(self, kind: Kind, type_url: str) -> None:
        self._kind = kind
        self._type_url = type_url
        self._held: dict[str, object] = {}
        self._is_complete = False

    def begin(self, versions: Mapping[str, str]) -> None:
        """Take what a client says that it has, with the first request of a stream."""
        self._held = dict(versions)
        self._is_complete = True

    def apply(self, raw: bytes) -> Change:
        """Take a push; return what it changes.

        Raises:
            WireError: it cannot be read.
        """
        sent = dict(_resources(self._kind, raw))
        new = [name for name in sent if name not in self._held]
        changed = [
            name for name, version in sent.items() if self._held.get(name, version) != version
        ]
        removed = self._removed(raw, sent)
        was_complete = self._is_complete
        for name in removed:
            self._held.pop(name, None)
        self._held.update(sent)
        if self._is_whole():
            self._is_complete = True
        added, unknown = (new, []) if was_complete else ([], new)
        return Change(tuple(added), tuple(changed), tuple(removed), tuple(unknown))

    def _is_whole(self) -> bool:
        return self._kind is Kind.SOTW and self._type_url in WHOLE_SETS

    def _removed(self, raw: bytes, sent: Mapping[str, object]) -> list[str]:
        if self._kind is Kind.SOTW:
            return [name for name in self._held if name not in sent] if self._is_whole() else []
        return [
            text(raw, start, end)
            for field, wire_type, start, end in fields(raw)
            if field == REMOVED and wire_type == LENGTH
        ]


def _resources(kind: Kind, raw: bytes) -> Iterator[tuple[str, object]]:
    for field, wire_type, start, end in fields(raw):
        if field == RESOURCES and wire_type == LENGTH:
            entry = raw[start:end]
            yield _delta_resource(entry) if kind is Kind.DELTA else _packed_resource(entry)


def _delta_resource(entry: bytes) -> tuple[str, object]:
    """Return name and version of a Resource; its content stands for a version that is not said."""
    name = version = ""
    content = 0
    for field, wire_type, start, end in fields(entry):
        if wire_type != LENGTH:
            continue
        if field == VERSION:
            version = text(entry, start, end)
        elif field == BODY:
            content = hash(entry[start:end])
        elif field == NAME:
            name = text(entry, start, end)
    return name, version or content


def _packed_resource(entry: bytes) -> tuple[str, object]:
    """Return name and content of an Any, the latter as a hash."""
    type_url, body = "", b""
    for field, wire_type, start, end in fields(entry):
        if wire_type != LENGTH:
            continue
        if field == TYPE_URL:
            type_url = text(entry, start, end)
        elif field == VALUE:
            body = entry[start:end]
    if type_url == WRAPPER:
        return _delta_resource(body)
    return _name(type_url, body), hash(body)


def _name(type_url: str, body: bytes) -> str:
    """Return what stands in the first field, in which all of Envoy's types have their names."""
    if not type_url.startswith(ENVOY_PREFIX):
        return ""
    try:
        for field, wire_type, start, end in fields(body):
            if field == 1 and wire_type == LENGTH:
                return text(body, start, end)
    except WireError:
        pass  # it is for Envoy to refuse
    return ""
