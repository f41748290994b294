"""Discovery messages: the parts that the relay reads, against Envoy's own classes."""

import pytest
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import any_pb2

from agent.protobuf.response import WRAPPER
from agent.protobuf.wire import message
from agent.xds.discovery import (
    REQUEST,
    Kind,
    Request,
    Resource,
    Response,
    Subscription,
    first_resource,
    read_named,
    read_node_id,
    read_request,
    read_resources,
    read_response,
    read_subscription,
    write_request,
    write_response,
)
from agent.xds.resources import CLUSTER, LISTENER, NAME_TABLE

ITEM = Resource(CLUSTER, "one", "7", b"body")


def test_the_head_of_a_sotw_request_is_read() -> None:
    sent = discovery_pb2.DiscoveryRequest(
        type_url=LISTENER, version_info="3", response_nonce="n", resource_names=["a", "b"]
    )
    sent.node.id = "sidecar~10.0.0.1~pod.ns~domain"
    sent.error_detail.message = "no"
    raw = sent.SerializeToString()

    assert read_request(Kind.SOTW, raw) == Request(LISTENER, "3", "n", "no")
    assert read_subscription(Kind.SOTW, raw) == Subscription(("a", "b"), (), {})


def test_the_head_of_a_delta_request_is_read() -> None:
    sent = discovery_pb2.DeltaDiscoveryRequest(
        type_url=LISTENER,
        response_nonce="n",
        resource_names_subscribe=["a"],
        resource_names_unsubscribe=["b"],
        initial_resource_versions={"c": "1", "d": ""},
    )
    sent.error_detail.code = 13
    raw = sent.SerializeToString()

    assert read_request(Kind.DELTA, raw) == Request(LISTENER, "", "n", "")
    assert read_subscription(Kind.DELTA, raw) == Subscription(("a",), ("b",), {"c": "1", "d": ""})


def test_a_request_without_error_detail_is_no_nack() -> None:
    raw = discovery_pb2.DiscoveryRequest(type_url=LISTENER).SerializeToString()

    assert read_request(Kind.SOTW, raw).error is None


def test_the_last_of_a_repeated_scalar_wins_and_repeated_messages_merge() -> None:
    first = discovery_pb2.DiscoveryRequest(type_url=CLUSTER)
    first.error_detail.message = "kept"
    second = discovery_pb2.DiscoveryRequest(type_url=LISTENER)
    second.error_detail.code = 3

    head = read_request(Kind.SOTW, first.SerializeToString() + second.SerializeToString())

    assert head == Request(LISTENER, "", "", "kept")


def test_a_field_of_another_wire_type_is_unknown() -> None:
    number_four_as_varint = b"\x20\x01\x10\x01"

    assert read_request(Kind.SOTW, number_four_as_varint).type_url == ""
    assert read_subscription(Kind.SOTW, b"\x18\x01") == Subscription((), (), {})
    assert read_response(number_four_as_varint) == Response("", "", "", 0)


def test_a_response_of_ours_is_one_of_envoys() -> None:
    sotw = write_response(Kind.SOTW, CLUSTER, version="2", nonce="5", resources=[ITEM])
    delta = write_response(
        Kind.DELTA, CLUSTER, version="2", nonce="5", resources=[ITEM], removed=["gone"]
    )

    packed = any_pb2.Any(type_url=CLUSTER, value=b"body")
    assert discovery_pb2.DiscoveryResponse.FromString(sotw) == discovery_pb2.DiscoveryResponse(
        type_url=CLUSTER, version_info="2", nonce="5", resources=[packed]
    )
    assert discovery_pb2.DeltaDiscoveryResponse.FromString(
        delta
    ) == discovery_pb2.DeltaDiscoveryResponse(
        type_url=CLUSTER,
        system_version_info="2",
        nonce="5",
        resources=[discovery_pb2.Resource(name="one", version="7", resource=packed)],
        removed_resources=["gone"],
    )
    assert read_response(sotw) == read_response(delta) == Response(CLUSTER, "2", "5", 1)


