"""The endpoints of the status port beside readiness, over real sockets."""

import asyncio
import gzip
import json
import sys
from collections.abc import Callable

import pytest
import zstandard
from aiohttp import ClientSession

from agent.http.message import Request
from agent.status.server import StatusServer
from agent.status.settings import ScrapeSettings, StatusSettings
from tests.fakes.status import Agent, content_types, status_server

LOCAL_ONLY = b"Only requests from localhost are allowed\n"
UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.decompress,
    "zstd": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}


@pytest.mark.parametrize("path", ["/quitquitquit", "/drain"])
@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD"])
async def test_control_endpoints_take_post_only(path: str, method: str) -> None:
    async with status_server() as status:
        response = await status.ask(path, method=method)
        calls = status.agent.calls

    assert response.status == 405
    assert response.header("allow") == "POST"
    assert response.body == (b"" if method == "HEAD" else b"Method Not Allowed\n")
    assert content_types(response) == ("text/plain; charset=utf-8", "nosniff")
    assert calls == []


@pytest.mark.parametrize(("path", "call"), [("/quitquitquit", "quit"), ("/drain", "drain")])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_control_endpoints_answer_ok_and_act(path: str, call: str, host: str) -> None:
    async with status_server() as status:
        response = await status.ask(path, method="POST", host=host, body=b"{}")
        calls = status.agent.calls

    assert (response.status, response.body) == (200, b"OK")
    assert calls == [call]


async def test_the_agent_is_ended_when_its_answer_was_handed_over() -> None:
    """D3; who calls what follows a reply is tested with the server of HTTP."""
    agent = Agent()
    settings = StatusSettings(0, "127.0.0.1", 1, envoy_enabled=False)
    server = StatusServer(settings, 15020, agent.hooks(), agent.metrics)

    reply = await server.handle(Request("POST", "/quitquitquit", peer="127.0.0.1"))

    assert (reply.status, agent.calls) == (200, [])
    assert reply.then
    reply.then()
    assert agent.calls == ["quit"]


async def test_drain_answers_when_envoy_was_asked() -> None:
    asked = asyncio.Event()

    class SlowAgent(Agent):
        async def drain(self) -> None:
            await asked.wait()
            await super().drain()

    async with status_server(agent=SlowAgent()) as status, asyncio.TaskGroup() as tasks:
        answer = tasks.create_task(status.ask("/drain", method="POST"))
        await status.ask("/healthz/ready")
        assert not answer.done()
        asked.set()
        assert (await answer).status == 200

    assert status.agent.calls == ["drain"]


@pytest.mark.parametrize(
    "path", ["/quitquitquit", "/drain", "/debug/ndsz", "/debug/pprof/", "/debug/pprof/cmdline"]
)
async def test_what_envoy_passes_through_is_not_local(path: str) -> None:
    """The peer is judged before the method (D9)."""
    async with status_server() as status:
        responses = [
            await status.ask(path, method=method, source="127.0.0.6") for method in ("GET", "POST")
        ]
        calls = status.agent.calls

    assert [(response.status, response.body) for response in responses] == [(403, LOCAL_ONLY)] * 2
    assert content_types(responses[0]) == ("text/plain; charset=utf-8", "nosniff")
    assert calls == []


async def test_no_header_makes_a_peer_local() -> None:
    async with status_server() as status:
        response = await status.ask(
            "/quitquitquit",
            method="POST",
            source="127.0.0.6",
            headers=(("X-Forwarded-For", "127.0.0.1"), ("Forwarded", "for=127.0.0.1")),
        )

    assert response.status == 403


async def test_metrics_are_for_anyone_unless_they_are_local() -> None:
    private = ScrapeSettings(envoy_port=None, localhost_only=True)
    async with status_server() as open_status, status_server(scrape=private) as status:
        answers = [
            (await server.ask(path, source=source)).status
            for server, source in (
                (open_status, "127.0.0.6"),
                (status, "127.0.0.6"),
                (status, None),
            )
            for path in ("/metrics", "/stats/prometheus")
        ]
        # What comes over mutual TLS has the name that Prometheus knows the pod by.
        named = await status.ask("/metrics", headers=(("Host", "web.shop.svc:15091"),))

    assert answers == [200, 200, 403, 403, 200, 200]
    assert named.status == 200


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/healthz/ready/../../quitquitquit", "/quitquitquit"),
        ("/healthz/ready/../../quitquitquit?a=/../b", "/quitquitquit?a=/../b"),
        ("/healthz/ready/./../../drain", "/drain"),
        ("//quitquitquit", "/quitquitquit"),
        ("/app-health", "/app-health/"),
    ],
)
async def test_an_unclean_path_is_redirected_and_nothing_is_done(
    target: str, location: str
) -> None:
    async with status_server() as status:
        response = await status.ask(target, method="POST")
        calls = status.agent.calls

    assert (response.status, response.header("location")) == (307, location)
    assert calls == []


