"""Modules over HTTP. Sections 3.6 to 3.8, T-W2, T-W7, T-W8, T-W11, T-W12."""

import asyncio
import gzip
import hashlib
import os
import stat
from pathlib import Path

import pytest
from aiohttp import web

from agent.wasm.cache import directory_of
from agent.wasm.order import Refused
from tests.fakes.archives import tar
from tests.fakes.fetching import Names, fetching
from tests.fakes.limits import no_more_bytes
from tests.fakes.wasm import MODULE
from tests.fakes.web import Answer, Pages, hang, server_context, web_server

CHECKSUM = hashlib.sha256(MODULE).hexdigest()


def page(body: bytes = MODULE, status: int = 200, location: str = "") -> web.Response:
    return web.Response(
        body=body, status=status, headers={"Location": location} if location else {}
    )


@pytest.mark.parametrize(
    "body",
    [MODULE, gzip.compress(MODULE), tar(("a.wasm", MODULE)), gzip.compress(tar(("a", MODULE)))],
    ids=["plain", "gzip", "tar", "tar.gz"],
)
async def test_a_module_is_unpacked_and_stored(tmp_path: Path, body: bytes) -> None:
    """T-W8: the checksum is that of the module, however it was packed."""
    pages = Pages({"/a.wasm": page(body)})
    async with web_server(pages) as port, fetching(tmp_path) as bench:
        url = f"http://127.0.0.1:{port}/a.wasm"

        assert await bench.fetched(url) == CHECKSUM

    directory = tmp_path / directory_of(url)
    (file,) = directory.iterdir()
    assert file.name == f"{CHECKSUM}.wasm"
    assert file.read_bytes() == MODULE
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755


async def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    async with web_server(Pages({"/a": page()})) as port, fetching(tmp_path) as bench:
        before = os.umask(0o077)
        try:
            await bench.fetched(f"http://127.0.0.1:{port}/a")
        finally:
            os.umask(before)

    (path,) = bench.modules()
    file = tmp_path / path
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o755


async def test_a_body_in_gzip_coding_is_unpacked_too(tmp_path: Path) -> None:
    coded = web.Response(body=gzip.compress(MODULE), headers={"Content-Encoding": "gzip"})
    async with web_server(Pages({"/a": coded})) as port, fetching(tmp_path) as bench:
        assert await bench.fetched(f"http://127.0.0.1:{port}/a") == CHECKSUM


async def test_what_is_not_as_wanted_is_not_stored(tmp_path: Path) -> None:
    """T-W2."""
    pages = Pages({"/a": page(), "/b": page(b"no module"), "/c": page(b"\0asm")})
    async with web_server(pages) as port, fetching(tmp_path) as bench:
        base = f"http://127.0.0.1:{port}"

        scheme = await bench.refused("foo://a/b")
        checksum = await bench.refused(f"{base}/a?token=hidden", "0" * 64)
        no_module = await bench.refused(f"{base}/b")
        too_short = await bench.refused(f"{base}/c")

    assert scheme == Refused("unsupported Wasm module downloading URL scheme: foo")
    assert checksum == Refused(
        f"module downloaded from {base}/a has checksum {CHECKSUM}, "
        f"which does not match: {'0' * 64}",
        "checksum_mismatched",
    )
    assert no_module == Refused(f"fetched Wasm binary from {base}/b is invalid", "fetch_failure")
    assert too_short.result == "fetch_failure"


@pytest.mark.parametrize("failure", [500, 503])
async def test_a_server_that_fails_is_asked_again(tmp_path: Path, failure: int) -> None:
    """T-W7."""
    asked = 0

    async def answer(_request: web.BaseRequest) -> web.Response:
        nonlocal asked
        asked += 1
        return page(status=failure if asked <= 3 else 200)

    async with web_server(answer) as port, fetching(tmp_path) as bench:
        await bench.fetched(f"http://127.0.0.1:{port}/a")

    assert asked == 4
    assert [round(pause) for pause in bench.pauses] == [0, 1, 1, 1]


async def test_a_connection_that_is_dropped_is_made_again(tmp_path: Path) -> None:
    asked = 0

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        response = web.StreamResponse(headers={"Content-Length": str(len(MODULE))})
        await response.prepare(request)
        await response.write(MODULE[: None if asked > 3 else 9])
        if asked <= 3 and request.transport:
            request.transport.close()
        return response

    async with web_server(answer) as port, fetching(tmp_path) as bench:
        assert await bench.fetched(f"http://127.0.0.1:{port}/a") == CHECKSUM

    assert asked == 4
    assert len(bench.pauses) == 4


async def test_a_server_that_always_fails_is_given_up(tmp_path: Path) -> None:
    """T-W7."""
    pages = Pages({"/a": page(status=500)})
    async with web_server(pages) as port, fetching(tmp_path) as bench:
        outcome = await bench.refused(f"http://127.0.0.1:{port}/a")

    assert len(pages.requests) == 5
    assert outcome == Refused(
        "wasm module download failed after 5 attempts, last error: status 500", "download_failure"
    )


