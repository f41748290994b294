"""What the control plane is told while Envoy has not seen a response. Section 2.8, D-8."""

import pytest
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest

from agent.xds.discovery import Kind, Response, read_request
from agent.xds.resources import CLUSTER, EXTENSION
from agent.xds.upstream.conversion.nonces import Withheld


def withheld(kind: Kind = Kind.SOTW, accepted: dict[str, str] | None = None) -> Withheld:
    return Withheld(kind, (EXTENSION,), {} if accepted is None else accepted)


def response(nonce: str, version: str = "2") -> Response:
    return Response(EXTENSION, version, nonce, 1)


def request(nonce: str, *names: str, type_url: str = EXTENSION, error: str = "") -> bytes:
    made = DiscoveryRequest(
        type_url=type_url, response_nonce=nonce, resource_names=names, version_info="1"
    )
    if error:
        made.error_detail.message = error
    raw: bytes = made.SerializeToString()
    return raw


def readdressed(state: Withheld, raw: bytes) -> tuple[str, bytes]:
    """Return the nonce that the control plane gets, and the request that it gets."""
    head, message = state.readdressed(read_request(Kind.SOTW, raw), raw)
    assert read_request(Kind.SOTW, message).nonce == head.nonce
    return head.nonce, message


def test_a_change_after_a_refusal_carries_the_nonce_of_what_was_refused() -> None:
    state = withheld()
    readdressed(state, request("", "a"))
    state.received(response("n1"))
    state.passed_on(response("n1"))
    readdressed(state, request("n1", "a"))
    state.received(response("n2"))

    nonce, message = readdressed(state, request("n1", "a", "b"))

    expected = DiscoveryRequest.FromString(request("n2", "a", "b"))
    assert nonce == "n2"
    assert DiscoveryRequest.FromString(message) == expected
    assert readdressed(state, request("n1", "b"))[0] == "n2"


def test_the_answer_to_an_earlier_response_keeps_its_nonce() -> None:
    state = withheld()
    readdressed(state, request("", "a"))
    state.received(response("n1"))
    state.passed_on(response("n1"))
    state.received(response("n2"))

    for raw in (request("n1", "a"), request("n1", "a", error="no"), request("n1", "b", error="no")):
        assert readdressed(state, raw) == ("n1", raw)


def test_what_envoy_has_got_is_nothing_to_hide() -> None:
    state = withheld()
    state.received(response("n1"))
    state.received(response("n2"))
    state.passed_on(response("n1"))
    assert readdressed(state, request("n1", "a"))[0] == "n2"

    state.passed_on(response("n2"))
    assert readdressed(state, request("n2", "b"))[0] == "n2"
    assert readdressed(state, request("n1", "c"))[0] == "n1"


def test_before_any_response_there_is_no_nonce_to_be_wrong() -> None:
    state = withheld()
    state.received(response("n1"))
    raw = request("", "a")

    assert readdressed(state, raw) == ("", raw)


def test_a_stream_that_begins_says_nothing_of_what_was_accepted() -> None:
    accepted = {EXTENSION: "1"}
    raw = DiscoveryRequest(type_url=EXTENSION).SerializeToString()

    readdressed(withheld(accepted=accepted), raw)

    assert accepted == {EXTENSION: "1"}


def test_other_types_are_left_alone() -> None:
    state = withheld()
    state.received(response("n1"))
    raw = request("n0", "a", type_url=CLUSTER)

    assert readdressed(state, raw) == ("n0", raw)


def test_in_delta_nothing_has_to_change() -> None:
    state = withheld(Kind.DELTA)
    state.received(response("n1"))
    made = DeltaDiscoveryRequest(type_url=EXTENSION, resource_names_subscribe=["a"])
    raw = made.SerializeToString()
    head = read_request(Kind.DELTA, raw)

    assert state.readdressed(head, raw) == (head, raw)


@pytest.mark.parametrize("kind", Kind)
def test_a_refusal_names_what_envoy_has(kind: Kind) -> None:
    """Whatever the stream it was accepted on."""
    accepted: dict[str, str] = {}
    readdressed(withheld(accepted=accepted), request("n1", "a"))

    raw = withheld(kind, accepted).refusal(response("n2"), "a reason")

    if kind is Kind.SOTW:
        sotw = DiscoveryRequest(type_url=EXTENSION, response_nonce="n2", version_info="1")
        sotw.error_detail.code, sotw.error_detail.message = 13, "a reason"
        assert DiscoveryRequest.FromString(raw) == sotw
    else:
        delta = DeltaDiscoveryRequest(type_url=EXTENSION, response_nonce="n2")
        delta.error_detail.code, delta.error_detail.message = 13, "a reason"
        assert DeltaDiscoveryRequest.FromString(raw) == delta
