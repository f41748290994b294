"""What the relay does with each message. Source: xds-identity-dns.md sections 2.6 to 2.8."""

import pytest
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest

from agent.protobuf.wire import WireError, message
from agent.xds.discovery import (
    Kind,
    Request,
    Resource,
    Response,
    read_request,
    write_request,
    write_response,
)
from agent.xds.resources import CLUSTER, HEALTH, LISTENER, NAME_TABLE, PROXY_CONFIG
from agent.xds.stream import (
    AdsStream,
    Convert,
    Deliver,
    Drop,
    Health,
    SendDownstream,
    SendUpstream,
)

TABLE = Resource(NAME_TABLE, "", "1", b"table")


def response(kind: Kind, type_url: str, *resources: Resource) -> bytes:
    return write_response(kind, type_url, version="1", nonce="n", resources=resources)


@pytest.mark.parametrize("kind", Kind)
def test_a_response_for_envoy_is_sent_on(kind: Kind) -> None:
    stream = AdsStream(kind)

    decision = stream.receive_response(response(kind, CLUSTER))

    assert decision == SendDownstream(Response(CLUSTER, "1", "n", 0))


@pytest.mark.parametrize("kind", Kind)
def test_a_converted_type_is_for_envoy_later(kind: Kind) -> None:
    stream = AdsStream(kind, converted={CLUSTER})

    decision = stream.receive_response(response(kind, CLUSTER))

    assert decision == Convert(Response(CLUSTER, "1", "n", 0))


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("type_url", ["istio.io/debug", NAME_TABLE])
def test_a_response_for_nobody_is_dropped(kind: Kind, type_url: str) -> None:
    """T-X14, and a consumed type without handler."""
    stream = AdsStream(kind)

    decision = stream.receive_response(response(kind, type_url))

    assert decision == Drop(Response(type_url, "1", "n", 0))


@pytest.mark.parametrize("kind", Kind)
def test_a_consumed_type_is_delivered_and_answered(kind: Kind) -> None:
    stream = AdsStream(kind, consumed={NAME_TABLE})

    decision = stream.receive_response(response(kind, NAME_TABLE, TABLE))

    assert isinstance(decision, Deliver)
    assert decision.resource == b"table"
    ack = stream.answer(decision.response, None)
    version = "1" if kind is Kind.SOTW else ""
    assert read_request(kind, ack.message) == Request(NAME_TABLE, version, "n", None)


@pytest.mark.parametrize("kind", Kind)
def test_an_empty_set_of_a_consumed_type_is_delivered_too(kind: Kind) -> None:
    """X7 and D-9: it clears the table and is acknowledged."""
    stream = AdsStream(kind, consumed={NAME_TABLE})

    decision = stream.receive_response(response(kind, NAME_TABLE))

    assert decision == Deliver(Response(NAME_TABLE, "1", "n", 0), None)


@pytest.mark.parametrize("kind", Kind)
def test_a_resource_of_another_type_is_refused(kind: Kind) -> None:
    stream = AdsStream(kind, consumed={NAME_TABLE})
    wrong = Resource(CLUSTER, "", "", b"")

    decision = stream.receive_response(response(kind, NAME_TABLE, wrong))

    assert isinstance(decision, SendUpstream)
    refusal = read_request(kind, decision.message)
    assert refusal.nonce == "n"
    assert refusal.error == f"expected a resource of {NAME_TABLE}, got {CLUSTER!r}"


def test_a_resource_that_cannot_be_read_is_refused() -> None:
    stream = AdsStream(Kind.DELTA, consumed={NAME_TABLE})
    cut_off = b"\x12\x7f"  # field 2 of 127 bytes
    broken = message((2, cut_off), (4, NAME_TABLE), (5, "n"))

    decision = stream.receive_response(broken)

    assert isinstance(decision, SendUpstream)
    assert "after the message" in str(read_request(Kind.DELTA, decision.message).error)


@pytest.mark.parametrize("kind", Kind)
def test_the_agent_subscribes_once_after_the_first_request_for_listeners(kind: Kind) -> None:
    """T-X12: once per session, in the order given."""
    stream = AdsStream(kind, subscribe=(NAME_TABLE, PROXY_CONFIG))
    clusters, listeners = write_request(kind, CLUSTER), write_request(kind, LISTENER)

    before = stream.receive_request(clusters)
    first = stream.receive_request(listeners)
    second = stream.receive_request(listeners)

    assert before == (Request(CLUSTER, "", "", None), ())
    assert first[1] == tuple(
        SendUpstream(write_request(kind, type_url)) for type_url in (NAME_TABLE, PROXY_CONFIG)
    )
    assert second[1] == ()


@pytest.mark.parametrize("kind", Kind)
def test_health_is_told_after_the_first_request_for_listeners_and_when_it_changes(
    kind: Kind,
) -> None:
    """R-9."""
    stream = AdsStream(kind, subscribe=(NAME_TABLE,), health=Health("status 500"))

    before = stream.report(Health("status 503"))
    first = stream.receive_request(write_request(kind, LISTENER))[1]
    again = stream.receive_request(write_request(kind, LISTENER))[1]
    changed = stream.report(Health(None))

    assert (before, again) == ((), ())
    types = [read_request(kind, each.message).type_url for each in first]
    assert types == [NAME_TABLE, HEALTH]
    assert first[1:] == (SendUpstream(health_request(kind, "status 503")),)
    assert changed == (SendUpstream(health_request(kind, None)),)


@pytest.mark.parametrize("kind", Kind)
def test_health_that_was_never_found_is_not_told(kind: Kind) -> None:
    stream = AdsStream(kind)

    assert stream.receive_request(write_request(kind, LISTENER))[1] == ()


def health_request(kind: Kind, problem: str | None) -> bytes:
    """Return the message as protobuf writes it."""
    message: DiscoveryRequest | DeltaDiscoveryRequest
    message = DiscoveryRequest() if kind is Kind.SOTW else DeltaDiscoveryRequest()
    message.type_url = "type.googleapis.com/istio.v1.HealthInformation"
    if problem is not None:
        message.error_detail.code = 13
        message.error_detail.message = problem
    raw: bytes = message.SerializeToString(deterministic=True)
    return raw


def test_a_message_that_cannot_be_read_is_an_error() -> None:
    stream = AdsStream(Kind.SOTW)

    with pytest.raises(WireError):
        stream.receive_request(b"\xff")
    with pytest.raises(WireError):
        stream.receive_response(b"\xff")
