from collections.abc import AsyncGenerator

import pytest

from agent.http.message import (
    HttpError,
    Reply,
    Request,
    Response,
    accepts_json,
    choose_encoding,
    clean_path,
    decode_segments,
    frame,
    join_host_port,
    leaves_open,
    may_ask_again,
    render_head,
    render_request,
    split_host_port,
)


async def pieces() -> AsyncGenerator[bytes, None]:
    yield b"x"


def test_a_request_knows_path_query_and_headers() -> None:
    request = Request("GET", "/a/b?c=d?e", (("A", "1"), ("a", "2")))

    assert (request.path, request.query) == ("/a/b", "c=d?e")
    assert (request.header("a"), request.header("b")) == ("1", "")


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://host:1/a", "/a"),
        ("http://host", "/"),
        ("/a://b", "/a://b"),
        ("host:1", "host:1"),
        ("*", "*"),
        ("/?x=http://y/z", "/"),
    ],
)
def test_an_absolute_target_loses_its_authority(target: str, path: str) -> None:
    assert Request("GET", target).path == path


def test_a_response_gives_the_first_value_of_a_header() -> None:
    response = Response(200, (("X", "1"), ("x", "2")), b"")

    assert response.header("x") == "1"


def test_an_error_is_one_line_with_its_reason_apart() -> None:
    error = HttpError("GET http://a", "connection refused")

    assert str(error) == "GET http://a: connection refused"
    assert error.reason == "connection refused"


@pytest.mark.parametrize(
    ("accepted", "is_json"),
    [
        ("application/json", True),
        ("text/html, Application/JSON ;q=0.5", True),
        ("", False),
        ("*/*", False),
        ("application/json-seq", False),
    ],
)
def test_json_is_asked_for_by_name(accepted: str, is_json: bool) -> None:  # noqa: FBT001 -- a column
    assert accepts_json(accepted) is is_json


def test_heads_are_rendered_in_order() -> None:
    assert render_head(200, [("A", "é"), ("B", "")]) == b"HTTP/1.1 200 OK\r\nA: \xe9\r\nB: \r\n\r\n"
    assert render_head(299, []) == b"HTTP/1.1 299 \r\n\r\n"
    assert render_request("GET", "/a?b", [("A", "1")]) == b"GET /a?b HTTP/1.1\r\nA: 1\r\n\r\n"


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "a\0b"])
def test_a_value_cannot_end_its_line(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        render_head(200, [("A", value)])


@pytest.mark.parametrize("target", ["", "a", "/a b", "/a\r\nb", "/\x7f"])
def test_a_target_cannot_end_its_line(target: str) -> None:
    with pytest.raises(ValueError, match="expected a path from '/' on"):
        render_request("GET", target, [])


NEW = Request("GET", "/")
OLD = Request("GET", "/", version="1.0", keep_alive=True)
LAST = Request("GET", "/", keep_alive=False)
HEAD = Request("HEAD", "/")


@pytest.mark.parametrize(
    ("request_", "reply", "headers", "has_body", "goes_on"),
    [
        (NEW, Reply(200, b"ab"), {"Content-Length": "2"}, True, True),
        (OLD, Reply(200), {"Content-Length": "0", "Connection": "keep-alive"}, True, True),
        (LAST, Reply(200, b"a"), {"Content-Length": "1", "Connection": "close"}, True, False),
        (HEAD, Reply(200, b"ab"), {"Content-Length": "2"}, False, True),
        (NEW, Reply(204), {}, False, True),
        (NEW, Reply(200, pieces()), {"Transfer-Encoding": "chunked"}, True, True),
        (NEW, Reply(304, pieces()), {}, False, True),
        (OLD, Reply(200, pieces()), {"Connection": "close"}, True, False),
    ],
)
def test_a_reply_is_framed_for_its_client(
    request_: Request,
    reply: Reply,
    headers: dict[str, str],
    has_body: bool,  # noqa: FBT001 -- a column of the table
    goes_on: bool,  # noqa: FBT001 -- a column of the table
) -> None:
    framing = frame(request_, reply, is_closing=False)

    assert dict(framing.headers) == headers
    assert framing.has_body == has_body
    assert framing.goes_on == goes_on
    assert framing.is_chunked == ("Transfer-Encoding" in headers)


def test_a_closing_server_says_so() -> None:
    framing = frame(NEW, Reply(200), is_closing=True)

    assert not framing.goes_on
    assert ("Connection", "close") in framing.headers


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("", None),
        ("gzip", "gzip"),
        ("GZIP ; Q=0.5", "gzip"),
        ("gzip;q=0", None),
        ("gzip;q=0.000", None),
        ("gzip;q=high", None),
        ("gzip;level=1", "gzip"),
        ("*", None),
        ("deflate, br, nonsense,,", None),
        ("zstd", "zstd"),
        ("gzip, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.9", "gzip"),
        ("br;q=1, gzip;q=0.1", "gzip"),
    ],
)
def test_the_highest_q_of_what_is_offered_wins(accepted: str, coding: str | None) -> None:
    assert choose_encoding(accepted, ("zstd", "gzip")) == coding


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("/", "/"),
        ("/a/b", "/a/b"),
        ("/a/", "/a/"),
        ("//", "/"),
        ("//a", "/a"),
        ("/a//b", "/a/b"),
        ("/a/./b", "/a/b"),
        ("/a/.", "/a/"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/../a", "/a"),
        ("/a/../../b/", "/b/"),
        ("/healthz/ready/../../quitquitquit", "/quitquitquit"),
        ("/%2e%2e/a", "/%2e%2e/a"),
        ("/...", "/..."),
        ("", "/"),
        ("*", "/*"),
    ],
)
def test_paths_are_cleaned_of_literal_dots_and_empty_segments(path: str, clean: str) -> None:
    assert clean_path(path) == clean


