"""Readiness as the kubelet and people see it, over real sockets."""

import asyncio
import json
import logging
import socket
import time
from contextlib import AsyncExitStack

import pytest
from aiohttp import web

from agent.http.message import Response
from agent.status.readiness import CONFIG_TARGET, GATE_TARGET, LIVE_TARGET
from agent.status.settings import ReadinessSettings
from tests.fakes.status import Agent, Status, content_types, status_server
from tests.fakes.web import Admin, web_server


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
    assert {content_types(unready), content_types(ready)} == {("application/json", "")}
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
    assert content_types(response) == ("text/plain; charset=utf-8", "nosniff")


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


class SlowAdmin(Admin):
    """Says that a question has come, and answers it once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Semaphore(0)
        self.may_answer = asyncio.Event()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.release()
        await self.may_answer.wait()
        return await super().__call__(request)


async def test_who_asks_while_envoy_is_being_asked_shares_the_answer() -> None:
    """Anybody may ask, and Envoy answers on the thread that is to take its configuration."""
    admin = SlowAdmin()
    admin.stats = ""
    async with web_server(admin) as port, status_server(admin_port=port) as status:
        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(status.ask("/healthz/ready")) for _ in range(50)]
            await admin.asked.acquire()
            await others_wait(status, 50)
            admin.may_answer.set()
        again = await status.ask("/healthz/ready")

    assert {task.result().body[:20] for task in asking} == {b"config not received "}
    assert again.status == 503
    assert admin.targets == [CONFIG_TARGET] * 2  # the second one is of whoever came later


async def others_wait(status: Status, count: int) -> None:
    """Return when as many requests are being answered."""
    async with asyncio.timeout(10):
        while waiting(await status.ask("/debug/tasks")) < count:
            pass


def waiting(response: Response) -> int:
    return response.body.count(b"in EnvoyReadiness.problem")


async def test_who_shares_an_answer_gets_one_though_the_first_to_ask_has_left() -> None:
    admin = SlowAdmin()
    async with web_server(admin) as port, status_server(admin_port=port) as status:
        reader, writer = await asyncio.open_connection("127.0.0.1", status.port)
        writer.write(b"GET /healthz/ready HTTP/1.1\r\nHost: a\r\n\r\n")
        await admin.asked.acquire()
        second = asyncio.create_task(status.ask("/healthz/ready"))
        await others_wait(status, 2)
        reset(writer)
        await admin.asked.acquire()  # by the second one, now
        admin.may_answer.set()
        answer = await second
        assert await reader.read() == b""

    assert answer.status == 200


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


async def test_a_live_envoy_that_hangs_stays_ready() -> None:
    """cases.md R3."""
    admin = SlowAdmin()
    admin.may_answer.set()
    async with web_server(admin) as port, status_server(admin_port=port) as status:
        first = await status.ask("/healthz/ready")
        admin.may_answer.clear()
        later = [(await status.ask("/healthz/ready")).status for _ in range(3)]

    assert (first.status, later) == (200, [200] * 3)
    assert admin.targets == [CONFIG_TARGET, LIVE_TARGET]


async def test_an_envoy_that_is_slow_once_is_asked_until_it_has_said_so_and_never_again() -> None:
    """cases.md R2."""
    admin = SlowAdmin()
    readiness = ReadinessSettings(config_seconds=0.05)
    async with (
        web_server(admin) as port,
        status_server(admin_port=port, readiness=readiness) as status,
    ):
        slow = await status.ask("/healthz/ready")
        admin.may_answer.set()
        answers = [(await status.ask("/healthz/ready")).status for _ in range(3)]

    assert slow.status == 503
    assert slow.body.splitlines()[0].endswith(b"timed out after 0.05 s")
    assert answers == [200] * 3
    assert admin.targets == [CONFIG_TARGET, LIVE_TARGET]


async def test_how_long_envoy_has_to_say_that_it_serves_is_a_setting_too() -> None:
    admin = Admin()

    async def hang_at_life(request: web.BaseRequest) -> web.StreamResponse:
        if "server" in request.raw_path:
            await asyncio.Event().wait()
        return await admin(request)

    readiness = ReadinessSettings(live_seconds=0.05)
    async with (
        web_server(hang_at_life) as port,
        status_server(admin_port=port, readiness=readiness) as status,
    ):
        answer = await status.ask("/healthz/ready", headers=(("Accept", "application/json"),))

    found = json.loads(answer.body)
    assert found["check"] == "envoy_live"
    assert found["reason"].startswith("failed to get readiness stats: GET http://127.0.0.1:")
    assert found["reason"].endswith("timed out after 0.05 s")


async def test_a_pod_may_have_to_have_some_listeners_first() -> None:
    admin = Admin()
    admin.stats += "listener_manager.total_listeners_active: 2\n"
    readiness = ReadinessSettings(min_listeners=4)
    async with (
        web_server(admin) as port,
        status_server(admin_port=port, readiness=readiness) as status,
    ):
        few = await status.ask("/healthz/ready", headers=(("Accept", "application/json"),))
        admin.stats = admin.stats.replace("active: 2", "active: 4")
        enough = await status.ask("/healthz/ready")
        admin.stats = admin.stats.replace("active: 4", "active: 0")
        fewer = await status.ask("/healthz/ready")
        text = status.agent.metrics.render()

    found = json.loads(few.body)
    assert (found["check"], found["missing"]) == (
        "envoy_listeners",
        ["listener_manager.total_listeners_active"],
    )
    assert found["reason"] == "listeners active: 2, expected at least 4"
    assert (few.status, enough.status, fewer.status) == (503, 200, 200)
    assert admin.targets == [CONFIG_TARGET, GATE_TARGET, GATE_TARGET]
    assert 'readiness_failures_total{check="envoy_listeners"} 1' in text
