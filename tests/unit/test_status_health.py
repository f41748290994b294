import pytest

from agent.http.message import Headers
from agent.status.health import answer, request_body, serving_status


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


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b"\0\0\0\0\2\x08\1", "SERVING"),
        (b"\0\0\0\0\2\x08\2", "NOT_SERVING"),
        (b"\0\0\0\0\2\x08\x09", "UNKNOWN"),
    ],
)
def test_a_call_that_succeeds_has_a_status(body: bytes, name: str) -> None:
    assert answer(200, (("grpc-status", "0"),), body) == name


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ((("grpc-status", "5"),), "NOT_FOUND"),
        ((("grpc-status", "12"),), "UNIMPLEMENTED: the server has no grpc.health.v1.Health"),
        ((("grpc-status", "99"),), "code 99, HTTP status 503"),
        ((), "code none, HTTP status 503"),
    ],
)
def test_a_call_that_fails_names_its_code(headers: Headers, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        answer(503, headers, b"")