@pytest.mark.parametrize(
    ("path", "segments"),
    [
        ("/a/b", ("a", "b")),
        ("/a/", ("a", "")),
        ("/%6detrics", ("metrics",)),
        ("/a%2Fb", ("a/b",)),
        ("/%2e%2e/a", ("..", "a")),
        ("/%c3%a9", ("é",)),
        ("/%zz%4", ("%zz%4",)),
        ("/%ff", ("\udcff",)),
    ],
)
def test_each_segment_is_decoded_by_itself(path: str, segments: tuple[str, ...]) -> None:
    assert decode_segments(path) == segments


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a:1", ("a", "1")),
        ("[::1]:80", ("::1", "80")),
        ("a", None),
        ("[::1]", None),
        ("::1", None),
        (":80", ("", "80")),
        ("a:", ("a", "")),
        ("", None),
    ],
)
def test_host_and_port_are_parted(text: str, parts: tuple[str, str] | None) -> None:
    assert split_host_port(text) == parts


def test_an_ipv6_literal_gets_brackets() -> None:
    assert join_host_port("::1", 80) == "[::1]:80"
    assert join_host_port("10.0.0.1", 80) == "10.0.0.1:80"


@pytest.mark.parametrize(
    ("values", "is_open"),
    [
        ((), True),
        (("keep-alive",), True),
        (("closed",), True),
        (("close",), False),
        (("keep-alive, Close",), False),
        (("x", " close "), False),
    ],
)
def test_a_connection_is_left_open_unless_a_header_says_close(
    values: tuple[str, ...], *, is_open: bool
) -> None:
    assert leaves_open([("Other", "close"), *(("connection", each) for each in values)]) is is_open


def test_only_what_changes_nothing_and_has_no_answer_is_asked_again() -> None:
    assert may_ask_again("GET", has_begun=False)
    assert not may_ask_again("GET", has_begun=True)
    assert not may_ask_again("POST", has_begun=False)