@pytest.mark.parametrize(
    "target",
    [
        "/healthz/ready/%2e%2e/%2e%2e/quitquitquit",
        "/healthz/ready%2f..%2f..%2fquitquitquit",
        "/healthz%2fready",
        "/quitquitquit%00",
        "/unknown",
        "/metrics/",
    ],
)
async def test_an_encoded_path_leads_nowhere(target: str) -> None:
    async with status_server() as status:
        response = await status.ask(target, method="POST")
        calls = status.agent.calls

    assert (response.status, response.body) == (404, b"404 page not found\n")
    assert content_types(response) == ("text/plain; charset=utf-8", "nosniff")
    assert calls == []


async def test_the_name_table_is_empty_without_a_dns_server() -> None:
    async with status_server() as status:
        response = await status.ask("/debug/ndsz")

    assert (response.status, response.body) == (404, b"{}")
    assert content_types(response) == ("application/json", "")


async def test_profiling_shows_the_command_line_and_can_be_off() -> None:
    async with status_server() as status, status_server(profiling=False) as without:
        redirect = await status.ask("//debug/pprof/cmdline")
        shown = await status.ask(redirect.header("location"))
        index = await status.ask("/debug/pprof/")
        unknown = await status.ask("/debug/pprof/heap")
        off = await without.ask("/debug/pprof/cmdline")

    assert shown.status == 200
    assert shown.body == "\0".join(sys.argv).encode()
    assert b"cmdline" in index.body
    assert (unknown.status, off.status) == (404, 404)


async def test_probes_that_nobody_configured_are_a_line_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with status_server() as status:
        answers = [
            (await status.ask(f"/app-health/{number}/readyz")).status for number in range(20)
        ]

    assert answers == [400] * 20
    assert caplog.messages == ["no probe is configured for path='/app-health/0/readyz'"]


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("", ""),
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, zstd", "zstd"),
        ("gzip, zstd;q=0.5", "gzip"),
    ],
)
async def test_long_bodies_are_compressed_for_those_who_accept_it(
    accepted: str, coding: str
) -> None:
    headers = (("Accept-Encoding", accepted),) if accepted else ()
    async with status_server() as status:
        answer = await status.ask("/metrics", headers=headers)
        short = await status.ask("/debug/pprof/", headers=headers)
        head = await status.ask("/metrics", method="HEAD", headers=headers)

    assert answer.header("content-encoding") == coding
    assert b"istio_agent_scrapes_total 1" in UNPACK[coding](answer.body)
    assert short.header("content-encoding") == ""
    assert (head.status, head.body, head.header("content-encoding")) == (200, b"", "")
    assert {each.header("vary") for each in (answer, short, head)} == {"Accept-Encoding"}


async def test_a_refused_request_gets_the_common_headers_too() -> None:
    async with status_server() as status:
        reader, writer = await asyncio.open_connection("127.0.0.1", status.port)
        writer.write(b"nonsense\r\n\r\n")
        raw = await reader.read()
        writer.close()

    assert b"\r\nVary: Accept-Encoding\r\n" in raw


async def test_a_client_of_another_make_understands_it() -> None:
    """The server is our own; aiohttp's client is not."""
    async with status_server(envoy_enabled=False) as status, ClientSession() as session:
        base = f"http://127.0.0.1:{status.port}"
        for _ in range(3):
            async with session.get(f"{base}/healthz/ready") as ready:
                assert ready.status == 200
            async with session.get(f"{base}/metrics") as metrics:
                assert "istio_agent_scrapes_total" in await metrics.text()
            async with session.post(f"{base}/drain", data=b"x" * 100) as drain:
                assert await drain.text() == "OK"


async def test_a_part_of_the_agent_shows_this_pod_what_it_says_of_itself() -> None:
    agent = Agent()
    agent.documents["drain"] = lambda: {"state": "running"}
    async with status_server(agent=agent) as status:
        shown = await status.ask("/debug/drain")
        missing = await status.ask("/debug/ndsz")

    assert (shown.status, json.loads(shown.body)) == (200, {"state": "running"})
    assert shown.header("content-type") == "application/json"
    assert (missing.status, missing.body) == (404, b"{}")


async def test_a_part_may_take_its_time_or_have_nothing_to_show_yet() -> None:
    """Source: status-lifecycle.md section 3.8."""

    async def table() -> object:
        await asyncio.sleep(0)
        return shown.pop()

    shown: list[object] = [{"table": {}}, None]
    agent = Agent()
    agent.documents["ndsz"] = table
    async with status_server(agent=agent) as status:
        missing = await status.ask("/debug/ndsz")
        found = await status.ask("/debug/ndsz")

    assert (missing.status, missing.body) == (404, b"{}")
    assert (found.status, json.loads(found.body)) == (200, {"table": {}})
