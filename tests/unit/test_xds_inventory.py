"""What a push changes. Source: xds-identity-dns.md sections 2.11, 2.17."""

import pytest
from envoy.service.discovery.v3 import discovery_pb2

from agent.protobuf.response import WRAPPER
from agent.protobuf.wire import WireError, message
from agent.xds.discovery import Kind, Resource, write_response
from agent.xds.inventory import Change, Inventory
from agent.xds.resources import CLUSTER, ENDPOINT, LISTENER, NAME_TABLE


def push(
    kind: Kind,
    *content: tuple[str, str],
    removed: tuple[str, ...] = (),
    type_url: str = CLUSTER,
    version: str = "",
) -> bytes:
    resources = [
        Resource(type_url, name, version, message((1, name), (2, body))) for name, body in content
    ]
    return write_response(
        kind, type_url, version="1", nonce="1", resources=resources, removed=removed
    )


@pytest.mark.parametrize("type_url", [CLUSTER, LISTENER])
def test_a_sotw_push_is_the_whole_set_of_some_types(type_url: str) -> None:
    inventory = Inventory(Kind.SOTW, type_url)
    sets = [(("a", "1"), ("b", "1")), (("a", "1"), ("b", "2"), ("c", "1")), (("c", "1"),)]

    changes = [inventory.apply(push(Kind.SOTW, *each, type_url=type_url)) for each in sets]

    assert changes == [
        Change((), (), (), unknown=("a", "b")),
        Change(("c",), ("b",), ()),
        Change((), (), ("a", "b")),
    ]


def test_a_sotw_push_may_be_a_part_of_others() -> None:
    inventory = Inventory(Kind.SOTW, ENDPOINT)
    inventory.apply(push(Kind.SOTW, ("a", "1"), type_url=ENDPOINT))

    change = inventory.apply(push(Kind.SOTW, ("b", "1"), type_url=ENDPOINT))

    assert change == Change((), (), (), unknown=("b",))


def test_a_delta_push_names_what_goes_and_is_told_apart_by_content() -> None:
    """istiod gives resources no version."""
    inventory = Inventory(Kind.DELTA, CLUSTER)
    inventory.begin({})

    first = inventory.apply(push(Kind.DELTA, ("a", "1"), ("b", "1")))
    second = inventory.apply(push(Kind.DELTA, ("a", "1"), ("b", "2"), removed=("c",)))
    third = inventory.apply(push(Kind.DELTA, ("c", "1"), removed=("a",)))
    fourth = inventory.apply(push(Kind.DELTA, ("a", "1")))

    assert first == Change(("a", "b"), (), ())
    assert second == Change((), ("b",), ("c",))
    assert third == Change(("c",), (), ("a",))
    assert fourth == Change(("a",), (), ())


def test_versions_that_the_client_named_are_compared() -> None:
    inventory = Inventory(Kind.DELTA, CLUSTER)
    inventory.begin({"a": "v1", "b": "v1"})

    change = inventory.apply(push(Kind.DELTA, ("a", "x"), ("b", "x"), ("c", "x"), version="v1"))

    assert change == Change(("c",), (), ())
    assert inventory.apply(push(Kind.DELTA, ("b", "x"), version="v2")).changed == ("b",)


def test_without_a_beginning_what_is_new_cannot_be_told() -> None:
    inventory = Inventory(Kind.DELTA, CLUSTER)

    first = inventory.apply(push(Kind.DELTA, ("a", "1")))
    second = inventory.apply(push(Kind.DELTA, ("a", "2")))

    assert first == Change((), (), (), unknown=("a",))
    assert second == Change((), ("a",), ())


def test_the_agents_own_types_have_no_names() -> None:
    inventory = Inventory(Kind.SOTW, NAME_TABLE)
    table = Resource(NAME_TABLE, "", "", b"\x0a\x02\xff\xff")

    change = inventory.apply(
        write_response(Kind.SOTW, NAME_TABLE, version="1", nonce="1", resources=[table])
    )

    assert change.unknown == ("",)


@pytest.mark.parametrize("body", [b"", b"\x0a\xff", b"\x12\x01x"])
def test_a_resource_without_readable_name_has_none(body: bytes) -> None:
    inventory = Inventory(Kind.SOTW, CLUSTER)
    raw = write_response(
        Kind.SOTW, CLUSTER, version="1", nonce="1", resources=[Resource(CLUSTER, "", "", body)]
    )

    assert inventory.apply(raw).unknown == ("",)


def test_a_resource_with_a_time_to_live_is_wrapped_in_sotw() -> None:
    wrapped = discovery_pb2.Resource(name="a", version="7")
    wrapped.resource.Pack(discovery_pb2.Resource())
    response = discovery_pb2.DiscoveryResponse(type_url=CLUSTER)
    response.resources.add().Pack(wrapped)

    assert response.resources[0].type_url == WRAPPER
    change = Inventory(Kind.SOTW, CLUSTER).apply(response.SerializeToString())
    assert change.unknown == ("a",)


def test_other_fields_are_passed_over_and_broken_ones_refused() -> None:
    number = message((9, 1), (9, b"x"))
    resource = number + message((2, number + message((2, b"x"))), (3, "a"))

    assert Inventory(Kind.DELTA, CLUSTER).apply(message((2, resource))).unknown == ("a",)
    assert Inventory(Kind.SOTW, CLUSTER).apply(message((2, number))).unknown == ("",)
    with pytest.raises(WireError):
        Inventory(Kind.DELTA, CLUSTER).apply(message((2, b"\xff")))
