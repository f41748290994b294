"""What Envoy's answers mean for what is kept. Source: sections 2.11 and 10.4."""

import itertools

import pytest

from agent.protobuf.wire import WireError, message
from agent.xds.cache.ledger import (
    Accept,
    Change,
    Discard,
    Forget,
    Ledger,
    Retain,
    Stage,
    has_configuration,
    is_kept,
)
from agent.xds.discovery import Kind, read_response, write_request, write_response
from agent.xds.resources import CLUSTER, LISTENER, NAME_TABLE, ROUTE, SECRET, WORKLOAD


class Stream:
    """One stream of Envoy, with what follows from it."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.ledger = Ledger(kind, itertools.count(1))

    def ask(
        self,
        type_url: str,
        *more: tuple[int, str | bytes],
        version: str = "",
        nonce: str = "",
        error: str | None = None,
    ) -> list[Change]:
        """Return what follows from a request; `more` are further fields."""
        raw = write_request(self.kind, type_url, version=version, nonce=nonce, error=error)
        return self.ledger.requested(raw + message(*more))

    def tell(self, type_url: str, nonce: str) -> list[Change]:
        """Return what follows from a response."""
        raw = write_response(self.kind, type_url, version="1", nonce=nonce, resources=())
        return self.ledger.responded(read_response(raw), raw)


@pytest.fixture(params=Kind)
def stream(request: pytest.FixtureRequest) -> Stream:
    """A stream of either kind."""
    return Stream(request.param)


def test_a_response_counts_once_it_is_accepted(stream: Stream) -> None:
    assert stream.ask(CLUSTER) == []
    (stage,) = stream.tell(CLUSTER, "n1")
    accepted = stream.ask(CLUSTER, version="1", nonce="n1")

    assert isinstance(stage, Stage)
    assert (stage.push, stage.kind, stage.type_url) == (1, stream.kind, CLUSTER)
    assert read_response(stage.raw).nonce == "n1"
    assert accepted == [Accept(1, CLUSTER, replaces=True)]
    assert stream.ask(CLUSTER, version="1", nonce="n1") == []


def test_a_nack_discards(stream: Stream) -> None:
    stream.ask(CLUSTER)
    stream.tell(CLUSTER, "n1")

    assert stream.ask(CLUSTER, nonce="n1", error="no") == [Discard(1)]


def test_what_envoy_has_is_replaced_by_a_whole_set_only() -> None:
    """In delta it is changed; the entry of a map says that Envoy has something."""
    delta, sotw = Stream(Kind.DELTA), Stream(Kind.SOTW)
    delta.ask(CLUSTER, (5, message((1, "one"), (2, "1"))))
    sotw.ask(CLUSTER, version="1")
    for stream in (delta, sotw):
        stream.tell(CLUSTER, "n1")

    assert delta.ask(CLUSTER, nonce="n1") == [Accept(1, CLUSTER, replaces=False)]
    assert sotw.ask(CLUSTER, nonce="n1") == [Accept(1, CLUSTER, replaces=True)]


def test_only_the_first_of_a_new_envoy_replaces() -> None:
    stream = Stream(Kind.DELTA)
    stream.ask(ROUTE, (3, "a"))
    stream.tell(ROUTE, "n1")
    stream.tell(ROUTE, "n2")

    first, second = (stream.ask(ROUTE, nonce=nonce) for nonce in ("n1", "n2"))

    assert first == [Accept(1, ROUTE, replaces=True)]
    assert second == [Accept(2, ROUTE, replaces=False)]


def test_what_is_not_wanted_any_more_is_forgotten_in_delta() -> None:
    stream = Stream(Kind.DELTA)
    stream.ask(ROUTE, (3, "a"))
    before = stream.ask(ROUTE, (4, "a"))
    stream.tell(ROUTE, "n1")
    stream.ask(ROUTE, nonce="n1")

    assert before == []  # nothing of this Envoy's is kept yet
    assert stream.ask(ROUTE, (4, "a"), (4, "b")) == [Forget(ROUTE, ("a", "b"))]


def test_only_what_is_named_is_retained_in_sotw() -> None:
    stream = Stream(Kind.SOTW)
    stream.ask(ROUTE, (3, "a"), (3, "b"))
    stream.tell(ROUTE, "n1")
    accepted = stream.ask(ROUTE, (3, "a"), (3, "b"), nonce="n1")
    stream.tell(ROUTE, "n2")
    again = stream.ask(ROUTE, (3, "a"), (3, "b"), nonce="n2")
    fewer = stream.ask(ROUTE, (3, "a"), nonce="n2")

    assert accepted == [Accept(1, ROUTE, replaces=True), Retain(ROUTE, ("a", "b"))]
    assert again == [Accept(2, ROUTE, replaces=False)]
    assert fewer == [Retain(ROUTE, ("a",))]
    assert stream.ask(ROUTE, (3, "a"), nonce="n2") == []


def test_what_was_under_way_when_names_changed_is_retained_by_the_new_ones() -> None:
    stream = Stream(Kind.SOTW)
    stream.ask(ROUTE, (3, "a"), (3, "b"), version="1")
    stream.tell(ROUTE, "n1")
    stream.ask(ROUTE, (3, "a"))

    accepted = stream.ask(ROUTE, (3, "a"), nonce="n1")

    assert accepted == [Accept(1, ROUTE, replaces=False), Retain(ROUTE, ("a",))]


def test_a_wildcard_by_name_is_one_too() -> None:
    stream = Stream(Kind.SOTW)
    stream.ask(CLUSTER, (3, "*"), version="1")
    stream.tell(CLUSTER, "n1")

    assert stream.ask(CLUSTER, (3, "*"), nonce="n1") == [Accept(1, CLUSTER, replaces=True)]


def test_the_end_discards_what_is_unanswered(stream: Stream) -> None:
    for type_url in (CLUSTER, ROUTE):
        stream.ask(type_url)
        stream.tell(type_url, "n1")

    assert stream.ledger.closed() == [Discard(1), Discard(2)]
    assert stream.ledger.closed() == []


def test_an_answer_discards_what_came_before_and_was_not_answered(stream: Stream) -> None:
    stream.ask(CLUSTER)
    for nonce in ("n1", "n2", "n3"):
        stream.tell(CLUSTER, nonce)

    assert stream.ask(CLUSTER, nonce="n2") == [Discard(1), Accept(2, CLUSTER, replaces=True)]
    assert stream.ask(CLUSTER, nonce="n1") == []
    assert stream.ask(CLUSTER, nonce="n3", error="no") == [Discard(3)]


def test_where_two_wait_with_one_nonce_neither_is_kept_nor_what_follows(stream: Stream) -> None:
    """An ACK of the first would pass for one of the second, which is perhaps refused."""
    stream.ask(CLUSTER)
    stream.tell(CLUSTER, "n")

    assert stream.tell(CLUSTER, "n") == [Discard(1)]
    assert stream.ask(CLUSTER, nonce="n") == []
    assert stream.tell(CLUSTER, "m") == []
    assert stream.ask(CLUSTER, nonce="m") == []


def test_a_nonce_that_was_answered_may_be_used_again(stream: Stream) -> None:
    stream.ask(CLUSTER)
    for push in (1, 2):
        stream.tell(CLUSTER, "n")
        (change,) = stream.ask(CLUSTER, nonce="n")

        assert isinstance(change, Accept)
        assert change.push == push


def test_a_secret_is_never_kept(stream: Stream) -> None:
    stream.ask(SECRET)

    assert stream.tell(SECRET, "n1") == []
    assert stream.ask(SECRET, nonce="n1") == []


def test_a_response_that_cannot_be_accepted_is_not_staged(stream: Stream) -> None:
    """Without a nonce, or of a type that was not asked for."""
    stream.ask(CLUSTER)

    assert stream.tell(CLUSTER, "") == []
    assert stream.tell(ROUTE, "n1") == []


@pytest.mark.parametrize(
    ("type_url", "delta", "sotw"),
    [
        (CLUSTER, True, True),
        (SECRET, False, False),
        (NAME_TABLE, False, False),
        (WORKLOAD, True, False),
    ],
)
def test_what_is_for_envoy_and_no_secret_is_kept(type_url: str, *, delta: bool, sotw: bool) -> None:
    assert is_kept(Kind.DELTA, type_url) is delta
    assert is_kept(Kind.SOTW, type_url) is sotw


def test_an_envoy_that_has_listeners_has_a_configuration() -> None:
    some = message((5, message((1, "one"), (2, "1"))))

    assert has_configuration(Kind.DELTA, write_request(Kind.DELTA, LISTENER) + some)
    assert has_configuration(Kind.SOTW, write_request(Kind.SOTW, LISTENER, version="1"))
    for kind in Kind:
        assert not has_configuration(kind, write_request(kind, LISTENER))
        assert not has_configuration(kind, write_request(kind, CLUSTER, version="1") + some)


def test_what_is_no_request_is_said_to_be_none(stream: Stream) -> None:
    with pytest.raises(WireError):
        stream.ledger.requested(b"\xff")
