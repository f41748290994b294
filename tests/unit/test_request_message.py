import pytest

from agent.request.message import (
    MAX_HEADERS,
    MAX_LINE,
    MessageError,
    Response,
    failure,
    lasting,
    next_request,
    not_ready_reason,
    parse_url,
    render_request,
)

URL = "http://localhost:15000/stats"
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def received(data: bytes, method: str = "GET", *, closed: bool = False) -> Response:
    response = Response(method)
    response.feed(data)
    if closed:
        response.end()
    return response


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://localhost:15021/healthz/ready", ("localhost", 15021, "/healthz/ready")),
        ("http://localhost", ("localhost", 80, "/")),
        ("http://localhost:/x", ("localhost", 80, "/x")),
        ("HTTP://[::1]:15000/", ("::1", 15000, "/")),
        ("http://[::1]", ("::1", 80, "/")),
        ("http://h?usedonly", ("h", 80, "/?usedonly")),
        ("http://h/a?b=/c", ("h", 80, "/a?b=/c")),
        ("http://h/a#part", ("h", 80, "/a")),
        ("http://h/stats?filter=^(a|b)\\.c$", ("h", 80, "/stats?filter=^(a|b)\\.c$")),
        ("http://h/%2f%", ("h", 80, "/%2f%")),
        ("http://h//x", ("h", 80, "//x")),
        ("http://h/a b\xe9", ("h", 80, "/a%20b%C3%A9")),
        ("http://h/\udcff", ("h", 80, "/%FF")),
    ],
)
def test_a_url_is_split_and_its_target_kept_verbatim(url: str, parts: tuple[str, int, str]) -> None:
    assert parse_url(url) == parts


@pytest.mark.parametrize(
    "url",
    [
        "localhost:15021/healthz/ready",
        "https://localhost/",
        "http://",
        "http:///x",
        "http://h:0/",
        "http://h:65536/",
        "http://h:x/",
        "http://h:\u0663/",
        "http://user@h/",
        "http://[::1",
        "http://[::1]x/",
        "http://[]:1/",
        "http://h\xe9/",
        "http://h/a\r\nX: y",
        "http://h/\x7f",
    ],
)
def test_a_url_that_cannot_be_asked_is_refused(url: str) -> None:
    with pytest.raises(MessageError, match="expected"):
        parse_url(url)


@pytest.mark.parametrize(
    ("method", "url", "body", "lines"),
    [
        ("GET", URL, b"", ["GET /stats HTTP/1.1", "Host: localhost:15000"]),
        ("GET", "http://[::1]/", b"", ["GET / HTTP/1.1", "Host: [::1]"]),
        ("POST", URL, b"", ["POST /stats HTTP/1.1", "Host: localhost:15000", "Content-Length: 0"]),
        ("DELETE", "http://h", b"ab", ["DELETE / HTTP/1.1", "Host: h", "Content-Length: 2"]),
    ],
)
def test_a_request_says_where_it_goes_and_how_long_it_is(
    method: str, url: str, body: bytes, lines: list[str]
) -> None:
    head, _, sent = render_request(method, url, body).partition(b"\r\n\r\n")

    assert sorted(head.decode().split("\r\n")) == sorted([*lines, "Connection: close"])
    assert head.decode().startswith(lines[0])
    assert sent == body


@pytest.mark.parametrize("method", ["", "GET /", "GÉT", "GET\r\n"])
def test_a_method_that_is_no_token_is_refused(method: str) -> None:
    with pytest.raises(MessageError, match="such as GET or POST"):
        render_request(method, URL)


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (HEAD + b"Content-Length: 2\r\n\r\nok", b"ok"),
        (HEAD + b"Content-Length: 2\r\n\r\nok ignored", b"ok"),
        (HEAD + b"content-length: 2\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.0 200 OK\nContent-Length:2\n\nok", b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: 2\r\n\r\nok", b"ok"),
        (HEAD + b"Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", b""),
        (CHUNKED + b"2;x=y\r\nok\r\nA \r\n0123456789\r\n0\r\nX: y\r\n\r\n", b"ok0123456789"),
        (HEAD + b"Content-Length: 9\r\n" + CHUNKED[len(HEAD) :] + b"0\r\n\r\n", b""),
    ],
)
def test_a_response_is_complete_at_its_own_end_however_it_is_cut(data: bytes, body: bytes) -> None:
    for size in range(1, len(data) + 1):
        response = Response()
        for start in range(0, len(data), size):
            response.feed(data[start : start + size])

        assert (response.complete, response.status, bytes(response.body)) == (True, 200, body)


@pytest.mark.parametrize(("method", "status"), [("HEAD", b"200"), ("GET", b"204"), ("GET", b"304")])
def test_a_response_without_body_ends_with_its_head(method: str, status: bytes) -> None:
    response = received(b"HTTP/1.1 " + status + b" X\r\nContent-Length: 5\r\n\r\n", method)

    assert response.complete


def test_a_response_of_unknown_length_ends_when_the_server_closes() -> None:
    response = received(HEAD + b"\r\nso ")

    response.feed(b"far")
    complete_before = response.complete
    response.end()

    assert (complete_before, response.complete) == (False, True)
    assert response.body == b"so far"


