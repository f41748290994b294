"""Probes of a real application, from the address that capture exempts."""

import asyncio
import gzip
import logging
import socket

import pytest
from aiohttp import web

from agent.status.probes import GrpcProbe, HttpProbe, Probe, TcpProbe
from tests.fakes.health import NOT_SERVING, SERVING, Health, health_server
from tests.fakes.probed import PATH, page, probed, probing
from tests.fakes.web import Pages, web_server


@pytest.mark.parametrize("path", ["/app-health/other/readyz", "/app-lifecycle/", "/app-health/x"])
async def test_an_unknown_prober_is_a_400(path: str) -> None:
    async with probing(TcpProbe(1)) as status:
        response = await status.ask(path)

    assert response.status == 400
    assert response.body == f"app prober config does not exists for {path}".encode()


async def test_the_application_is_asked_from_the_exempt_address() -> None:
    """cases.md P8."""
    pages = Pages({"/ready": page(text="fine")})
    async with web_server(pages) as port:
        response = await probed(HttpProbe("/ready?a=b", port))

    assert (response.status, response.body) == (200, b"fine")
    assert pages.requests[0].raw_path == "/ready?a=b"
    assert pages.requests[0].remote == "127.0.0.6"


async def test_the_application_sees_what_the_kubelet_sent() -> None:
    """cases.md P4, P5."""
    pages = Pages({"/": page()})
    async with web_server(pages) as port, probing(HttpProbe("/", port)) as status:
        await status.ask(PATH, headers=(("Some-Header", "some-value"),), method="POST", body=b"x")
        await status.ask(PATH, headers=(("Host", "wiki"), ("Connection", "keep-alive")))

    first, second = pages.requests
    assert first.method == "GET"
    assert dict(first.headers) == {
        "Host": f"127.0.0.1:{port}",
        "Some-Header": "some-value",
        "Connection": "close",
        "User-Agent": "mesh-agent",
        "Accept-Encoding": "gzip",
    }
    assert second.headers["Host"] == "wiki"
    assert second.headers.getall("Connection") == ["close"]


@pytest.mark.parametrize("code", [200, 204, 226, 400, 404, 418, 451, 500, 503, 599])
async def test_a_status_is_relayed(code: int) -> None:
    async with web_server(Pages({"/": page(code)})) as port:
        assert (await probed(HttpProbe("/", port))).status == code


@pytest.mark.parametrize("code", [300, 301, 302, 303, 304, 305, 307, 308, 399])
async def test_a_redirect_without_a_way_is_a_success_without_body(code: int) -> None:
    async with web_server(Pages({"/": page(code, "" if code == 304 else "moved")})) as port:
        response = await probed(HttpProbe("/", port))

    assert (response.status, response.body) == (200, b"")


async def test_a_redirect_on_the_same_host_is_followed_with_host_and_referer() -> None:
    """cases.md P1."""
    pages = Pages({"/a": page(302, location="/b"), "/b": page(text="here")})
    async with web_server(pages) as port, probing(HttpProbe("/a", port)) as status:
        response = await status.ask(PATH, headers=(("Host", "wiki"), ("X", "y")))

    assert (response.status, response.body) == (200, b"here")
    assert [request.headers["Host"] for request in pages.requests] == ["wiki", "wiki"]
    assert pages.requests[1].headers["Referer"] == f"http://127.0.0.1:{port}/a"
    assert pages.requests[1].headers["X"] == "y"


async def test_a_redirect_to_another_port_of_the_host_gets_that_host() -> None:
    there = Pages({"/b": page(text="there")})
    async with web_server(there) as other:
        here = Pages({"/a": page(307, location=f"http://127.0.0.1:{other}/b")})
        async with web_server(here) as port, probing(HttpProbe("/a", port)) as status:
            response = await status.ask(PATH, headers=(("Host", "wiki"),))

    assert response.body == b"there"
    assert there.requests[0].headers["Host"] == f"127.0.0.1:{other}"


async def test_another_host_is_never_contacted() -> None:
    remote = Pages({"/": page()})
    async with web_server(remote, host="127.0.0.2") as other:
        here = Pages({"/": page(302, location=f"http://127.0.0.2:{other}/")})
        async with web_server(here) as port:
            response = await probed(HttpProbe("/", port))

    assert (response.status, response.body) == (200, b"")
    assert remote.requests == []


@pytest.mark.parametrize(("hops", "status"), [(9, 200), (10, 500)])
async def test_ten_requests_are_enough(hops: int, status: int) -> None:
    pages = Pages({f"/{hop}": page(302, location=f"/{hop + 1}") for hop in range(hops)})
    pages.pages[f"/{hops}"] = page(text="end")
    async with web_server(pages) as port:
        response = await probed(HttpProbe("/0", port))

    assert response.status == status
    assert len(pages.requests) == 10


@pytest.mark.parametrize("location", ["ftp://127.0.0.1/", "http://127.0.0.1:99999/", "/%zz"])
async def test_a_redirect_that_cannot_be_followed_is_a_failure(location: str) -> None:
    async with web_server(Pages({"/": page(302, location=location)})) as port:
        assert (await probed(HttpProbe("/", port))).status == 500


