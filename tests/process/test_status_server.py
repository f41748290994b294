"""The endpoints of the status port, over real sockets."""

import asyncio
import gzip
import json
import logging
import time
from contextlib import AsyncExitStack

import pytest
from aiohttp import ClientSession

from agent.http.message import Response
from agent.status.readiness import CONFIG_TARGET, LIVE_TARGET
from agent.status.settings import ScrapeSettings
from tests.fakes.status import Agent, status_server
from tests.fakes.web import Admin, web_server

LOCAL_ONLY = b"Only requests from localhost are allowed\n"


def types(response: Response) -> tuple[str, str]:
    return response.header("content-type"), response.header("x-content-type-options")


async def test_ready_is_200_and_empty_when_envoy_is_live() -> None:
    admin = Admin()
    async with web_server(admin) as port, status_server(admin_port=port) as status:
        response = await status.ask("/healthz/ready")

    assert (response.status, response.body) == (200, b"")
    assert admin.targets == [CONFIG_TARGET, LIVE_TARGET]
    assert response.header("vary") == "Accept-Encoding"


async def test_unready_is_503_with_the_reason_in_its_body() -> None:
    """cases.md R4."""
    admin = Admin()
    admin.stats = "listener_manager.lds.update_success: 1\n"
    agent = Agent()
    agent.details["xds"] = lambda: "local.yaml: line 3: expected a mapping"
    agent.details["certificates"] = lambda: None
    async with web_server(admin) as port, status_server(admin_port=port, agent=agent) as status:
        response = await status.ask("/healthz/ready")

    reason, detail, duration = response.body.decode().splitlines()
    assert response.status == 503
    assert reason == (
        "config not fully received from XDS server: cds updates: 0 successful, 0 rejected; "
        "lds updates: 1 successful, 0 rejected"
    )
    assert detail == "local.yaml: line 3: expected a mapping"
    assert duration.startswith("not ready for 0.")


async def test_the_same_is_there_as_json_with_more() -> None:
    admin = Admin()
    admin.stats = "listener_manager.lds.update_success: 1\n"
    agent = Agent()
    agent.details["xds"] = lambda: "no answer yet"
    agent.details["certificates"] = lambda: None
    plane = {"address": "istiod:15012", "state": "connecting"}
    agent.documents["control_plane"] = lambda: plane
    headers = (("Accept", "application/json"),)
    async with web_server(admin) as port, status_server(admin_port=port, agent=agent) as status:
        unready = await status.ask("/healthz/ready", headers=headers)
        admin.stats = Admin().stats
        ready = await status.ask("/healthz/ready", headers=headers)

    assert (unready.status, ready.status) == (503, 200)
    assert {types(unready), types(ready)} == {("application/json", "")}
    before, after = json.loads(unready.body), json.loads(ready.body)
    assert before["check"] == "envoy_config"
    assert before["reason"].startswith("config not fully received from XDS server: ")
    assert before["missing"] == ["cluster_manager.cds.update_success"]
    assert before["details"] == {"xds": "no answer yet"}
    assert before["control_plane"] == plane
    assert abs(before["since"] - time.time()) < 60
    assert (after["ready"], after["check"], after["missing"]) == (True, None, [])
    assert after["last_error"]["reason"] == before["reason"]
    assert after["since"] >= before["since"]


async def test_readiness_is_a_metric() -> None:
    """cases.md R4."""
    agent = Agent()
    reasons = iter(["one", "one", "two", None])
    agent.checks["dns"] = lambda: next(reasons)
    seen = []
    async with status_server(envoy_enabled=False, agent=agent) as status:
        for _ in range(4):
            await status.ask("/healthz/ready")
            seen.append("istio_agent_ready 1\n" in agent.metrics.render())

    assert seen == [False, False, False, True]
    assert 'istio_agent_readiness_failures_total{check="dns"} 2\n' in agent.metrics.render()


async def test_ready_says_what_is_wrong_all_the_same() -> None:
    """As of a changed file that was refused: the last good one stays in force."""
    agent = Agent()
    agent.details["xds"] = lambda: "b.yaml:1: is not YAML"
    agent.details["dns"] = lambda: None
    agent.details["certificates"] = lambda: "caf\udce9: refused"
    async with status_server(envoy_enabled=False, agent=agent) as status:
        response = await status.ask("/healthz/ready")

    assert response.status == 200
    assert response.body == b"b.yaml:1: is not YAML\ncaf\xe9: refused\n"
    assert types(response) == ("text/plain; charset=utf-8", "nosniff")


async def test_istiod_is_not_asked_for_where_none_is_used() -> None:
    admin = Admin()
    admin.stats = ""
    async with web_server(admin) as port, status_server(admin_port=port, is_local=True) as status:
        response = await status.ask("/healthz/ready")

    assert response.body.startswith(b"config not received from AGENT_LOCAL_XDS: cds updates: 0 ")


async def test_an_admin_port_that_does_not_answer_as_it_must_is_the_reason() -> None:
    admin = Admin()
    async with web_server(admin) as port, status_server(admin_port=port) as status:
        admin.status = 500
        before_config = await status.ask("/healthz/ready")
        admin.status, admin.stats = 200, admin.stats.replace("server.state: 0\n", "")
        before_live = await status.ask("/healthz/ready")
        admin.status = 500
        without_config_query = await status.ask("/healthz/ready")
    async with status_server() as status:
        refused = await status.ask("/healthz/ready")

    assert before_config.body.startswith(b"unexpected status 500\n")
    assert before_live.body.startswith(
        b"failed to get readiness stats: server.state is not yet updated: cluster_manager.cds"
    )
    assert without_config_query.body.startswith(
        b"failed to get readiness stats: unexpected status 500\n"
    )
    assert b": connection refused\n" in refused.body


