import pytest

from agent.status.health import request_body, serving_status


def test_the_whole_server_is_an_empty_message() -> None:
    assert request_body("") == b"\0\0\0\0\0"


def test_a_service_is_field_one() -> None:
    assert request_body("foo") == b"\0\0\0\0\5\n\3foo"
    assert request_body("x" * 200).startswith(b"\0\0\0\0\xcb\n\xc8\1xxx")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\0\0\0\0\0", 0),
        (b"\0\0\0\0\2\x08\1", 1),
        (b"\0\0\0\0\2\x08\2", 2),
        (b"\0\0\0\0\3\x08\xac\2", 300),
        (b"\0\0\0\0\4\x10\5\x08\1", 1),
        (b"\0\0\0\0\5\x08\1\x12\1x", 1),
    ],
)
def test_the_status_is_field_one_of_the_answer(body: bytes, status: int) -> None:
    assert serving_status(body) == status


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0\0",
        b"\1\0\0\0\2\x08\1",
        b"\0\0\0\0\3\x08\1",
        b"\0\0\0\0\1\x08",
        b"\0\0\0\0\2\x08\xff",
    ],
)
def test_anything_else_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="health answer"):
        serving_status(body)