async def test_ten_kibibytes_are_enough_and_the_connection_is_closed() -> None:
    """cases.md P11."""
    closed = asyncio.Event()

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 4096)
        finally:
            closed.set()

    async with web_server(Pages({"/": endless})) as port:
        response = await probed(HttpProbe("/", port))
        await closed.wait()

    assert (response.status, response.body) == (200, b"x" * 10240)


async def test_gzip_is_undone_only_where_we_asked_for_it() -> None:
    packed = gzip.compress(b"plain")
    answer = web.Response(body=packed, headers={"Content-Encoding": "gzip"})
    async with (
        web_server(Pages({"/": answer})) as port,
        probing(HttpProbe("/", port)) as status,
    ):
        ours = await status.ask(PATH)
        theirs = await status.ask(PATH, headers=(("Accept-Encoding", "gzip"),))

    assert ours.body == b"plain"
    assert theirs.body == packed
    assert theirs.header("content-encoding") == ""


async def test_a_timeout_before_the_answer_is_a_failure_and_after_its_head_is_not() -> None:
    async def silent(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("waits for ever")

    async def stuck(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=203)
        await response.prepare(request)
        await response.write(b"start")
        await asyncio.Event().wait()
        return response

    async with web_server(Pages({"/silent": silent, "/stuck": stuck})) as port:
        before = await probed(HttpProbe("/silent", port, timeout_seconds=0.1))
        after = await probed(HttpProbe("/stuck", port, timeout_seconds=0.1))

    assert (before.status, before.body) == (500, b"")
    assert (after.status, after.body) == (203, b"start")


async def test_a_probe_without_time_limit_ends_with_its_caller() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def silent(_: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        raise AssertionError("waits for ever")

    async with web_server(Pages({"/": silent})) as port, probing(HttpProbe("/", port)) as status:
        _, writer = await asyncio.open_connection("127.0.0.1", status.port)
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        await asked.wait()
        reset(writer)
        await left.wait()


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


@pytest.mark.parametrize("probe", [HttpProbe("/%zz", 80), HttpProbe("/", 0), HttpProbe("/", 70000)])
async def test_a_probe_that_cannot_be_made_is_a_failure(probe: Probe) -> None:
    response = await probed(probe)

    assert (response.status, response.body) == (500, b"")


@pytest.mark.parametrize("host", ["[127.0.0.1]", "::1"])
async def test_a_destination_that_cannot_be_used_is_a_failure(host: str) -> None:
    """Brackets are ours to add, and the source's family decides."""
    async with web_server(Pages({"/": page()})) as port:
        assert (await probed(HttpProbe("/", port), host=host)).status == 500


async def test_localhost_is_asked_in_the_sources_family() -> None:
    pages = Pages({"/": page()})
    async with web_server(pages) as port:
        response = await probed(HttpProbe("/", port), host="localhost")

    assert response.status == 200
    assert pages.requests[0].headers["Host"].startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("address", "source"), [("127.0.0.1", "127.0.0.6"), ("::1", "::1")], ids=["IPv4", "IPv6"]
)
async def test_a_tcp_probe_connects(address: str, source: str) -> None:
    """cases.md P8: a closed port fails."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        port = listener.getsockname()[1]
        response = await probed(TcpProbe(port), host=address, source=source)
        connection, caller = listener.accept()
        connection.close()
    refused = await probed(TcpProbe(port), host=address, source=source)

    assert [(answer.status, answer.body) for answer in (response, refused)] == [
        (200, b""),
        (500, b""),
    ]
    assert caller[0] == source


@pytest.mark.parametrize(
    ("service", "status"), [("", 200), ("foo", 200), ("sick", 500), ("unknown", 500)]
)
async def test_a_grpc_service_must_be_serving(service: str, status: int) -> None:
    health = Health({"": SERVING, "foo": SERVING, "sick": NOT_SERVING})
    async with health_server(health) as port, probing(GrpcProbe(port, service)) as server:
        response = await server.ask(PATH, headers=(("User-Agent", "kube-probe/1.30"),))

    assert (response.status, response.body) == (status, b"")
    assert health.peers[0].startswith("ipv4:127.0.0.6:")
    assert health.user_agents[0].startswith("kube-probe/1.30 grpc-")


async def test_a_grpc_server_without_health_a_silent_and_a_closed_port_fail() -> None:
    async with health_server(Health({}), implements=False) as port:
        unimplemented = await probed(GrpcProbe(port))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        silent = await probed(GrpcProbe(port, timeout_seconds=0.1))
    closed = await probed(GrpcProbe(port))
    async with web_server(Pages({"/": page()})) as port:
        not_grpc = await probed(GrpcProbe(port))

    assert {answer.status for answer in (unimplemented, silent, closed, not_grpc)} == {500}


async def test_the_outcome_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agent.status.client")
    pages = Pages({"/": page(302, location="ftp://127.0.0.1/")})
    async with web_server(pages) as port, probing(HttpProbe("/", port)) as status:
        for _ in range(3):
            await status.ask(PATH)
        pages.pages["/"] = page()
        for _ in range(3):
            await status.ask(PATH)

    ours = [record.message for record in caplog.records if record.name == "agent.status.client"]
    assert ours == [
        f"probe failed path={PATH} reason=redirect to 'ftp://127.0.0.1/': expected http or https",
        f"probe succeeded again path={PATH}",
    ]