def test_repeated_headers_are_joined() -> None:
    response = received(b"HTTP/1.1 204 X\r\nVia: a\r\nvia:\tb \r\n\r\n")

    assert response.headers == {"via": "a, b"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "before any answer"),
        (b"HTTP/1.1 2", "before any answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", "before its answer was complete"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nok", "was complete"),
    ],
)
def test_a_connection_closed_early_is_an_error(data: bytes, message: str) -> None:
    with pytest.raises(MessageError, match=message):
        received(data, closed=True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "expected an HTTP/1.1 response"),
        (b"HTTP/2 200\r\n", "expected an HTTP/1.1 response"),
        (b"HTTP/1.1 20\r\n", "expected an HTTP/1.1 response"),
        (b"HTTP/1.1 2000 X\r\n", "expected an HTTP/1.1 response"),
        (b"HTTP/1.1 abc X\r\n", "expected an HTTP/1.1 response"),
        (HEAD + b"no colon\r\n", "expected a header line"),
        (HEAD + b": x\r\n", "expected a header line"),
        (HEAD + b"a b: x\r\n", "expected a header line"),
        (HEAD + b"Content-Length: -1\r\n\r\n", "expected one whole number"),
        (HEAD + b"Content-Length:\r\n\r\n", "expected one whole number"),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "expected one whole number"),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", "expected chunked"),
        (CHUNKED + b"x\r\n", "expected the size of a chunk"),
        (CHUNKED + b"-2\r\n", "expected the size of a chunk"),
        (CHUNKED + b"1\r\nab\r\n", "expected the end of a chunk"),
        (b"H" * (MAX_LINE + 1), "expected lines of at most"),
        (HEAD + b"X: " + b"y" * MAX_LINE + b"\r\n", "expected lines of at most"),
        (HEAD + b"".join(b"x%d: y\r\n" % n for n in range(MAX_HEADERS + 1)), "headers"),
    ],
)
def test_what_is_no_http_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(MessageError, match=message):
        received(data)


@pytest.mark.parametrize(
    ("method", "status", "expected"),
    [
        ("POST", 301, ("GET", "http://localhost:15000/new", b"")),
        ("POST", 302, ("GET", "http://localhost:15000/new", b"")),
        ("POST", 303, ("GET", "http://localhost:15000/new", b"")),
        ("HEAD", 302, ("HEAD", "http://localhost:15000/new", b"")),
        ("POST", 307, ("POST", "http://localhost:15000/new", b"body")),
        ("PUT", 308, ("PUT", "http://localhost:15000/new", b"body")),
        ("GET", 300, None),
        ("GET", 304, None),
        ("GET", 200, None),
    ],
)
def test_a_redirect_is_followed_as_its_status_says(
    method: str, status: int, expected: tuple[str, str, bytes] | None
) -> None:
    response = received(b"HTTP/1.1 %d X\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n" % status)

    assert next_request(method, URL, b"body", response) == expected


def test_a_redirect_may_name_another_server() -> None:
    response = received(b"HTTP/1.1 302 X\r\nLocation: http://[::1]:1/x?y\r\n\r\n")

    assert next_request("GET", URL, b"", response) == ("GET", "http://[::1]:1/x?y", b"")


def test_a_redirect_without_location_is_the_answer() -> None:
    assert next_request("GET", URL, b"", received(b"HTTP/1.1 302 X\r\n\r\n")) is None


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, b"", ""),
        (204, b"", "HTTP status code 204"),
        (503, b"\n", "HTTP status code 503"),
        (503, b"xds: no answer\nmore", "HTTP status code 503: xds: no answer; more"),
        (503, b"\xff", "HTTP status code 503: \ufffd"),
        (503, b"a\r\n\x1b[31mred", "HTTP status code 503: a ;  [31mred"),
    ],
)
def test_s2_why_it_is_not_ready_is_in_the_body(status: int, body: bytes, reason: str) -> None:
    response = Response()
    response.status, response.body = status, bytearray(body)

    assert not_ready_reason(response) == reason


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, ""),
        (399, ""),
        (404, ""),
        (400, "received unsuccessful status code 400: text"),
        (503, "received unsuccessful status code 503: text"),
    ],
)
def test_a_request_fails_from_400_up_except_when_not_found(status: int, expected: str) -> None:
    response = Response()
    response.status, response.body = status, bytearray(b"text")

    assert failure(response) == expected


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: " + "9" * 5000,
        "Content-Length: 99999999999",
        "Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n",
        "Transfer-Encoding: chunked\r\n\r\n" + "f" * 40 + "\r\n",
    ],
)
def test_a_body_without_measure_is_refused(head: str) -> None:
    with pytest.raises(MessageError):
        Response().feed(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\nx".encode())


def test_a_body_that_does_not_end_is_refused() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 200 OK\r\n\r\n")

    response.feed(bytes(1 << 26))

    with pytest.raises(MessageError, match="expected a body of at most"):
        response.feed(b"x")


def test_headers_that_do_not_end_are_refused() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 200 OK\r\n")

    with pytest.raises(MessageError, match="expected headers of at most"):
        response.feed((b"Same: " + b"x" * 10_000 + b"\r\n") * 100)


def test_a_redirect_to_no_url_is_an_error() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n")

    with pytest.raises(MessageError, match="expected a URL"):
        next_request("GET", "http://localhost/", b"", response)


def test_a_port_of_many_digits_is_no_port() -> None:
    with pytest.raises(MessageError, match="expected a port"):
        parse_url("http://localhost:" + "1" * 5000)


@pytest.mark.parametrize(
    ("reason", "rest"),
    [
        ("HTTP status code 503: no names; not ready for 1.5s", "HTTP status code 503: no names"),
        ("HTTP status code 503: no names", "HTTP status code 503: no names"),
        ("", ""),
    ],
)
def test_a_reason_lasts_however_long_it_has(reason: str, rest: str) -> None:
    assert lasting(reason) == rest
