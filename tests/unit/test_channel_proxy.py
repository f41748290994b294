"""Asking a proxy for a tunnel. Source: section 2.3."""

import pytest

from agent.channel.proxy import place, read_answer, write_request


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        ("http://proxy:3128", ("proxy", 3128)),
        ("http://user:secret@proxy", ("proxy", 80)),
        ("http://[::1]:3128/", ("::1", 3128)),
    ],
)
def test_a_proxy_is_where_its_url_says(proxy: str, expected: tuple[str, int]) -> None:
    assert place(proxy) == expected


def test_a_request_names_the_server_and_nobody_by_default() -> None:
    assert write_request("istiod:15012", "http://proxy:3128") == (
        b"CONNECT istiod:15012 HTTP/1.1\r\nHost: istiod:15012\r\n\r\n"
    )


def test_a_user_may_have_no_password() -> None:
    request = write_request("istiod:15012", "http://me@proxy:3128")

    assert b"\r\nProxy-Authorization: Basic bWU6\r\n" in request


@pytest.mark.parametrize("line", ["HTTP/1.1 200 Connection established", "HTTP/1.0 200"])
@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_a_tunnel_may_be_had(line: str, end: str) -> None:
    read_answer(f"{line}{end}Server: x{end}{end}".encode())
    read_answer(f"{line}\n{end}".encode())


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"", "does not answer in HTTP: ''"),
        (b"HTTP/1.1 200", "does not answer in HTTP: 'HTTP/1.1 200'"),
        (b"\x15\x03\x01\x00\x02\x02\x16\r\n\r\n", "does not answer in HTTP"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "refuses a tunnel: 403 Forbidden"),
        (b"HTTP/1.1\r\n\r\n", "refuses a tunnel: "),
    ],
)
def test_why_there_is_no_tunnel_is_said(head: bytes, expected: str) -> None:
    with pytest.raises(OSError, match=expected):
        read_answer(head)