async def test_what_was_true_of_envoy_is_not_asked_again() -> None:
    """cases.md R2, R3."""
    admin = Admin()
    async with AsyncExitStack() as envoy:
        port = await envoy.enter_async_context(web_server(admin))
        async with status_server(admin_port=port) as status:
            assert (await status.ask("/healthz/ready")).status == 200
            asked = len(admin.targets)
            await envoy.aclose()  # its admin port is gone
            assert (await status.ask("/healthz/ready")).status == 200

    assert len(admin.targets) == asked


async def test_a_pod_that_ends_is_not_ready_whatever_envoy_says() -> None:
    admin = Admin()
    async with web_server(admin) as port, status_server(admin_port=port) as status:
        assert (await status.ask("/healthz/ready")).status == 200
        status.agent.cause = "received signal: terminated"
        response = await status.ask("/healthz/ready")

    assert response.status == 503
    assert response.body.startswith(b"server is terminated: received signal: terminated\n")


async def test_further_checks_are_asked_after_envoy() -> None:
    agent = Agent()
    reasons = ["not ready"]
    agent.checks["dns"] = lambda: None
    agent.checks["grpc"] = lambda: reasons[0] if reasons else None
    async with status_server(envoy_enabled=False, agent=agent) as status:
        failing = await status.ask("/healthz/ready")
        reasons.clear()
        passing = await status.ask("/healthz/ready")

    assert failing.body.startswith(b"not ready\n")
    assert passing.status == 200


async def test_readiness_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agent.status.server")
    agent = Agent()
    reasons = iter(["one", "one", "two", "two", None, None, "one"])
    agent.checks["dns"] = lambda: next(reasons)
    async with status_server(envoy_enabled=False, agent=agent) as status:
        for _ in range(7):
            await status.ask("/healthz/ready")

    assert [message for message in caplog.messages if "ready" in message.lower()] == [
        "Envoy proxy is NOT ready: one",
        "Envoy proxy is NOT ready: two",
        "Envoy proxy is ready",
        "Envoy proxy is NOT ready: one",
    ]


async def test_the_start_is_timed_once() -> None:
    admin = Admin()
    async with web_server(admin) as port, status_server(admin_port=port) as status:
        await asyncio.gather(*(status.ask("/healthz/ready") for _ in range(4)))
        text = status.agent.metrics.render()

    assert text.count("\nistio_agent_startup_duration_seconds ") == 1


@pytest.mark.parametrize("path", ["/quitquitquit", "/drain"])
@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD"])
async def test_control_endpoints_take_post_only(path: str, method: str) -> None:
    async with status_server() as status:
        response = await status.ask(path, method=method)
        calls = status.agent.calls

    assert response.status == 405
    assert response.body == (b"" if method == "HEAD" else b"Method Not Allowed\n")
    assert types(response) == ("text/plain; charset=utf-8", "nosniff")
    assert calls == []


@pytest.mark.parametrize(("path", "call"), [("/quitquitquit", "quit"), ("/drain", "drain")])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_control_endpoints_answer_ok_and_act(path: str, call: str, host: str) -> None:
    async with status_server() as status:
        response = await status.ask(path, method="POST", host=host, body=b"{}")
        calls = status.agent.calls

    assert (response.status, response.body) == (200, b"OK")
    assert calls == [call]


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
    assert types(responses[0]) == ("text/plain; charset=utf-8", "nosniff")
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

    assert answers == [200, 200, 403, 403, 200, 200]


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
    assert types(response) == ("text/plain; charset=utf-8", "nosniff")
    assert calls == []


async def test_the_name_table_is_empty_without_a_dns_server() -> None:
    async with status_server() as status:
        response = await status.ask("/debug/ndsz")

    assert (response.status, response.body) == (404, b"{}")
    assert types(response) == ("application/json", "")


async def test_profiling_shows_the_command_line_and_can_be_off() -> None:
    async with status_server() as status, status_server(profiling=False) as without:
        redirect = await status.ask("//debug/pprof/cmdline")
        shown = await status.ask(redirect.header("location"))
        index = await status.ask("/debug/pprof/")
        unknown = await status.ask("/debug/pprof/heap")
        off = await without.ask("/debug/pprof/cmdline")

    assert shown.status == 200
    assert b"pytest" in shown.body
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


async def test_long_bodies_are_compressed_for_those_who_accept_it() -> None:
    async with status_server() as status:
        plain = await status.ask("/metrics")
        packed = await status.ask("/metrics", headers=(("Accept-Encoding", "zstd, gzip;q=0.5"),))
        short = await status.ask("/debug/pprof/", headers=(("Accept-Encoding", "gzip"),))
        head = await status.ask("/metrics", method="HEAD", headers=(("Accept-Encoding", "gzip"),))

    assert plain.header("content-encoding") == ""
    assert packed.header("content-encoding") == "gzip"
    assert b"istio_agent_scrapes_total 2" in gzip.decompress(packed.body)
    assert short.header("content-encoding") == ""
    assert (head.status, head.body, head.header("content-encoding")) == (200, b"", "")
    assert {answer.header("vary") for answer in (plain, packed, short)} == {"Accept-Encoding"}


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


async def test_another_envoy_is_not_ready_because_the_last_one_was() -> None:
    """Case V3."""
    admin = Admin()
    agent = Agent()
    async with web_server(admin) as port, status_server(admin_port=port, agent=agent) as status:
        first = await status.ask("/healthz/ready")
        admin.status = 500
        kept = await status.ask("/healthz/ready")
        agent.starts = 2
        second = await status.ask("/healthz/ready")

    assert (first.status, kept.status, second.status) == (200, 200, 503)


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
