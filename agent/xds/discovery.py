"""The four discovery messages: what the relay reads of them, and how it writes its own.

Last occurrence of a scalar wins and an embedded message is the merge of its occurrences, as
protobuf has it.

Source: xds-identity-dns.md sections 2.8 and 2.17.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from agent.protobuf.response import REMOVED, RESOURCES, WRAPPER, Packed, read_packed, read_resource
from agent.protobuf.wire import LENGTH, Value, WireError, embedded, fields, last_text, message, text
from agent.xds.resources import ENVOY_PREFIX

#: google.rpc.Code INTERNAL, what the agent's own NACKs carry. Section 2.8.
INTERNAL: Final = 13


class Kind(enum.Enum):
    """The two variants of ADS."""

    SOTW = "StreamAggregatedResources"
    DELTA = "DeltaAggregatedResources"


class RequestFields(NamedTuple):
    """Field numbers of a request; zero where the kind has no such field."""

    type_url: int
    version: int
    nonce: int
    error: int
    names: int  #: resource_names, or resource_names_subscribe
    unsubscribe: int
    initial_versions: int
    node: int


REQUEST: Final = {
    Kind.SOTW: RequestFields(4, 1, 5, 6, 3, 0, 0, 2),
    Kind.DELTA: RequestFields(2, 0, 6, 7, 3, 4, 5, 1),
}
# Of a response, both kinds number alike; for its resources see response.py.
VERSION: Final = 1
TYPE_URL: Final = 4
NONCE: Final = 5
#: Of every resource that Envoy asks for: `name`, or `cluster_name`.
OWN_NAME: Final = 1


class Request(NamedTuple):
    """The head of a DiscoveryRequest or a DeltaDiscoveryRequest."""

    type_url: str
    version: str
    nonce: str
    error: str | None  #: message of error_detail: the request is a NACK


class Subscription(NamedTuple):
    """What a request asks for; a SotW request names all it wants, a delta one the change."""

    names: tuple[str, ...]
    unsubscribe: tuple[str, ...]
    initial_versions: Mapping[str, str]


class Response(NamedTuple):
    """The head of a DiscoveryResponse or a DeltaDiscoveryResponse."""

    type_url: str
    version: str
    nonce: str
    resource_count: int


class Resource(NamedTuple):
    """One resource as a control plane serves it; `body` is the serialised message."""

    type_url: str
    name: str
    version: str
    body: bytes


def read_request(kind: Kind, raw: bytes) -> Request:
    """Return the head of a request; WireError if it cannot be read."""
    number = REQUEST[kind]
    type_url = version = nonce = ""
    error: bytes | None = None
    for field, wire_type, start, end in fields(raw):
        if wire_type != LENGTH:
            continue
        if field == number.type_url:
            type_url = text(raw, start, end)
        elif field == number.version:
            version = text(raw, start, end)
        elif field == number.nonce:
            nonce = text(raw, start, end)
        elif field == number.error:
            error = (error or b"") + raw[start:end]
    detail = None if error is None else last_text(error, 2)
    return Request(type_url, version, nonce, detail)


def read_node_id(kind: Kind, raw: bytes) -> str:
    """Return the id of a request's node, empty if it has none; WireError if it cannot be read."""
    return last_text(embedded(raw, REQUEST[kind].node) or b"", 1)


def read_subscription(kind: Kind, raw: bytes) -> Subscription:
    """Return the names of a request; WireError if it cannot be read."""
    number = REQUEST[kind]
    names: list[str] = []
    unsubscribe: list[str] = []
    versions: dict[str, str] = {}
    for field, wire_type, start, end in fields(raw):
        if wire_type != LENGTH:
            continue
        if field == number.names:
            names.append(text(raw, start, end))
        elif field == number.unsubscribe:
            unsubscribe.append(text(raw, start, end))
        elif field == number.initial_versions:
            entry = raw[start:end]
            versions[last_text(entry, 1)] = last_text(entry, 2)
    return Subscription(tuple(names), tuple(unsubscribe), versions)


def read_response(raw: bytes) -> Response:
    """Return the head of a response of either kind; WireError if it cannot be read."""
    type_url = version = nonce = ""
    count = 0
    for field, wire_type, start, end in fields(raw):
        if wire_type != LENGTH:
            continue
        if field == RESOURCES:
            count += 1
        elif field == TYPE_URL:
            type_url = text(raw, start, end)
        elif field == VERSION:
            version = text(raw, start, end)
        elif field == NONCE:
            nonce = text(raw, start, end)
    return Response(type_url, version, nonce, count)


def first_resource(kind: Kind, raw: bytes) -> tuple[str, bytes] | None:
    """Return type URL and content of a response's first resource; none if it has no resource."""
    first = next(read_packed(raw, delta=kind is Kind.DELTA), None)
    return first.unpacked() if first else None


def read_resources(raw: bytes, kind: Kind = Kind.DELTA) -> tuple[str, tuple[Resource, ...]]:
    """Return version and resources of a response; in SotW they have neither name nor version."""
    resources: list[Resource] = []
    for packed in read_packed(raw, delta=kind is Kind.DELTA):
        type_url, body = packed.unpacked()
        resources.append(Resource(type_url, packed.name, packed.version, body))
    return last_text(raw, VERSION), tuple(resources)


def read_named(kind: Kind, raw: bytes) -> Iterator[Packed]:
    """Yield the resources of a response: in SotW by the names that stand in them, if they do.

    Raises:
        WireError: it cannot be read.
    """
    is_delta = kind is Kind.DELTA
    for packed in read_packed(raw, delta=is_delta):
        yield packed if is_delta else _named(packed)


def _named(packed: Packed) -> Packed:
    type_url, body = packed.unpacked()
    if type_url == WRAPPER:
        return read_resource(body)
    name = _own_name(body) if type_url.startswith(ENVOY_PREFIX) else ""
    return Packed(name, "", packed.content, packed.raw)


def _own_name(body: bytes) -> str:
    """Return the first field, which in all of Envoy's types is the name, and is written first."""
    try:
        for number, wire_type, start, end in fields(body):
            if number == OWN_NAME and wire_type == LENGTH:
                return text(body, start, end)
    except WireError:
        pass  # it is for Envoy to refuse
    return ""


def write_request(
    kind: Kind, type_url: str, *, version: str = "", nonce: str = "", error: str | None = None
) -> bytes:
    """Return a request of the agent's own: a subscription, an ACK or, with an error, a NACK."""
    number = REQUEST[kind]
    content: list[tuple[int, Value]] = [(number.type_url, type_url)]
    if version and number.version:
        content.append((number.version, version))
    if nonce:
        content.append((number.nonce, nonce))
    if error is not None:
        content.append((number.error, message((1, INTERNAL), (2, error))))
    return message(*content)


def write_response(
    kind: Kind,
    type_url: str,
    *,
    version: str,
    nonce: str,
    resources: Iterable[Resource],
    removed: Iterable[str] = (),
) -> bytes:
    """Return a response; `removed` has a meaning in delta only."""
    packed = [(RESOURCES, _packed(kind, resource)) for resource in resources]
    gone = [(REMOVED, name) for name in removed] if kind is Kind.DELTA else []
    return message((VERSION, version), *packed, (TYPE_URL, type_url), (NONCE, nonce), *gone)


def _packed(kind: Kind, resource: Resource) -> bytes:
    packed = message((1, resource.type_url), (2, resource.body))
    if kind is Kind.SOTW:
        return packed
    return message((1, resource.version), (2, packed), (3, resource.name))
