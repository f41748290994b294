"""Whatever the bytes, the reader agrees with protobuf or raises its own error."""

from collections.abc import Callable
from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError, Message
from hypothesis import example, given
from hypothesis import strategies as st

from agent.protobuf.response import read_removed
from agent.protobuf.wire import WireError, fields, message
from agent.xds.discovery import (
    Kind,
    Request,
    Resource,
    Response,
    Subscription,
    first_resource,
    read_request,
    read_resources,
    read_response,
    read_subscription,
    write_response,
)

TEXT = st.text(max_size=8)
#: Fragments that look like messages, so that arbitrary bytes get past the first field.
PIECES = st.one_of(
    st.binary(max_size=6),
    st.tuples(st.integers(0, 9), st.one_of(TEXT, st.binary(max_size=9), st.integers(0, 2**64 - 1)))
    .map(message),
)  # fmt: skip
HOSTILE = st.lists(PIECES, max_size=8).map(b"".join)


@st.composite
def sotw_requests(draw: st.DrawFn) -> discovery_pb2.DiscoveryRequest:
    request = discovery_pb2.DiscoveryRequest(
        type_url=draw(TEXT),
        version_info=draw(TEXT),
        response_nonce=draw(TEXT),
        resource_names=draw(st.lists(TEXT, max_size=3)),
    )
    request.node.id = draw(TEXT)
    if draw(st.booleans()):
        request.error_detail.message = draw(TEXT)
    return request


@st.composite
def delta_requests(draw: st.DrawFn) -> discovery_pb2.DeltaDiscoveryRequest:
    request = discovery_pb2.DeltaDiscoveryRequest(
        type_url=draw(TEXT),
        response_nonce=draw(TEXT),
        resource_names_subscribe=draw(st.lists(TEXT, max_size=3)),
        resource_names_unsubscribe=draw(st.lists(TEXT, max_size=3)),
        initial_resource_versions=draw(st.dictionaries(TEXT, TEXT, max_size=3)),
    )
    if draw(st.booleans()):
        request.error_detail.message = draw(TEXT)
    return request


def expected_sotw(request: discovery_pb2.DiscoveryRequest) -> tuple[Request, Subscription]:
    error = request.error_detail.message if request.HasField("error_detail") else None
    head = Request(request.type_url, request.version_info, request.response_nonce, error)
    return head, Subscription(tuple(request.resource_names), (), {})


def expected_delta(request: discovery_pb2.DeltaDiscoveryRequest) -> tuple[Request, Subscription]:
    error = request.error_detail.message if request.HasField("error_detail") else None
    head = Request(request.type_url, "", request.response_nonce, error)
    return head, Subscription(
        tuple(request.resource_names_subscribe),
        tuple(request.resource_names_unsubscribe),
        dict(request.initial_resource_versions),
    )


@given(sotw_requests())
def test_a_sotw_request_is_read_as_protobuf_reads_it(
    request: discovery_pb2.DiscoveryRequest,
) -> None:
    raw = request.SerializeToString()

    read = read_request(Kind.SOTW, raw), read_subscription(Kind.SOTW, raw)

    assert read == expected_sotw(request)


@given(delta_requests())
def test_a_delta_request_is_read_as_protobuf_reads_it(
    request: discovery_pb2.DeltaDiscoveryRequest,
) -> None:
    raw = request.SerializeToString()

    read = read_request(Kind.DELTA, raw), read_subscription(Kind.DELTA, raw)

    assert read == expected_delta(request)


def has_group(raw: bytes) -> bool:
    try:
        list(fields(raw))
    except WireError as error:
        return "wire type 3" in str(error)
    return False


Found = tuple[object, ...]


def read_of_response(kind: Kind, raw: bytes) -> Found:
    """Return head, content of the first resource, and names of what was removed."""
    removed = read_removed(raw) if kind is Kind.DELTA else []
    return read_response(raw), first_resource(kind, raw), removed


