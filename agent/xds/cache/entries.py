"""The resources in a response, one by one, as they are kept.

Source: xds-identity-dns.md sections 2.17 and 3.2, requirement R-3.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from agent.protobuf.response import Packed, read_removed
from agent.protobuf.wire import WireError
from agent.xds.discovery import Kind, read_named
from agent.xds.resources import EXTENSION

#: What a Wasm module may be fetched with stands in its configuration until it was converted.
PULL_SECRET: Final = b"ISTIO_META_WASM_IMAGE_PULL_SECRET"


class Entry(NamedTuple):
    """One resource of a response."""

    name: str
    version: str
    body: bytes | None  #: the serialised message; none if there is no such resource any more


def entries(kind: Kind, type_url: str, raw: bytes) -> Iterator[Entry]:
    """Yield what a response says of each resource of its type.

    Raises:
        WireError: it cannot be read, or one of them has no name.
    """
    for packed in read_named(kind, raw):
        if not packed.is_unchanged() and (entry := _entry(type_url, packed)):
            yield entry
    if kind is Kind.DELTA:
        yield from (Entry(name, "", None) for name in read_removed(raw))


def _entry(type_url: str, packed: Packed) -> Entry | None:
    """Return what is to be kept of a resource; none of another type."""
    found, body = packed.unpacked()
    if found != type_url:
        return None
    if not packed.name:
        raise WireError("a resource has no name")
    has_secret = type_url == EXTENSION and PULL_SECRET in body
    return Entry(packed.name, packed.version, None if has_secret else body)
