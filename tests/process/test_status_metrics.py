"""The merged metrics page, from real servers that fail in every way."""

import asyncio
import gzip
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from agent.http.message import Headers
from agent.status.scrape import Target
from agent.status.settings import ScrapeSettings
from tests.fakes.scraped import (
    APPLICATION,
    ENVOY,
    OM1,
    TEXT,
    TIMEOUT,
    break_off,
    failures,
    merged,
    merging,
    page,
)
from tests.fakes.status import Agent, status_server
from tests.fakes.web import Pages, hang, server_context, web_server

PROMETHEUS = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
)


async def test_agent_envoy_and_application_follow_in_this_order() -> None:
    response, text = await merged(page(ENVOY), page(APPLICATION))

    assert text == ENVOY + APPLICATION
    assert response.header("content-type") == TEXT
    assert failures(response) == []
    names = {family.name for family in text_string_to_metric_families(response.body.decode())}
    assert {"istio_agent_scrapes", "envoy_up", "app_up", "istio_agent_process_open_fds"} <= names


async def test_no_application_and_no_envoy_leave_the_agents_own() -> None:
    async with status_server(scrape=ScrapeSettings(envoy_port=None)) as status:
        response = await status.ask("/stats/prometheus")

    assert b"istio_agent_python_info{" in response.body
    assert b"istio_agent_process_resident_memory_bytes " in response.body
    assert b"istio_agent_process_start_time_seconds 1" in response.body


@pytest.mark.parametrize("broken", [None, web.Response(status=503)], ids=["closed", "503"])
async def test_an_application_survives_envoy(broken: web.Response | None) -> None:
    response, text = await merged(broken, page(APPLICATION))

    assert text == APPLICATION
    assert failures(response) == ['{type="envoy"} 1']


async def test_envoy_survives_its_application() -> None:
    """cases.md M7, M12."""
    response, text = await merged(page(ENVOY), web.Response(status=500))

    assert text == ENVOY
    assert response.header("content-type") == TEXT
    assert failures(response) == ['{type="application"} 1']


@pytest.mark.slow
async def test_each_survives_the_other_where_that_hangs() -> None:
    """cases.md M13; whoever does answer has half of this time for it."""
    headers = ((TIMEOUT, "2"),)
    (without_envoy, application), (without_application, envoy) = await asyncio.gather(
        merged(hang, page(APPLICATION), headers=headers),
        merged(page(ENVOY), hang, headers=headers),
    )

    assert application == APPLICATION
    assert failures(without_envoy) == ['{type="envoy"} 1']
    assert envoy == ENVOY
    assert without_application.header("content-type") == TEXT
    assert failures(without_application) == ['{type="application"} 1']


async def test_all_may_fail() -> None:
    response, text = await merged(None, web.Response(status=404))

    assert text == ""
    assert failures(response) == ['{type="application"} 1', '{type="envoy"} 1']


async def test_a_source_that_breaks_off_loses_its_unfinished_line() -> None:
    async with merging(break_off, page(APPLICATION)) as (status, _, _):
        response = await status.ask("/metrics")
        later = await status.ask("/metrics")

    assert response.body.decode().endswith("whole 1\n" + APPLICATION)
    assert failures(later) == ['{type="envoy"} 1']


async def test_a_terminator_stands_at_the_end_even_if_the_application_breaks_off() -> None:
    response, text = await merged(page(ENVOY), break_off)

    assert text == ENVOY + "whole 1\n# EOF\n"
    assert response.header("content-type") == OM1


async def test_parts_that_do_not_end_their_line_do_not_run_together() -> None:
    """cases.md M5."""
    _, text = await merged(page(ENVOY.strip()), page("a 1\r\nb 2"))

    assert text == ENVOY + "a 1\r\nb 2\n"