@pytest.mark.parametrize("status", [404, 401, 204, 501])
async def test_another_answer_is_final(tmp_path: Path, status: int) -> None:
    pages = Pages({"/a": web.Response(status=status)})
    async with web_server(pages) as port, fetching(tmp_path) as bench:
        outcome = await bench.refused(f"http://127.0.0.1:{port}/a")

    assert len(pages.requests) == 1
    assert outcome.reason.endswith(f"after 1 attempts, last error: status {status}")


async def test_without_time_nothing_is_sent(tmp_path: Path) -> None:
    """T-W7."""
    pages = Pages({"/a": page()})
    async with web_server(pages) as port, fetching(tmp_path) as bench:
        await bench.refused(f"http://127.0.0.1:{port}/a", seconds=0)
        await bench.refused(f"http://127.0.0.1:{port}/a", seconds=-1)

    assert pages.requests == []


async def stall(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(MODULE)
    return await hang(request)


@pytest.mark.parametrize("answer", [hang, stall])
async def test_each_attempt_has_its_time(tmp_path: Path, answer: Answer) -> None:
    async with web_server(answer) as port, fetching(tmp_path, attempt_seconds=0.05) as bench:
        outcome = await bench.refused(f"http://127.0.0.1:{port}/a")

    assert outcome.reason.endswith("after 5 attempts, last error: timed out")


async def test_all_attempts_have_one_time_together(tmp_path: Path) -> None:
    async with web_server(hang) as port, fetching(tmp_path) as bench:
        outcome = await bench.refused(f"http://127.0.0.1:{port}/a", seconds=0.05)

    assert outcome.reason.endswith("after 1 attempts, last error: timed out")


async def test_a_port_that_nobody_listens_on_is_tried_again(tmp_path: Path) -> None:
    async with fetching(tmp_path) as bench:
        outcome = await bench.refused("http://127.0.0.1:1/a")

    assert "after 5 attempts, last error: " in outcome.reason
    assert "connect" in outcome.reason.lower()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"hello\r\n\r\n", "no HTTP answer: "),
        (b"", "connection was closed before the answer ended"),
    ],
)
async def test_what_is_no_answer_is_said_to_be_so(
    tmp_path: Path, answer: bytes, reason: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, fetching(tmp_path) as bench:
        port = server.sockets[0].getsockname()[1]
        outcome = await bench.refused(f"http://127.0.0.1:{port}/a")

    assert f"after 5 attempts, last error: {reason}" in outcome.reason


@pytest.mark.parametrize("url", ["http://a:99999/", "http:///a", "http://a:b/", "http://[::1"])
async def test_a_url_that_is_none_is_not_tried_again(tmp_path: Path, url: str) -> None:
    async with fetching(tmp_path) as bench:
        outcome = await bench.refused(url)

    assert "after 1 attempts, last error: " in outcome.reason
    assert "URL" in outcome.reason


async def test_a_module_that_cannot_be_stored_leaves_nothing(tmp_path: Path) -> None:
    async with web_server(Pages({"/a": page()})) as port, fetching(tmp_path) as bench:
        url = f"http://127.0.0.1:{port}/a"
        place = tmp_path / directory_of(url)
        (place / f"{CHECKSUM}.wasm" / "in the way").mkdir(parents=True)
        outcome = await bench.fetch(url)

    assert isinstance(outcome, Refused)
    assert outcome.reason.startswith(f"{tmp_path}: is a directory")
    assert [path.name for path in place.iterdir()] == [f"{CHECKSUM}.wasm"]


async def test_redirects_are_followed(tmp_path: Path) -> None:
    pages = Pages({
        "/a": page(status=302, location="/b?x=%2F"),
        "/b": page(status=307, location="c"),
        "/c": page(),
    })  # fmt: skip
    async with web_server(pages) as port, fetching(tmp_path) as bench:
        await bench.fetched(f"http://127.0.0.1:{port}/a")

    assert [request.path_qs for request in pages.requests] == ["/a", "/b?x=%2F", "/c"]


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("/a", "more than 10 redirects"),
        ("file:///etc/passwd", "expected an http or https URL"),
        ("http://169.254.169.254/latest", "address 169.254.169.254 is in 169.254.0.0/16"),
        ("http://metadata/latest", "address 169.254.169.254 is in 169.254.0.0/16"),
        ("http://[fe80::1]/", "address fe80::1 is in fe80::/10"),
        ("http://a b/", "expected an http or https URL"),
        ("http://[::1", "expected an http or https URL"),
    ],
)
async def test_a_redirect_leads_nowhere_else(tmp_path: Path, location: str, reason: str) -> None:
    """T-W12: whatever a server says, and whatever a name stands for."""
    pages = Pages({"/a": page(status=302, location=location)})
    names = {"metadata": "169.254.169.254"}
    async with web_server(pages) as port, fetching(tmp_path, names=names) as bench:
        outcome = await bench.refused(f"http://127.0.0.1:{port}/a")

    assert f"after 1 attempts, last error: {reason}" in outcome.reason