def expected_sotw_response(response: discovery_pb2.DiscoveryResponse) -> Found:
    resources = response.resources
    first = (resources[0].type_url, resources[0].value) if resources else None
    head = Response(response.type_url, response.version_info, response.nonce, len(resources))
    return head, first, []


def expected_delta_response(response: discovery_pb2.DeltaDiscoveryResponse) -> Found:
    resources = response.resources
    first = (resources[0].resource.type_url, resources[0].resource.value) if resources else None
    version = response.system_version_info
    head = Response(response.type_url, version, response.nonce, len(resources))
    return head, first, list(response.removed_resources)


def without_versions(head: Request, subscription: Subscription) -> Found:
    return head, subscription._replace(initial_versions={})


#: A message of protobuf's, how it is read here, and what must be found.
ALIKE: dict[type[Message], tuple[Callable[[bytes], Found], Callable[[Any], Found]]] = {
    discovery_pb2.DiscoveryRequest: (
        lambda raw: (read_request(Kind.SOTW, raw), read_subscription(Kind.SOTW, raw)),
        expected_sotw,
    ),
    discovery_pb2.DeltaDiscoveryRequest: (
        # Protobuf drops an entry of a map that has an unknown field; Envoy sends none.
        lambda raw: without_versions(
            read_request(Kind.DELTA, raw), read_subscription(Kind.DELTA, raw)
        ),
        lambda parsed: without_versions(*expected_delta(parsed)),
    ),
    discovery_pb2.DiscoveryResponse: (
        lambda raw: read_of_response(Kind.SOTW, raw),
        expected_sotw_response,
    ),
    discovery_pb2.DeltaDiscoveryResponse: (
        lambda raw: read_of_response(Kind.DELTA, raw),
        expected_delta_response,
    ),
}


@pytest.mark.parametrize("made", ALIKE)
@given(raw=HOSTILE)
@example(raw=b"\x1b\x1c")
@example(
    raw=message((2, message((3, "a"), (2, message((1, "t"))), (2, message((2, b"v"))))), (5, "n"))
)
def test_what_protobuf_accepts_is_read_alike(made: type[Message], raw: bytes) -> None:
    """But for groups, which no xDS message has; and not within fields that nobody reads."""
    try:
        parsed = made.FromString(raw)
    except DecodeError:
        return
    if has_group(raw):
        return
    read, expect = ALIKE[made]

    try:
        found = read(raw)
    except WireError as error:
        assert "wire type 3" in str(error)  # noqa: PT017 - a group in the status
    else:
        assert found == expect(parsed)


READERS: list[Callable[[bytes], object]] = [
    lambda raw: read_request(Kind.SOTW, raw),
    lambda raw: read_request(Kind.DELTA, raw),
    lambda raw: read_subscription(Kind.SOTW, raw),
    lambda raw: read_subscription(Kind.DELTA, raw),
    lambda raw: first_resource(Kind.SOTW, raw),
    lambda raw: first_resource(Kind.DELTA, raw),
    read_response,
    read_resources,
]


@given(HOSTILE)
def test_hostile_bytes_raise_nothing_but_wire_errors(raw: bytes) -> None:
    for read in READERS:
        try:
            read(raw)
        except WireError:
            continue


RESOURCES = st.lists(
    st.builds(Resource, type_url=TEXT, name=TEXT, version=TEXT, body=st.binary(max_size=9)),
    max_size=4,
)


@given(st.sampled_from(Kind), TEXT, TEXT, TEXT, RESOURCES)
def test_a_written_response_is_read_back(
    kind: Kind, type_url: str, version: str, nonce: str, resources: list[Resource]
) -> None:
    raw = write_response(kind, type_url, version=version, nonce=nonce, resources=resources)

    assert read_response(raw) == Response(type_url, version, nonce, len(resources))
    first = (resources[0].type_url, resources[0].body) if resources else None
    assert first_resource(kind, raw) == first
    if kind is Kind.DELTA:
        assert read_resources(raw) == (version, tuple(resources))
