"""The client against servers that do what servers do."""

import socket
import struct
import threading

import pytest

from agent.request.client import MAX_REQUESTS, ConnectError, ExchangeError, fetch
from tests.fakes.scripted_server import answer, scripted_server

SILENT: tuple[bytes, ...] = ()


def test_a_body_of_many_pieces_arrives_whole() -> None:
    body = bytes(range(256)) * 4096
    chunks = [b"%x\r\n%b\r\n" % (65536, body[at : at + 65536]) for at in range(0, 1 << 20, 65536)]
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    with scripted_server([head, *chunks, b"0\r\n\r\n"]) as server:
        response = fetch("GET", f"http://127.0.0.1:{server.port}/config_dump", timeout_seconds=5)

    assert response.body == body


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_localhost_is_tried_on_every_address(family: socket.AddressFamily) -> None:
    with scripted_server(answer("200 OK", b"here"), family=family) as server:
        response = fetch("GET", f"http://localhost:{server.port}/", timeout_seconds=5)

    assert response.body == b"here"


def test_proxy_variables_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")

    with scripted_server(answer("200 OK", b"direct")) as server:
        response = fetch("GET", f"http://127.0.0.1:{server.port}/", timeout_seconds=5)

    assert response.body == b"direct"


def test_a_redirect_is_followed_with_method_and_body() -> None:
    moved = answer("307 Temporary Redirect", b"", "Location: /there")

    with scripted_server(moved, answer("200 OK", b"done")) as server:
        response = fetch("POST", f"http://127.0.0.1:{server.port}/", b"text", timeout_seconds=5)

    assert response.body == b"done"
    assert [request.split(b" ")[1] for request in server.requests] == [b"/", b"/there"]
    assert all(request.endswith(b"\r\n\r\ntext") for request in server.requests)


def test_an_endless_redirect_is_given_up() -> None:
    moved = answer("302 Found", b"", "Location: /again")

    with (
        scripted_server(moved) as server,
        pytest.raises(ExchangeError, match=f"after {MAX_REQUESTS} redirects"),
    ):
        fetch("GET", f"http://127.0.0.1:{server.port}/", timeout_seconds=5)

    assert len(server.requests) == MAX_REQUESTS


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (SILENT, "no answer in 0.05s"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx"], "before its answer was complete"),
        ([b"SSH-2.0\r\n"], "expected an HTTP/1.1 response"),
    ],
)
def test_a_server_that_does_not_answer_properly_is_an_error(
    pieces: list[bytes], message: str
) -> None:
    with scripted_server(pieces) as server, pytest.raises(ExchangeError, match=message) as caught:
        fetch("GET", f"http://127.0.0.1:{server.port}/", timeout_seconds=0.05 if not pieces else 5)

    assert not isinstance(caught.value, ConnectError)


def test_a_reset_connection_is_an_error() -> None:
    def reset(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        # A linger time of zero makes the kernel reset the connection instead of closing it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.recv(65536)
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=reset, args=(listener,))
        thread.start()

        with pytest.raises(ExchangeError, match="connection reset by peer"):
            fetch("GET", f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout_seconds=5)

        thread.join()


def test_nobody_listening_names_each_address_tried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    with pytest.raises(ConnectError) as caught:
        fetch("GET", f"http://localhost:{port}/", timeout_seconds=5)

    assert "127.0.0.1: connection refused" in str(caught.value)
    assert "::1: " in str(caught.value)


def test_a_name_that_does_not_exist_is_a_connect_error() -> None:
    with pytest.raises(ConnectError, match="cannot resolve no-such-host"):
        fetch("GET", "http://no-such-host.invalid/", timeout_seconds=5)


def test_a_url_that_cannot_be_asked_is_an_error() -> None:
    with pytest.raises(ExchangeError, match="expected http://"):
        fetch("GET", "ftp://127.0.0.1/", timeout_seconds=5)
