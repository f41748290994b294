"""Connections that are kept, against servers that count them and end them in every way."""

import asyncio
from pathlib import Path

import pytest

from agent.http.client import HttpError, stream
from agent.http.kept.client import Kept
from agent.http.message import Headers
from agent.http.tls.client import trusting_context
from tests.fakes.counted import OK, Application, counted, open_sockets
from tests.fakes.http2 import http2_server, status
from tests.fakes.web import server_context
from tests.waiting import until

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


async def ask(
    application: Application,
    kept: Kept,
    *,
    method: str = "GET",
    headers: Headers = (),
    source: str | None = None,
    seconds: float = 5,
) -> bytes:
    async with stream(
        method,
        "127.0.0.1",
        application.port,
        "/",
        headers=headers,
        timeout_seconds=seconds,
        source=source,
        kept=kept,
    ) as incoming:
        return b"".join([piece async for piece in incoming])


@pytest.mark.parametrize("answer", [OK, CHUNKED, b"HTTP/1.1 204 No Content\r\n\r\n"])
async def test_a_connection_serves_one_request_after_the_other(answer: bytes) -> None:
    kept = Kept()
    async with counted(answer) as application:
        bodies = [await ask(application, kept) for _ in range(5)]

        assert len(set(bodies)) == 1
        assert (len(application.peers), len(application.requests), kept.count) == (1, 5, 1)
        assert b"connection:" not in application.requests[0].lower()
        kept.close()


async def test_all_is_closed_at_the_end_and_what_comes_later() -> None:
    kept = Kept()
    async with counted() as application:
        before = open_sockets()
        await ask(application, kept)
        kept.close()
        await ask(application, kept)
        await until(lambda: not application.writers)

        assert (len(application.peers), kept.count, open_sockets()) == (2, 0, before)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 Not Asked For\r\n\r\n",
        OK + b"?",
    ],
)
async def test_a_connection_is_not_kept_after_such_an_answer(answer: bytes) -> None:
    kept = Kept()
    async with counted(answer) as application:
        bodies = [await ask(application, kept) for _ in range(2)]
        await until(lambda: not application.writers)

    assert (bodies, len(application.peers), kept.count) == ([b"ok", b"ok"], 2, 0)


async def test_an_answer_that_ends_with_its_connection_is_taken() -> None:
    kept = Kept()
    async with counted(b"HTTP/1.1 200 OK\r\n\r\nok") as application:
        application.closes_after = {1, 2}
        bodies = [await ask(application, kept) for _ in range(2)]

    assert (bodies, len(application.peers)) == ([b"ok", b"ok"], 2)


async def test_http_1_0_may_say_that_it_goes_on() -> None:
    kept = Kept()
    answer = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"
    async with counted(answer) as application:
        assert [await ask(application, kept) for _ in range(2)] == [b"ok", b"ok"]
        assert len(application.peers) == 1
        kept.close()


async def test_a_caller_that_wants_it_closed_neither_uses_nor_leaves_one() -> None:
    kept = Kept()
    async with counted() as application:
        await ask(application, kept)
        await ask(application, kept, headers=(("Connection", "Close"),))

        assert (len(application.peers), kept.count) == (2, 1)
        kept.close()


async def test_a_connection_from_another_address_is_another_one() -> None:
    """status-lifecycle.md section 5.3: capture lets probes pass by their source."""
    kept = Kept()
    async with counted() as application:
        for source in ("127.0.0.6", None, "127.0.0.6"):
            await ask(application, kept, source=source)

        assert application.peers == ["127.0.0.6", "127.0.0.1"]
        kept.close()


async def test_a_connection_that_the_server_ends_is_gone_at_once() -> None:
    kept = Kept()
    async with counted() as application:
        before = open_sockets()
        await ask(application, kept)
        application.hang_up()
        await until(lambda: not kept.count)
        await until(lambda: not application.writers)

        assert open_sockets() == before
        assert await ask(application, kept) == b"ok"
        assert len(application.peers) == 2
        kept.close()


async def test_a_connection_over_which_something_comes_unasked_is_gone_at_once() -> None:
    kept = Kept()
    async with counted() as application:
        await ask(application, kept)
        application.writers[0].write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        await until(lambda: not kept.count)

        assert await ask(application, kept) == b"ok"
        kept.close()