async def test_each_source_is_asked_for_what_can_be_merged() -> None:
    """cases.md M3, M4."""
    async with merging(page(ENVOY), page(APPLICATION)) as (status, envoy, applications):
        headers = (
            ("Accept", PROMETHEUS),
            ("User-Agent", "Prometheus/3"),
            (TIMEOUT, "10"),
            ("Accept-Encoding", "br"),
            ("Authorization", "Bearer x"),
        )
        await status.ask("/metrics?usedonly&filter=^a%20b$", headers=headers)
        await status.ask("/metrics")

    first, second = envoy.requests
    (application, _) = applications[0].requests
    assert first.raw_path == "/stats/prometheus?usedonly&filter=^a%20b$"
    assert application.raw_path == "/metrics"
    assert dict(first.headers) == {
        "Host": first.headers["Host"],
        "User-Agent": "Prometheus/3",
        TIMEOUT: "10",
        "Accept": "text/plain; q=0.1; version=0.0.4",
        "Accept-Encoding": "gzip",
    }
    assert application.headers["Accept"].startswith("application/openmetrics-text; q=0.2;")
    assert second.headers["Accept"] == "text/plain;version=0.0.4"
    assert "User-Agent" not in second.headers


async def test_compressed_sources_are_merged_plain() -> None:
    packed = {"Content-Type": TEXT, "Content-Encoding": "gzip"}
    envoy = web.Response(body=gzip.compress(ENVOY.encode()), headers=packed)
    application = web.Response(body=gzip.compress(APPLICATION.encode()), headers=packed)

    _, text = await merged(envoy, application)
    _, several = await merged(envoy, application, application)

    assert text == ENVOY + APPLICATION
    assert several == ENVOY + APPLICATION * 2


async def test_a_source_that_is_not_the_gzip_it_says_fails_alone() -> None:
    bad = web.Response(body=b"plain", headers={"Content-Encoding": "gzip"})
    async with merging(page(ENVOY), bad) as (status, _, _):
        response = await status.ask("/metrics")
        later = await status.ask("/metrics")

    assert response.body.decode().endswith(ENVOY)
    assert failures(later) == ['{type="application"} 1']


async def test_a_redirect_on_the_same_host_is_followed() -> None:
    async def redirect(request: web.BaseRequest) -> web.StreamResponse:
        if request.query_string:
            return page(APPLICATION)
        return web.Response(status=308, headers={"Location": "/metrics?there"})

    away = web.Response(status=302, headers={"Location": "http://example.com/"})
    loop = web.Response(status=302, headers={"Location": "/metrics"})

    _, text = await merged(page(ENVOY), redirect)
    failed = [await merged(page(ENVOY), answer) for answer in (away, loop)]

    assert text == ENVOY + APPLICATION
    assert [failures(response) for response, _ in failed] == [['{type="application"} 1']] * 2


async def test_a_path_without_slash_is_a_failed_scrape(caplog: pytest.LogCaptureFixture) -> None:
    settings = ScrapeSettings(envoy_port=None, targets=(Target(80, "metrics\nforged line"),))
    async with status_server(scrape=settings) as status:
        response = await status.ask("/metrics")

    assert failures(response) == ['{type="application"} 1']
    assert "path='metrics\\nforged line'" in caplog.text
    assert "\nforged line" not in caplog.text


async def test_own_metrics_that_fail_leave_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "agent.status.merge.log")
    agent = Agent()

    def fail() -> None:
        raise RuntimeError("broken collector")

    agent.metrics.before_render(fail)
    async with web_server(Pages({"/metrics": page(APPLICATION)})) as port:
        settings = ScrapeSettings(envoy_port=None, targets=(Target(port, "/metrics"),))
        async with status_server(scrape=settings, agent=agent) as status:
            response = await status.ask("/metrics")

    assert response.body.decode() == APPLICATION


async def test_a_label_that_is_no_text_does_not_cost_the_others() -> None:
    agent = Agent()
    agent.metrics.set("cert_expiry_seconds", 5, resource_name="file-root:/\udcff.pem")
    async with status_server(agent=agent) as status:
        response = await status.ask("/metrics")

    assert b'cert_expiry_seconds{resource_name="file-root:/?.pem"} 5\n' in response.body
    assert b"istio_agent_scrapes_total 1\n" in response.body


