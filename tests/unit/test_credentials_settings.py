"""What connections to the control plane and to the CA have in common."""

import pytest

from agent.credentials.settings import is_loopback, parse_headers
from agent.reader import Reader


def test_headers_come_from_variables_with_a_prefix() -> None:
    """A value may begin with '='; other variables are no headers."""
    read = Reader({"CA_HEADER_B": "=x=", "CA_HEADER_A": "1", "XDS_HEADER_C": "2"})

    assert parse_headers(read, "CA_HEADER_") == [("a", "1"), ("b", "=x=")]
    assert read.warnings == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("A B", "x", "no header can be named 'a b'"),
        ("GRPC-X", "x", "no header can be named 'grpc-x'"),
        ("X-BIN", "x", "no header can be named 'x-bin'"),
        ("X", "a\nb", "expected printable ASCII"),
    ],
)
def test_what_http2_forbids_is_left_out(name: str, value: str, said: str) -> None:
    read = Reader({f"CA_HEADER_{name}": value})

    assert parse_headers(read, "CA_HEADER_") == []
    assert said in read.warnings[0]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.1.2.3", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("x", False)],
)
def test_loopback_is_known_by_name_and_address(
    host: str,
    expected: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    assert is_loopback(host) is expected