async def test_a_server_that_closes_idle_connections_costs_no_answer() -> None:
    """Whenever it does: before the next request, with it, or behind each answer."""
    kept = Kept()
    async with counted() as application:
        application.closes_after = set(range(1, 100, 3))
        application.most_per_connection = 2
        bodies = [await ask(application, kept) for _ in range(40)]
        kept.close()

    assert bodies == [b"ok"] * 40


async def test_a_request_is_sent_twice_at_most_and_never_one_that_changes_something() -> None:
    kept = Kept()
    async with counted() as application:
        await ask(application, kept)
        application.drops = {2, 3}
        with pytest.raises(HttpError, match=r"connection (closed|reset)"):
            await ask(application, kept)
        assert len(application.requests) == 3

        await ask(application, kept)
        application.drops = {5}
        with pytest.raises(HttpError, match=r"connection (closed|reset)"):
            await ask(application, kept, method="POST")
        assert len(application.requests) == 5


async def test_an_answer_that_breaks_off_is_not_asked_for_again() -> None:
    kept = Kept()
    async with counted(OK, b"HTTP/1.1 2") as application:
        await ask(application, kept)
        application.closes_after = {2}
        with pytest.raises(HttpError, match="connection closed before an answer"):
            await ask(application, kept)

        assert len(application.requests) == 2


async def test_a_connection_is_not_kept_after_a_time_out() -> None:
    kept = Kept()
    async with counted(OK, b"", OK) as application:
        await ask(application, kept)
        with pytest.raises(HttpError, match="timed out"):
            await ask(application, kept, seconds=0.05)
        await until(lambda: not application.writers)

        assert (len(application.requests), kept.count) == (2, 0)


async def test_who_leaves_in_the_middle_leaves_no_connection() -> None:
    kept = Kept()
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok"
    async with counted(half) as application:
        before = open_sockets()
        async with stream(
            "GET", "127.0.0.1", application.port, "/", timeout_seconds=5, kept=kept
        ) as incoming:
            assert await anext(incoming) == b"ok"
        asking = asyncio.ensure_future(ask(application, kept))
        await until(lambda: len(application.requests) == 2)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: not application.writers)

        assert (kept.count, open_sockets()) == (0, before)


async def test_of_two_at_once_one_is_kept() -> None:
    kept = Kept()
    async with counted() as application:
        await asyncio.gather(*(ask(application, kept) for _ in range(5)))
        await until(lambda: len(application.writers) == 1)

        assert (len(application.peers), kept.count) == (5, 1)
        kept.close()


async def test_a_connection_is_closed_when_nobody_has_asked_for_long() -> None:
    kept = Kept(idle_seconds=0.02)
    async with counted() as application:
        await ask(application, kept)
        await until(lambda: not application.writers)

        assert kept.count == 0


async def test_large_answers_leave_nothing_behind_them() -> None:
    kept = Kept()
    sizes = [0, 1, 65_400, 65_536, 131_072, 1_000_000]
    answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n + b"x" * n for n in sizes]
    async with counted(*answers) as application:
        found = [len(await ask(application, kept)) for _ in sizes]
        kept.close()

    assert found == sizes


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_a_connection_with_tls_is_kept_too(tmp_path: Path, protocol: str) -> None:
    kept, context = Kept(), server_context(tmp_path, protocol)
    if protocol == "h2":
        async with http2_server(status(200, b"ok"), context) as server:
            await ask_over_tls(server.port, kept, protocol)
            assert [each.stream for each in server.asked] == [1, 3, 5]
            kept.close()
        return
    async with counted(tls=context) as application:
        await ask_over_tls(application.port, kept, protocol)
        assert (len(application.peers), len(application.requests)) == (1, 3)
        kept.close()


async def test_a_connection_of_http_2_that_the_server_ends_is_replaced(tmp_path: Path) -> None:
    kept = Kept()
    async with http2_server(status(200, b"ok"), server_context(tmp_path, "h2")) as server:
        await ask_over_tls(server.port, kept, "h2", count=2)
        for connection in server.serving:
            connection.cancel()
        await until(lambda: kept.count == 0)
        await ask_over_tls(server.port, kept, "h2", count=2)

        assert [each.stream for each in server.asked] == [1, 3, 1, 3]
        kept.close()


async def ask_over_tls(port: int, kept: Kept, protocol: str, *, count: int = 3) -> None:
    for _ in range(count):
        async with stream(
            "GET",
            "127.0.0.1",
            port,
            "/",
            timeout_seconds=5,
            tls=trusting_context(protocol),
            kept=kept,
        ) as incoming:
            assert [piece async for piece in incoming] == [b"ok"]
