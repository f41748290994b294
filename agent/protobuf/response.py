"""The resources of a discovery response, as they stand in it.

Whoever keeps, compares, converts or shows resources begins here, and then reads of each no more
than it needs. Both kinds of response number alike.

Source: xds-identity-dns.md section 2.17.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from agent.protobuf.wire import LENGTH, fields, text

#: Field numbers of a response.
RESOURCES, REMOVED = 2, 6
#: Of a Resource.
VERSION, PACKED, NAME = 1, 2, 3
#: Of an Any.
TYPE_URL, VALUE = 1, 2
#: In SotW it may stand in an Any around a resource, which then has a time to live.
WRAPPER: Final = "type.googleapis.com/envoy.service.discovery.v3.Resource"


class Packed(NamedTuple):
    """One resource."""

    name: str  #: empty in SotW, which names none
    version: str  #: as the name
    content: bytes  #: the Any
    raw: bytes  #: all of it, as it stands in the response

    def __repr__(self) -> str:
        return f"<resource {self.name!r}>"  # there may be a secret in it

    def is_unchanged(self) -> bool:
        """Return whether a delta response only says that the resource is still there, as it was."""
        return not self.content and bool(self.raw)

    def unpacked(self) -> tuple[str, bytes]:
        """Return type URL and message; WireError if they cannot be read."""
        type_url, body = "", b""
        for number, wire_type, start, end in fields(self.content):
            if wire_type != LENGTH:
                continue
            if number == TYPE_URL:
                type_url = text(self.content, start, end)
            elif number == VALUE:
                body = self.content[start:end]
        return type_url, body


def read_packed(raw: bytes, *, delta: bool) -> Iterator[Packed]:
    """Yield the resources of a response; WireError where it cannot be read."""
    for number, wire_type, start, end in fields(raw):
        if number == RESOURCES and wire_type == LENGTH:
            entry = raw[start:end]
            yield read_resource(entry) if delta else Packed("", "", entry, entry)


def read_resource(raw: bytes) -> Packed:
    """Return what a Resource holds; WireError if it cannot be read."""
    name = version = ""
    content = b""
    for number, wire_type, start, end in fields(raw):
        if wire_type != LENGTH:
            continue
        if number == VERSION:
            version = text(raw, start, end)
        elif number == PACKED:
            content += raw[start:end]
        elif number == NAME:
            name = text(raw, start, end)
    return Packed(name, version, content, raw)


def read_removed(raw: bytes) -> list[str]:
    """Return the names of what a delta response says is gone; WireError if it cannot be read."""
    return [
        text(raw, start, end)
        for number, wire_type, start, end in fields(raw)
        if number == REMOVED and wire_type == LENGTH
    ]
