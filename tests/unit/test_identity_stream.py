"""The protocol of one SDS stream. Source: xds-identity-dns.md section 4.3 and 11.3."""

import pytest

from agent.identity.secret import HEALTH, SECRET, SecretRequest
from agent.identity.stream import Meaning, Reaction, SdsStream


def request(*names: str, nonce: str = "", error: str | None = None) -> SecretRequest:
    return SecretRequest(SECRET, nonce, names, error, node_id="me")


def subscribed(*names: str) -> SdsStream:
    """Return a stream that got these secrets by a response with the nonce "1"."""
    stream = SdsStream()
    stream.receive(request(*names))
    stream.sent("1", {name: hash(name) for name in names})
    return stream


def test_the_first_request_must_say_who_asks() -> None:
    stream = SdsStream()

    assert stream.receive(SecretRequest(SECRET, names=("a",))).meaning is Meaning.ANONYMOUS
    assert stream.receive(request("a")) == Reaction(Meaning.SUBSCRIBE, ("a",))
    assert stream.receive(SecretRequest(SECRET, names=("a",))).meaning is Meaning.SUBSCRIBE


def test_health_is_passed_over() -> None:
    stream = SdsStream()

    assert stream.receive(SecretRequest(HEALTH, node_id="me")).meaning is Meaning.FOREIGN
    assert stream.receive(SecretRequest(SECRET, names=("a",))).meaning is Meaning.ANONYMOUS


def test_other_types_are_passed_over() -> None:
    stream = SdsStream()

    assert stream.receive(request("a")._replace(type_url="other")).meaning is Meaning.FOREIGN
    assert stream.names() == set()


@pytest.mark.parametrize(
    ("names", "nonce", "expected"),
    [
        (("a",), "1", Reaction(Meaning.ACK)),
        (("a", "b"), "1", Reaction(Meaning.SUBSCRIBE, ("b",))),  # T-S1
        (("b", "b"), "1", Reaction(Meaning.SUBSCRIBE, ("b",))),
        (("a",), "0", Reaction(Meaning.STALE)),
        ((), "1", Reaction(Meaning.UNSUBSCRIBE)),  # T-S8
        (("a", "b"), "", Reaction(Meaning.SUBSCRIBE, ("a", "b"))),
    ],
)
def test_a_request_means_what_its_nonce_and_names_say(
    names: tuple[str, ...], nonce: str, expected: Reaction
) -> None:
    assert subscribed("a").receive(request(*names, nonce=nonce)) == expected


def test_fewer_names_are_no_reason_to_send() -> None:
    stream = subscribed("a", "b")

    assert stream.receive(request("b", nonce="1")) == Reaction(Meaning.ACK)
    assert not stream.is_subscribed("a")


def test_a_stale_request_changes_nothing() -> None:
    stream = subscribed("a")

    stream.receive(request("b", nonce="0"))

    assert stream.names() == {"a"}


def test_after_a_reconnect_an_old_nonce_is_no_obstacle() -> None:
    """T-S6."""
    assert SdsStream().receive(request("a", nonce="old")) == Reaction(Meaning.SUBSCRIBE, ("a",))


def test_after_unsubscribing_everything_is_new() -> None:
    stream = subscribed("a")
    stream.receive(request(nonce="1"))

    assert stream.receive(request("a", nonce="1")) == Reaction(Meaning.SUBSCRIBE, ("a",))


def test_a_refusal_gets_no_answer() -> None:
    """T-S9; D-19: also without any subscription."""
    assert subscribed("a").receive(request("a", nonce="1", error="bad")).meaning is Meaning.NACK
    assert SdsStream().receive(request("a", error="")).meaning is Meaning.NACK


def test_only_what_differs_from_the_last_one_is_new() -> None:
    stream = subscribed("a")

    assert not stream.is_new("a", hash("a"))
    assert stream.is_new("a", 1)
    stream.sent("2", {"a": 1, "b": 2})
    assert not stream.is_new("a", 1)
    assert stream.names() == {"a"}
    assert stream.receive(request("a", nonce="2")).meaning is Meaning.ACK