@pytest.mark.parametrize("headers", [(), ((TIMEOUT, "soon"),)], ids=["", "with a bad time limit"])
async def test_many_scrapes_that_fail_are_a_few_lines(
    headers: Headers, caplog: pytest.LogCaptureFixture
) -> None:
    async with merging(None, web.Response(status=500)) as (status, _, _):
        for _ in range(20):
            await status.ask("/metrics", headers=headers)
        failed = await status.ask("/metrics", headers=headers)

    assert len(caplog.messages) == 2 + len(headers)
    assert 'type="application"} 21' in failed.body.decode()


async def test_a_page_may_be_over_https_whoever_has_signed_it(tmp_path: Path) -> None:
    """cases.md M11."""
    async with merging(
        page(ENVOY), page(APPLICATION), tls=server_context(tmp_path, "http/1.1")
    ) as (status, _, applications):
        response = await status.ask("/metrics")

    assert response.body.decode().endswith(ENVOY + APPLICATION)
    assert failures(response) == []
    assert applications[0].requests[0].version == (1, 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_sources_may_listen_on_either_family(host: str) -> None:
    """A pod of IPv6 alone has Envoy and application on ::1."""
    envoy = Pages({"/stats/prometheus": page(ENVOY)})
    application = Pages({"/metrics": page(APPLICATION)})
    async with (
        web_server(envoy, host=host) as envoy_port,
        web_server(application, host=host) as port,
        status_server(
            scrape=ScrapeSettings(envoy_port=envoy_port, targets=(Target(port, "/metrics"),))
        ) as status,
    ):
        response = await status.ask("/metrics", host=host)

    assert response.body.decode().endswith(ENVOY + APPLICATION)
    assert failures(response) == []


async def test_a_redirect_may_lead_to_https(tmp_path: Path) -> None:
    there = Pages({"/metrics": page(APPLICATION)})
    async with web_server(there, tls=server_context(tmp_path)) as port:
        location = {"Location": f"https://localhost:{port}/metrics"}
        response, text = await merged(page(ENVOY), web.Response(status=301, headers=location))

    assert text == ENVOY + APPLICATION
    assert failures(response) == []


async def test_https_of_a_server_without_is_a_failed_scrape() -> None:
    async with web_server(Pages({"/metrics": page(APPLICATION)})) as port:
        settings = ScrapeSettings(envoy_port=None, targets=(Target(port, "/metrics", is_tls=True),))
        async with status_server(scrape=settings) as status:
            response = await status.ask("/metrics")

    assert failures(response) == ['{type="application"} 1']


def test_a_scrape_imports_what_it_needs() -> None:
    code = """
from agent.process import import_frameworks
import_frameworks()
import asyncio, sys
from agent.http.client import fetch
from agent.http.message import Reply
from agent.http.server import listening
from agent.metrics import Metrics
from agent.status.run import Hooks, serving
from agent.status.scrape import Target
from agent.status.settings import ScrapeSettings, StatusSettings

async def page(_):
    return Reply(200, b"a 1\\n" * 1000, (("Content-Type", "text/plain"),))

async def main():
    nothing = lambda: None
    hooks = Hooks(terminating=nothing, checks={}, details={}, drain=nothing, quit=nothing)
    async with listening(page, port=0, name="page") as port:
        scrape = ScrapeSettings(envoy_port=port, targets=(Target(port, "/metrics"),))
        settings = StatusSettings(0, "127.0.0.1", 1, False, scrape=scrape)
        async with serving(settings, hooks, Metrics()) as status:
            headers = (("Accept-Encoding", "gzip"),)
            answer = await fetch(
                "GET", "127.0.0.1", status, "/metrics", headers=headers, timeout_seconds=9
            )
            assert answer.status == 200, answer

asyncio.run(main())
names = ("ssl", "h2", "zstandard", "agent.status.merge.strict", "agent.status.merge.modern")
print([name for name in names if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout == "[]\n"
