"""The resources of a response, as they stand in it. Section 2.17."""

import pytest

from agent.protobuf.response import Packed, read_packed, read_removed, read_resource
from agent.protobuf.wire import WireError, message

ANY = message((1, "type"), (2, b"body"))
RESOURCE = message((1, "v1"), (9, 1), (3, "name"), (2, ANY))


def test_a_resource_of_sotw_is_its_any() -> None:
    raw = message((2, ANY), (4, "type"), (2, b""))

    first, second = read_packed(raw, delta=False)
    assert first == Packed("", "", ANY, ANY)
    assert second == Packed("", "", b"", b"")


def test_a_resource_of_delta_has_name_and_version() -> None:
    raw = message((2, RESOURCE), (4, "type"), (6, "gone"), (2, message((3, "alive"))))

    assert list(read_packed(raw, delta=True)) == [
        Packed("name", "v1", ANY, RESOURCE),
        Packed("alive", "", b"", message((3, "alive"))),
    ]
    assert read_removed(raw) == ["gone"]


def test_the_last_name_counts_and_messages_are_merged() -> None:
    found = read_resource(message((2, ANY[:6]), (3, "a"), (2, ANY[6:]), (3, "b"), (3, 1)))

    assert (found.name, found.content) == ("b", ANY)


def test_a_sign_of_life_changes_nothing() -> None:
    """Of a resource with a time to live."""
    alive = read_resource(message((3, "name"), (6, message((1, 5)))))

    assert alive.is_unchanged()
    assert not read_resource(RESOURCE).is_unchanged()
    assert not Packed("", "", b"", b"").is_unchanged()


def test_an_any_is_unpacked() -> None:
    assert Packed("", "", ANY + message((3, "x"), (2, b"other"), (1, 1)), b"").unpacked() == (
        "type",
        b"other",
    )
    assert Packed("", "", b"", b"").unpacked() == ("", b"")


@pytest.mark.parametrize("raw", [b"\xff", message((2, b"\xff"))])
def test_what_is_no_response_is_said_to_be_none(raw: bytes) -> None:
    with pytest.raises(WireError):
        list(read_packed(raw, delta=True))


def test_a_secret_in_it_is_not_shown() -> None:
    assert repr(Packed("a", "v", b"secret", b"secret")) == "<resource 'a'>"
