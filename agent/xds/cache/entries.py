"""The resources in a response, one by one, as they are kept.

Source: xds-identity-dns.md sections 2.17 and 3.2, requirement R-3.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from agent.wire import LENGTH, fields, joined, last, last_text, text
from agent.xds.discovery import REMOVED, RESOURCES, Kind
from agent.xds.inventory import WRAPPER
from agent.xds.resources import EXTENSION

#: What a Wasm module may be fetched with stands in its configuration until it was converted.
PULL_SECRET: Final = b"ISTIO_META_WASM_IMAGE_PULL_SECRET"
#: Field numbers of a Resource, and of an Any.
VERSION, PACKED, NAME = 1, 2, 3
TYPE_URL, VALUE = 1, 2
#: Of every resource that Envoy asks for in SotW: `name`, or `cluster_name`.
OWN_NAME: Final = 1


class Entry(NamedTuple):
    """One resource of a response."""

    name: str
    version: str
    body: bytes | None  #: the serialised message; none if there is no such resource any more


def entries(kind: Kind, type_url: str, raw: bytes) -> Iterator[Entry]:
    """Yield what a response says of each resource of its type.

    Raises:
        WireError: it cannot be read.
    """
    for number, wire_type, start, end in fields(raw):
        if wire_type != LENGTH:
            continue
        if number == RESOURCES:
            packed = raw[start:end]
            entry = _resource(packed) if kind is Kind.DELTA else _any(type_url, packed)
            if entry is not None:
                yield _without_secret(type_url, entry)
        elif number == REMOVED and kind is Kind.DELTA:
            yield Entry(text(raw, start, end), "", None)


def _resource(packed: bytes) -> Entry | None:
    """Return a resource of a delta response; none if it only says that nothing has changed."""
    inner = joined(packed, PACKED)
    if not inner:
        return None
    return Entry(last_text(packed, NAME), last_text(packed, VERSION), last(inner, VALUE))


def _any(type_url: str, packed: bytes) -> Entry | None:
    """Return a resource of a SotW response; none of another type."""
    inner_type, body = last_text(packed, TYPE_URL), last(packed, VALUE)
    if inner_type == WRAPPER:
        return _resource(body)
    return Entry(last_text(body, OWN_NAME), "", body) if inner_type == type_url else None


def _without_secret(type_url: str, entry: Entry) -> Entry:
    if type_url == EXTENSION and entry.body and PULL_SECRET in entry.body:
        return entry._replace(body=None)
    return entry
