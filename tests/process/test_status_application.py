"""Checks of real applications. Source: xds-identity-dns.md section 9.2."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from agent.status.application.client import find_problem
from agent.status.application.settings import (
    Check,
    ExecCheck,
    GrpcCheck,
    HealthSettings,
    HttpCheck,
    TcpCheck,
)
from tests.fakes.health import NOT_SERVING, SERVING, Health, health_server
from tests.fakes.http2 import http2_server, status
from tests.fakes.limits import descriptors_left
from tests.fakes.ports import LOCAL, closed_port, listening
from tests.fakes.web import Pages, server_context, web_server
from tests.waiting import until


async def problem_of(check: Check, *, timeout_seconds: float = 5.0) -> str | None:
    return await find_problem(HealthSettings(check, timeout_seconds=timeout_seconds))


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (200, None),
        (399, None),
        (400, "status 400, expected 200 to 399"),
        (500, "status 500, expected 200 to 399"),
    ],
)
async def test_http_is_healthy_from_200_to_399(code: int, problem: str | None) -> None:
    """T-H1."""
    pages = Pages({"/ready": web.Response(status=code)})
    async with web_server(pages) as port:
        found = await problem_of(HttpCheck(LOCAL, port, "/ready?full"))

    assert found == (problem and f"GET http://{LOCAL}:{port}/ready?full: {problem}")
    request = pages.requests[0]
    assert (request.remote, request.raw_path) == ("127.0.0.6", "/ready?full")
    assert dict(request.headers) == {
        "Host": f"{LOCAL}:{port}",
        "Connection": "close",
        "User-Agent": "istio-probe/1.0",
    }


async def test_configured_headers_are_sent() -> None:
    pages = Pages({"/": web.Response()})
    headers = (("host", "shop"), ("User-Agent", "mine"), ("X", "1"), ("X", "2"), ("Trailer", "t"))
    async with web_server(pages) as port:
        assert await problem_of(HttpCheck(LOCAL, port, headers=headers)) is None

    sent = pages.requests[0].headers
    assert (sent["Host"], sent["User-Agent"], sent.getall("X")) == ("shop", "mine", ["1", "2"])
    assert "Trailer" not in sent


@pytest.mark.parametrize(
    ("location", "problem"),
    [("/there", "status 503"), ("http://127.0.0.9/", None), ("ftp://127.0.0.1/", "redirect to")],
)
async def test_redirects_are_those_of_the_kubelet(location: str, problem: str | None) -> None:
    moved = web.Response(status=302, headers={"Location": location})
    pages = Pages({"/": moved, "/there": web.Response(status=503)})
    async with web_server(pages) as port:
        found = await problem_of(HttpCheck(LOCAL, port))

    assert (problem is None) is (found is None)
    assert problem is None or problem in str(found)


async def test_https_believes_any_certificate(tmp_path: Path) -> None:
    """D-11."""
    pages = Pages({"/": web.Response()})
    async with web_server(pages, tls=server_context(tmp_path, "http/1.1")) as port:
        assert await problem_of(HttpCheck(LOCAL, port, is_tls=True)) is None


async def test_https_may_be_http_2(tmp_path: Path) -> None:
    async with http2_server(status(204), server_context(tmp_path, "h2")) as server:
        assert await problem_of(HttpCheck(LOCAL, server.port, is_tls=True)) is None

    assert server.asked[0].headers["user-agent"] == "istio-probe/1.0"


async def test_http_that_is_refused_silent_or_cannot_be_asked_is_not_healthy() -> None:
    """T-H1: refused."""
    refused = await problem_of(HttpCheck(LOCAL, port := closed_port()))
    with listening() as silent_port:
        silent = await problem_of(HttpCheck(LOCAL, silent_port), timeout_seconds=0.05)
    no_url = await problem_of(HttpCheck(LOCAL, 80, "/%zz"))

    assert refused == f"GET http://{LOCAL}:{port}/: connection refused"
    assert "timed out" in str(silent)
    assert no_url == "path '/%zz': expected no control characters and '%' with two digits"


@pytest.mark.parametrize(
    ("begin", "more", "is_healthy"),
    [
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", True),
        (b"X: ", b"x", False),
        (b"X: x", b"\r\nX: x", False),
    ],
)
async def test_an_answer_that_never_ends_does_not_hold_up_the_check(
    begin: bytes, more: bytes, *, is_healthy: bool
) -> None:
    """The head is all that counts, if it comes."""
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + begin)
        with suppress(ConnectionError):
            while True:
                writer.write(more * 10_000)
                await writer.drain()
        left.set()

    async with await asyncio.start_server(serve, LOCAL, 0) as server:
        problem = await problem_of(HttpCheck(LOCAL, server.sockets[0].getsockname()[1]))
        await left.wait()

    assert (problem is None) is is_healthy


async def test_grpc_must_be_serving() -> None:
    """T-H2, D-10: what is not SERVING has a text too."""
    health = Health({"": SERVING, "sick": NOT_SERVING})
    async with health_server(health) as port:
        assert await problem_of(GrpcCheck(LOCAL, port)) is None
        sick = await problem_of(GrpcCheck(LOCAL, port, "sick"))
        unknown = await problem_of(GrpcCheck(LOCAL, port, "other"))

    assert sick == "service 'sick' has status NOT_SERVING"
    assert unknown == f"{LOCAL}:{port}: health call failed: NOT_FOUND"
    assert health.user_agents[0].startswith("istio-probe/1.0 ")
    assert health.peers[0].startswith("ipv4:127.0.0.6:")


async def test_what_goes_wrong_with_grpc_has_a_text_of_its_own() -> None:
    """T-H2: wrong port."""
    async with health_server(Health({}), implements=False) as port:
        unimplemented = await problem_of(GrpcCheck(LOCAL, port))
    with listening() as port:
        silent = await problem_of(GrpcCheck(LOCAL, port), timeout_seconds=0.05)
    refused = await problem_of(GrpcCheck(LOCAL, closed_port()))

    assert "UNIMPLEMENTED: the server has no grpc.health.v1.Health" in str(unimplemented)
    assert "health call failed: timed out after 0.05 s" in str(silent)
    assert "connection refused" in str(refused)


async def test_tcp_is_healthy_where_a_connection_can_be_made() -> None:
    """T-H3."""
    with listening() as port:
        assert await problem_of(TcpCheck(LOCAL, port)) is None

    assert await problem_of(TcpCheck(LOCAL, port)) == f"{LOCAL}:{port}: connection refused"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (("true",), None),
        (("false",), "exit status 1"),
        (("sh", "-c", "exit 7"), "exit status 7"),
        (("sh", "-c", "kill -TERM $$"), "signal: terminated"),
        (("no-such-command",), "no-such-command: no such file in PATH"),
        (("/etc/passwd",), f"/etc/passwd: not executable by uid {os.geteuid()}"),
        (("a\0b",), "embedded null byte"),
        (("\udc80",), "\\udc80: no such file in PATH"),
    ],
)
async def test_a_command_must_end_with_status_0(
    command: tuple[str, ...], problem: str | None
) -> None:
    """T-H4."""
    assert await problem_of(ExecCheck(command)) == problem


async def test_a_command_that_takes_too_long_is_killed_with_what_it_has_started(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"

    problem = await problem_of(ExecCheck(("sh", "-c", script)), timeout_seconds=0.5)

    assert problem == "command timeout exceeded: signal: killed"
    child, shell = (int(pid) for pid in pids.read_text().split())
    await until(lambda: not is_running(shell))
    await until(lambda: not is_running(child))


def is_running(pid: int) -> bool:
    """Return whether a process lives: an orphan that is dead waits for pid 1 to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_command_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    command = (sys.executable, "-c", f"import os; os.mkfifo({str(file)!r}); open({str(file)!r})")
    task = asyncio.create_task(problem_of(ExecCheck(command)))
    await until(file.exists)

    task.cancel()
    await asyncio.wait((task,))

    assert task.cancelled()
    assert not has_children()


async def test_a_command_that_cannot_be_waited_for_is_ended() -> None:
    """A descriptor is needed for that, and there may be none left."""
    with descriptors_left(0):
        problem = await problem_of(ExecCheck(("sleep", "9")))

    assert problem == "too many open files"
    assert end_of_child() in (signal.SIGKILL, None)


async def test_a_command_gets_neither_our_streams_nor_our_signals(tmp_path: Path) -> None:
    report = tmp_path / "report"
    files = " ".join(f"/proc/$$/fd/{number}" for number in range(3))
    look = f"(readlink {files}; grep SigIgn /proc/$$/status) | cat > {report}"

    assert await problem_of(ExecCheck(("sh", "-c", look))) is None

    *streams, ignored = report.read_text().splitlines()
    assert streams == ["/dev/null"] * 3
    assert int(ignored.split()[1], 16) & 1 << signal.SIGPIPE - 1 == 0


def end_of_child() -> int | None:
    """Return how a child has ended, none if it was fetched already."""
    try:
        return os.waitpid(-1, 0)[1]
    except ChildProcessError:
        return None


def has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True