def test_only_delta_says_what_was_removed() -> None:
    raw = write_response(Kind.SOTW, CLUSTER, version="", nonce="", resources=[], removed=["gone"])

    assert b"gone" not in raw


def test_the_first_resource_is_found_in_both_kinds() -> None:
    other = Resource(CLUSTER, "two", "8", b"other")
    for kind in Kind:
        raw = write_response(kind, CLUSTER, version="", nonce="", resources=[ITEM, other])
        assert first_resource(kind, raw) == (CLUSTER, b"body")

        empty = write_response(kind, CLUSTER, version="", nonce="", resources=[])
        assert first_resource(kind, empty) is None


def test_resources_survive_being_written_and_read() -> None:
    raw = write_response(Kind.DELTA, "", version="v", nonce="", resources=[ITEM])

    assert read_resources(raw) == ("v", (ITEM,))


def test_an_ack_of_ours_names_type_version_and_nonce() -> None:
    sotw = write_request(Kind.SOTW, CLUSTER, version="2", nonce="5")
    delta = write_request(Kind.DELTA, CLUSTER, version="2", nonce="5")

    assert discovery_pb2.DiscoveryRequest.FromString(sotw) == discovery_pb2.DiscoveryRequest(
        type_url=CLUSTER, version_info="2", response_nonce="5"
    )
    assert discovery_pb2.DeltaDiscoveryRequest.FromString(
        delta
    ) == discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce="5")


def test_a_nack_of_ours_carries_code_13() -> None:
    raw = write_request(Kind.DELTA, CLUSTER, nonce="5", error="cannot")

    sent = discovery_pb2.DeltaDiscoveryRequest.FromString(raw)
    assert (sent.error_detail.code, sent.error_detail.message) == (13, "cannot")


def test_the_resources_of_sotw_have_neither_name_nor_version() -> None:
    resource = Resource(CLUSTER, "a", "1", b"body")
    raw = write_response(Kind.SOTW, CLUSTER, version="v", nonce="n", resources=[resource])

    assert read_resources(raw, Kind.SOTW) == ("v", (Resource(CLUSTER, "", "", b"body"),))


@pytest.mark.parametrize(
    ("type_url", "body", "name"),
    [
        (CLUSTER, message((2, "x"), (1, "own")), "own"),
        (CLUSTER, message((2, "x")), ""),
        (CLUSTER, b"\xff", ""),
        (CLUSTER, message((1, b"\xff")), ""),
        (NAME_TABLE, message((1, "not a name")), ""),
    ],
)
def test_a_resource_of_sotw_is_named_by_what_stands_in_it(
    type_url: str, body: bytes, name: str
) -> None:
    resource = Resource(type_url, "told", "1", body)
    sotw, delta = (
        write_response(kind, type_url, version="v", nonce="n", resources=[resource])
        for kind in (Kind.SOTW, Kind.DELTA)
    )

    assert [(each.name, each.version) for each in read_named(Kind.SOTW, sotw)] == [(name, "")]
    assert [(each.name, each.version) for each in read_named(Kind.DELTA, delta)] == [("told", "1")]


def test_a_resource_of_sotw_may_be_wrapped() -> None:
    inner = message((1, CLUSTER), (2, b"body"))
    wrapped = Resource(WRAPPER, "", "", message((1, "7"), (2, inner), (3, "one")))
    raw = write_response(Kind.SOTW, CLUSTER, version="v", nonce="n", resources=[wrapped])

    (found,) = read_named(Kind.SOTW, raw)

    assert (found.name, found.version, found.unpacked()) == ("one", "7", (CLUSTER, b"body"))


@pytest.mark.parametrize("kind", Kind)
def test_the_id_of_a_node_is_read_and_need_not_be_there(kind: Kind) -> None:
    node = message((1, "sidecar~1.2.3.4~a.b~c"), (2, "cluster"))
    raw = write_request(kind, CLUSTER)

    assert read_node_id(kind, raw + message((REQUEST[kind].node, node))) == "sidecar~1.2.3.4~a.b~c"
    assert read_node_id(kind, raw) == ""
