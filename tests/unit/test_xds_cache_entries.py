"""What is read of a response for keeping. Source: sections 2.17 and 3.2."""

import pytest

from agent.protobuf.response import WRAPPER
from agent.protobuf.wire import WireError, message
from agent.xds.cache.entries import Entry, entries
from agent.xds.discovery import Kind, Resource, write_response
from agent.xds.resources import CLUSTER, EXTENSION, LISTENER

ONE = message((1, "one"), (7, 7))
TWO = message((1, "two"))


def read(kind: Kind, raw: bytes, type_url: str = CLUSTER) -> list[Entry]:
    return list(entries(kind, type_url, raw))


def response(kind: Kind, *resources: Resource, removed: tuple[str, ...] = ()) -> bytes:
    return write_response(
        kind, CLUSTER, version="9", nonce="1", resources=resources, removed=removed
    )


def test_a_delta_response_names_and_removes() -> None:
    raw = response(Kind.DELTA, Resource(CLUSTER, "other", "3", ONE), removed=("two",))

    assert read(Kind.DELTA, raw) == [Entry("other", "3", ONE), Entry("two", "", None)]


def test_a_resource_of_sotw_is_named_by_itself() -> None:
    raw = response(Kind.SOTW, Resource(CLUSTER, "", "", ONE), Resource(CLUSTER, "", "", TWO))

    assert read(Kind.SOTW, raw) == [Entry("one", "", ONE), Entry("two", "", TWO)]


def test_a_resource_of_another_type_is_not_of_this_one() -> None:
    raw = response(Kind.SOTW, Resource(LISTENER, "", "", ONE), Resource(CLUSTER, "", "", TWO))

    assert read(Kind.SOTW, raw) == [Entry("two", "", TWO)]


def test_nor_is_one_of_delta() -> None:
    raw = response(Kind.DELTA, Resource(LISTENER, "one", "1", ONE))

    assert read(Kind.DELTA, raw) == []


@pytest.mark.parametrize("kind", Kind)
def test_one_without_a_name_is_not_understood(kind: Kind) -> None:
    """Several of them would pass for one."""
    raw = response(kind, Resource(CLUSTER, "", "1", message((4, "nameless"))))

    with pytest.raises(WireError, match="no name"):
        read(kind, raw)


def test_a_resource_with_a_time_to_live_is_unwrapped() -> None:
    wrapped = message((1, "4"), (2, message((1, CLUSTER), (2, ONE))), (3, "one"))
    raw = response(Kind.SOTW, Resource(WRAPPER, "", "", wrapped))

    assert read(Kind.SOTW, raw) == [Entry("one", "4", ONE)]


def test_a_sign_of_life_changes_nothing() -> None:
    raw = message((4, CLUSTER), (2, message((1, "3"), (3, "one"))))

    assert read(Kind.DELTA, raw) == []


def test_an_empty_resource_is_one() -> None:
    raw = response(Kind.DELTA, Resource(CLUSTER, "one", "3", b""))

    assert read(Kind.DELTA, raw) == [Entry("one", "3", b"")]


@pytest.mark.parametrize("kind", Kind)
def test_what_holds_a_pull_secret_is_not_kept(kind: Kind) -> None:
    """R-3: it is in what the control plane sends, until the agent has converted it."""
    body = message((1, "one"), (2, b"..ISTIO_META_WASM_IMAGE_PULL_SECRET.."))
    raw = write_response(
        kind,
        EXTENSION,
        version="1",
        nonce="1",
        resources=[
            Resource(EXTENSION, "one", "1", body),
            Resource(EXTENSION, "two", "1", TWO),
        ],
    )

    one, two = read(kind, raw, EXTENSION)

    assert (one.name, one.body) == ("one", None)
    assert (two.name, two.body) == ("two", TWO)


def test_other_fields_are_nothing_to_keep() -> None:
    raw = response(Kind.SOTW, Resource(CLUSTER, "", "", ONE), removed=()) + message(
        (6, "two"), (9, 1)
    )

    assert read(Kind.SOTW, raw) == [Entry("one", "", ONE)]


def test_what_is_no_message_is_said_to_be_none() -> None:
    with pytest.raises(WireError):
        read(Kind.DELTA, message((2, b"\xff")))