async def test_what_settings_block_is_not_contacted(tmp_path: Path) -> None:
    """T-W11."""
    pages = Pages({"/a": page()})
    async with (
        web_server(pages) as port,
        fetching(tmp_path, names={"server": "127.0.0.1"}, blocked=("127.0.0.0/8",)) as bench,
    ):
        for host in ("127.0.0.1", "server", "0.0.0.0", "[::ffff:127.0.0.1]"):
            outcome = await bench.refused(f"http://{host}:{port}/a")
            assert "127.0.0.0/8, which nothing is fetched from" in outcome.reason

    assert pages.requests == []


async def test_a_certificate_is_verified_unless_settings_say_not(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    pages = Pages({"/a": page()})
    async with web_server(pages, tls=server_context(tmp_path)) as port:
        url = f"https://127.0.0.1:{port}/a"
        async with fetching(tmp_path / "cache", attempts=1) as bench:
            outcome = await bench.refused(url)
        async with fetching(tmp_path / "cache", insecure=(f"127.0.0.1:{port}",)) as bench:
            await bench.fetched(url)
        async with fetching(tmp_path / "cache", insecure=("*",)) as bench:
            await bench.fetched(url)

    assert "last error: certificate is refused: " in outcome.reason
    assert len(pages.requests) == 2


async def test_a_proxy_is_asked_with_its_password(tmp_path: Path) -> None:
    async def proxy(request: web.BaseRequest) -> web.Response:
        seen.append((str(request.url), request.headers.get("Proxy-Authorization", "")))
        return page()

    seen: list[tuple[str, str]] = []
    async with (
        web_server(proxy) as port,
        fetching(tmp_path, environ={"HTTP_PROXY": f"http://user:password@127.0.0.1:{port}"}) as b,
    ):
        await b.fetched("http://modules.example.com/a.wasm")

    assert seen == [("http://modules.example.com/a.wasm", "Basic dXNlcjpwYXNzd29yZA==")]


async def test_a_proxy_is_not_asked_for_what_is_blocked(tmp_path: Path) -> None:
    proxy = Pages()
    async with web_server(proxy) as port:
        environ = {"HTTP_PROXY": f"http://127.0.0.1:{port}"}
        async with fetching(tmp_path, environ=environ, blocked=("10.0.0.0/8",)) as bench:
            for host in ("169.254.169.254", "[::ffff:a9fe:a9fe]", "10.0.0.1"):
                outcome = await bench.refused(f"http://{host}/a")
                assert "which nothing is fetched from" in outcome.reason

    assert proxy.requests == []


async def test_a_proxy_that_refuses_a_tunnel_is_named_without_password(tmp_path: Path) -> None:
    async def proxy(request: web.BaseRequest) -> web.Response:
        assert request.method == "CONNECT"
        return web.Response(status=407)

    async with (
        web_server(proxy) as port,
        fetching(tmp_path, environ={"HTTPS_PROXY": f"http://user:hidden@127.0.0.1:{port}"}) as b,
    ):
        outcome = await b.refused("https://modules.example.com/a.wasm")

    assert "last error: proxy answers 407" in outcome.reason


async def test_only_names_that_are_needed_are_asked_for(tmp_path: Path) -> None:
    names = Names({"server": "127.0.0.1"})
    async with web_server(Pages({"/a": page()})) as port, fetching(tmp_path, names=names) as bench:
        await bench.fetched(f"http://server:{port}/a")
        outcome = await bench.refused("http://nowhere/a")

    assert set(names.asked) == {"server", "nowhere"}
    assert "after 5 attempts" in outcome.reason


@pytest.mark.parametrize("chunked", [True, False])
async def test_no_more_is_read_than_allowed(tmp_path: Path, *, chunked: bool) -> None:
    """R-24."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        body = MODULE + b"x" * 100_000
        if not chunked:
            return page(body)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(body)
        return response

    async with web_server(answer) as port, fetching(tmp_path, max_bytes=50_000) as bench:
        outcome = await bench.refused(f"http://127.0.0.1:{port}/a")

    assert outcome.reason == (
        "module is larger than ISTIO_WASM_MAX_BINARY_SIZE_BYTES=50000; raise it"
    )


async def test_a_full_disk_is_named_and_not_tried_again(tmp_path: Path) -> None:
    pages = Pages({"/a": page(), "/b": page()})
    async with web_server(pages) as port, fetching(tmp_path) as bench:
        with no_more_bytes():
            outcome = await bench.refused(f"http://127.0.0.1:{port}/a")
        await bench.fetched(f"http://127.0.0.1:{port}/b")

    assert "file too large" in outcome.reason
    assert len(pages.requests) == 2


async def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    async with web_server(Pages({"/a": page()})) as port, fetching(tmp_path / "none") as bench:
        outcome = await bench.refused(f"http://127.0.0.1:{port}/a")

    assert outcome.reason == (
        f"{tmp_path}/none: no such file or directory; it must exist and be writable"
    )
