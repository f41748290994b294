"""Which resources a client was sent, and what a push changes: worked out only for watchers.

A name that was not seen before is new only where everything that the client has is known: since the
beginning, by what it said of itself when its stream began, or by a push of the whole set.

Source: xds-identity-dns.md sections 2.11 and 2.17.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from agent.protobuf.response import read_removed
from agent.xds.discovery import Kind, read_named
from agent.xds.resources import CLUSTER, LISTENER

#: Of these, a SotW push is the whole set; of others it may be a part.
WHOLE_SETS: Final = (CLUSTER, LISTENER)


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
        sent = {
            # Its content stands for a version that is not said.
            packed.name: packed.version or hash(packed.content)
            for packed in read_named(self._kind, raw)
        }
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
        return read_removed(raw)
