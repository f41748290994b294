"""Probes over HTTPS, of HTTP/1.1 and HTTP/2."""

import gzip
import socket
from pathlib import Path

import pytest
from aiohttp import web
from h2.connection import H2Connection

from agent.status.probes import HttpProbe
from tests.fakes.http2 import Answer, Asked, http2_server, status
from tests.fakes.probed import PATH, page, probed, probing
from tests.fakes.web import Pages, server_context, web_server


async def test_https_believes_any_certificate(tmp_path: Path) -> None:
    pages = Pages({"/": page(text="secret")})
    async with web_server(pages, tls=server_context(tmp_path, "http/1.1")) as port:
        response = await probed(HttpProbe("/", port, is_tls=True))

    assert (response.status, response.body) == (200, b"secret")
    assert pages.requests[0].version == (1, 1)


@pytest.mark.parametrize(
    ("offers_alpn", "protocols", "chosen"),
    [
        (True, ("http/1.1",), "http/1.1"),
        (True, (), None),
        (False, ("h2", "http/1.1"), None),
    ],
)
async def test_https_is_http_1_1_where_nothing_else_is_agreed_on(
    tmp_path: Path,
    offers_alpn: bool,  # noqa: FBT001 -- a column
    protocols: tuple[str, ...],
    chosen: str | None,
) -> None:
    seen: list[str | None] = []

    async def record(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.get_extra_info("ssl_object").selected_alpn_protocol())
        return web.Response()

    context = server_context(tmp_path, *protocols)
    async with web_server(Pages({"/": record}), tls=context) as port:
        response = await probed(HttpProbe("/", port, is_tls=True), offers_alpn=offers_alpn)

    assert (response.status, seen) == (200, [chosen])


@pytest.mark.parametrize("protocols", [("h2",), ("h2", "http/1.1")])
async def test_https_is_http_2_where_the_server_can(
    tmp_path: Path, protocols: tuple[str, ...]
) -> None:
    """cases.md P3."""
    context = server_context(tmp_path, *protocols)
    async with (
        http2_server(status(203, b"over two"), context) as server,
        probing(HttpProbe("/ready?a=b", server.port, is_tls=True)) as agent,
    ):
        sent = (("Host", "wiki"), ("Connection", "keep-alive"), ("Some-Header", "some-value"))
        response = await agent.ask(PATH, headers=sent)

    assert (response.status, response.body) == (203, b"over two")
    assert server.asked[0].fields == (
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "wiki"),
        (":path", "/ready?a=b"),
        ("some-header", "some-value"),
        ("user-agent", "mesh-agent"),
        ("accept-encoding", "gzip"),
    )


def refuse(connection: H2Connection, asked: Asked) -> None:
    connection.reset_stream(asked.stream)


async def test_http_2_redirects_bodies_and_failures_are_those_of_http_1_1(tmp_path: Path) -> None:
    answers: dict[str, Answer] = {
        "/moved": status(302, location="/there"),
        "/there": status(200, gzip.compress(b"x" * 20_000), **{"content-encoding": "gzip"}),
        "/refused": refuse,
    }

    def answer(connection: H2Connection, asked: Asked) -> None:
        answers[asked.headers[":path"]](connection, asked)

    async with http2_server(answer, server_context(tmp_path, "h2")) as server:
        moved = await probed(HttpProbe("/moved", server.port, is_tls=True))
        refused = await probed(HttpProbe("/refused", server.port, is_tls=True))

    assert (moved.status, moved.body) == (200, b"x" * 10240)
    assert server.asked[1].headers["referer"] == f"https://127.0.0.1:{server.port}/moved"
    assert (refused.status, refused.body) == (500, b"")


async def test_ten_kibibytes_of_an_endless_http_2_body_are_enough(tmp_path: Path) -> None:
    def answer(connection: H2Connection, asked: Asked) -> None:
        connection.send_headers(asked.stream, [(":status", "200")])
        server.peers[-1].stream_body(b"x" * 10_000_000)

    async with http2_server(answer, server_context(tmp_path, "h2")) as server:
        response = await probed(HttpProbe("/", server.port, is_tls=True))

    assert (response.status, response.body) == (200, b"x" * 10240)


async def test_https_sends_no_name_for_an_address(tmp_path: Path) -> None:
    names: list[str | None] = []
    context = server_context(tmp_path)
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    async with web_server(Pages({"/": page()}), tls=context) as port:
        await probed(HttpProbe("/", port, is_tls=True))
        await probed(HttpProbe("/", port, is_tls=True), host="localhost")

    assert names == [None, "localhost"]


async def test_https_to_a_plain_or_silent_server_is_a_failure() -> None:
    async with web_server(Pages({"/": page()})) as port:
        plain = await probed(HttpProbe("/", port, is_tls=True))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        silent = await probed(HttpProbe("/", port, is_tls=True, timeout_seconds=0.1))

    assert (plain.status, silent.status) == (500, 500)
