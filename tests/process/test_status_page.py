"""The page for people, and the document that it polls, over real sockets."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agent.status.page import server as page_server
from agent.status.probes import HttpProbe
from agent.status.settings import ProbeSettings
from tests.fakes.status import Agent, Status, status_server
from tests.fakes.web import Pages, web_server

FILES = Path(page_server.__file__).parent
PATHS = tuple(page_server.TYPES)
PROBE = "/app-health/web/readyz"
CROSS_SITE = (("Sec-Fetch-Site", "cross-site"),)


async def overview(status: Status) -> Any:  # noqa: ANN401 - JSON
    response = await status.ask("/debug/overview")
    assert response.status == 200
    assert response.header("content-type") == "application/json"
    return json.loads(response.body)


@pytest.mark.parametrize("path", [*PATHS, "/debug/overview"])
async def test_it_is_for_this_pod_alone(path: str) -> None:
    async with status_server() as status:
        refused = await status.ask(path, source="127.0.0.6")
        shown = await status.ask(path)

    assert (refused.status, shown.status) == (403, 200)
    assert shown.header("x-content-type-options") == "nosniff"
    assert shown.header("cache-control") == "no-store"


@pytest.mark.parametrize("path", PATHS)
async def test_its_files_run_no_script_but_their_own(path: str) -> None:
    async with status_server() as status:
        shown = await status.ask(path)

    assert shown.header("content-type") == page_server.TYPES[path]
    assert shown.body == (FILES / (path.rpartition("/")[2] or "index.html")).read_bytes()
    policy = dict(
        rule.strip().split(" ", 1) for rule in shown.header("content-security-policy").split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["frame-ancestors"] == "'none'"


def test_every_file_is_served_and_refers_to_no_other_place() -> None:
    found = {path.name for path in FILES.iterdir() if path.suffix in (".html", ".css", ".js")}

    assert found == {path.rpartition("/")[2] or "index.html" for path in PATHS}
    for name in found:
        text = (FILES / name).read_text()
        assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}
        assert re.findall(r'(?:href|src)="(/[^"]*|[^"]*//[^"]*)"', text) == []


async def test_another_site_can_neither_look_nor_end_the_pod() -> None:
    """Who forwards the port has it on a machine that also visits other sites."""
    agent = Agent()
    async with status_server(agent=agent) as status:
        statuses = [
            (await status.ask(path, method=method, headers=CROSS_SITE)).status
            for method, path in (
                ("POST", "/quitquitquit"),
                ("POST", "/drain"),
                ("GET", "/debug/overview"),
                ("GET", "/page/main.js"),
            )
        ]
        linked = (*CROSS_SITE, ("Sec-Fetch-Dest", "document"))
        followed = (await status.ask("/", headers=linked)).status
        posted = (await status.ask("/drain", method="POST", headers=linked)).status
        public = (await status.ask("/metrics", headers=CROSS_SITE)).status

    assert statuses == [403] * 4
    assert (followed, posted, public) == (200, 403, 200)
    assert agent.calls == []


async def test_a_site_that_has_its_own_name_lead_here_can_do_as_little() -> None:
    agent = Agent()
    public = ("/healthz/ready", "/metrics", "/app-health/none/readyz")
    async with status_server(envoy_enabled=False, agent=agent) as status:
        host = (("Host", f"evil.example:{status.port}"),)
        quits = await status.ask("/quitquitquit", method="POST", headers=host)
        looks = [(await status.ask(path, headers=host)).status for path in ("/", "/debug/config")]
        answered = [(await status.ask(path, headers=host)).status for path in public]

    assert (quits.status, looks) == (403, [403] * 2)
    assert quits.body == b"Requests of other sites are not allowed: use localhost\n"
    assert answered == [200, 200, 400]
    assert agent.calls == []


async def test_without_any_part_there_is_an_overview() -> None:
    async with status_server(envoy_enabled=False) as status:
        found = await overview(status)

    assert found["readiness"]["ready"] is True
    assert found["envoy"] == {"enabled": False, "starts": 1, "is_local": False}
    assert found["xds"] is found["certificates"] is found["drain"] is found["dns"] is None
    assert found["agent"]["uptime_seconds"] >= 0
    assert found["agent"]["cpu_seconds"] > 0
    assert found["agent"]["resident_bytes"] > 1_000_000


async def test_requests_are_counted_by_kind_and_looks_are_not() -> None:
    agent = Agent()
    agent.metrics.count("dns_requests_total", type="A")
    agent.metrics.count("dns_requests_total", 2, type="AAAA")
    async with status_server(envoy_enabled=False, agent=agent) as status:
        for path in ("/healthz/ready", "/healthz/ready", "/app-health/x/readyz", "/metrics", "/"):
            await status.ask(path)
        await overview(status)
        activity = (await overview(status))["activity"]

    assert (activity["readiness"], activity["probes"], activity["scrapes"]) == (2, 1, 1)
    assert activity["dns_queries"] == 3


async def test_the_last_result_of_a_probe_is_kept() -> None:
    async def busy(_: web.BaseRequest) -> web.Response:
        return web.Response(status=503, text="no database\n")

    async with (
        web_server(Pages({"/ready": busy})) as port,
        status_server(
            envoy_enabled=False, probes=ProbeSettings({PROBE: HttpProbe("/ready", port)})
        ) as status,
    ):
        before = (await overview(status))["probes"]
        await status.ask(PROBE)
        await status.ask(PROBE)
        after = (await overview(status))["probes"]

    assert before[0]["last"] is None
    last = after[0]["last"]
    assert (last["status"], last["reason"], last["times"]) == (503, "no database", 2)
    assert last["since"] < last["at"]
    assert last["success"] is False


async def test_envoy_is_asked_only_while_the_pod_is_not_ready() -> None:
    stats = (
        "cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 1\n"
        "server.state: 0\nlistener_manager.workers_started: 1\n"
    )
    questions = []

    async def admin(request: web.BaseRequest) -> web.Response:
        questions.append(request.path)
        return web.Response(text=stats if len(questions) > 1 else "")

    async with web_server(admin) as port, status_server(admin_port=port) as status:
        readiness = [(await overview(status))["readiness"] for _ in range(4)]

    assert [found["ready"] for found in readiness] == [False, True, True, True]
    assert "config not received" in readiness[0]["reason"]
    assert len(questions) == 3  # for its configuration twice, for its life once
