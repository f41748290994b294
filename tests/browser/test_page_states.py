"""What the page makes of what an agent may say, and of an agent that says nothing."""

import pytest
from aiohttp import web

from agent.status.readiness import Shortfall
from tests.browser.devtools import new_tab
from tests.browser.looking import looking_at
from tests.browser.telling import (
    CONNECTED,
    DAY,
    NOW,
    Json,
    certificate,
    certificates,
    documents,
    drain,
    looking_at_agent,
    parts,
    sent,
    synced,
)
from tests.fakes.status import Agent, status_server

DASH = "\N{EN DASH}"
pytestmark = [pytest.mark.browser, pytest.mark.slow]


async def test_an_agent_without_any_part_shows_that_there_is_none(chromium: str) -> None:
    async with (
        status_server(envoy_enabled=False) as status,
        looking_at(chromium, status.port) as look,
    ):
        readiness = await look.reads("#readiness", "✓ Ready")
        shown = [await look.tab.text(f"#{name}") for name in ("xds", "certificates", "drain")]
        probes = await look.tab.text("#probes")
        rows = await look.tab.evaluate("document.querySelectorAll('.activity tbody tr').length")
        look.check()

    assert "Envoy disabled: this pod has none" in readiness
    assert "DNS not captured" in readiness
    assert "The relay has not started yet" in shown[0]
    assert "not started to care for certificates" in shown[1]
    assert "Not known yet" in shown[2]
    assert "None goes through the agent" in probes
    assert rows == 3  # of those that are counted at all


async def test_everything_at_once(chromium: str) -> None:
    async with looking_at_agent(chromium, parts(documents())) as (look, _):
        header = await look.tab.text("header")
        readiness = await look.tab.text("#readiness")
        xds = await look.tab.text("#xds")
        probes = await look.tab.text("#probes")

    assert "up 1 h 23 min 36 MB" in header
    assert "Envoy restarted 1 time" in header
    assert "✓ connected last error 1 min 30 s ago: stream was reset" in readiness
    assert "✓ 1,234 hosts other names: 10.96.0.10:53" in readiness
    assert "Delta stream 3 since" in xds
    assert "1,234 requests (63 kB), 1,200 pushes (12 MB)" in xds
    assert f"eds endpoints ▲ STALE v1 12 35 kB {DASH} 1 min ago" in xds
    assert "lds listeners ✕ STALE, refused v2" in xds
    assert "○ rds version v2 was refused 59 s ago; a later one was sent" in xds
    assert "Unknown ✓ SYNCED" in xds
    assert "readyz web ✓ 200 HTTPS :8443 /ready?deep=1 9,000 4 ms 3 s ago" in probes
    assert "livez web ✕ 503" in probes
    assert "TCP :8080 3 40 ms of 2 s 3 s ago" in probes
    assert f"prestopz web (hook) ○ not asked yet gRPC :9000 orders {DASH} {DASH} of 1 s" in probes


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (certificates(certificate(ends=NOW - 60)), "✕ expired 1 min ago"),
        (certificates(certificate(begins=NOW + 60)), "✕ not valid yet: in 1 min"),
        (certificates(certificate(ends=NOW + DAY / 20)), "▲ 1 h 12 min left of 13 h 12 min"),
        (certificates(), "✓ 12 h left of 1 d"),
        (certificates({"unreadable": "no certificate"}), "✕ no certificate"),
        (certificates(chain=[], problem="the CA is silent"), "✕ the CA is silent"),
        (certificates(chain=[], source="served by another SDS server"), "○ not ours"),
        (certificates(), "file-root:/roots.pem: 9 certificates"),
        (certificates(), "file-cert:/a~/b: ✕ no such file"),
    ],
)
async def test_how_long_certificates_last(told: Json, words: str, chromium: str) -> None:
    async with looking_at_agent(chromium, parts(documents() | {"certs": told})) as (look, _):
        assert words in await look.tab.text("#certificates")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (drain(), ["○ Nobody", "+0 s SIGTERM no", "+5 s drain", "+10 s look", "25 %"]),
        (drain("terminating", 7.2, still_active=12), ["▲ Ending", "drain ✓ done", "look ▲ in 3 s"]),
        (drain("terminating", 7.2, still_active=12), ["Still active: 12", "deadline ▲ in 1 min"]),
        (drain("draining"), ["▲ Draining: asked by /drain"]),
        (drain("stopping", 12.0), ["▲ Envoy was told to stop", "look ✓ done", "deadline ▲ in"]),
        (drain("killing", 90.0), ["✕ Envoy did not stop", "deadline ✓ done"]),
        (drain("restarting"), ["✕ Envoy died"]),
        (drain("something new"), ["▲ something new"]),
    ],
)
async def test_how_far_the_end_is(told: Json, words: list[str], chromium: str) -> None:
    async with looking_at_agent(chromium, parts(documents() | {"drain": told})) as (look, _):
        text = await look.tab.text("#drain")

    assert [each for each in words if each not in text] == []


async def test_envoy_without_a_stream_and_without_an_end(chromium: str) -> None:
    gone = Shortfall("envoy", "Envoy is restarted, 1 of 3 times")
    plane = {**CONNECTED, "state": "disconnected", "sessions": 2, "stream": None}
    told = documents() | {"syncz": {"connection": plane, "types": {}}, "dns": {"hosts": None}}
    told["dns"]["nameservers"] = []
    async with looking_at_agent(chromium, parts(told, shortfall=gone)) as (look, _):
        readiness = await look.tab.text("#readiness")
        xds = await look.tab.text("#xds")

    assert "✕ Not ready" in readiness
    assert "Envoy ✕ gone" in readiness
    assert "▲ no name table yet" in readiness
    assert "stream was reset" not in readiness  # what is wrong now stands beside the reason
    assert "no stream to the agent now; there were 2" in xds


async def test_what_envoy_has_is_shown_until_a_new_stream_brings_something(chromium: str) -> None:
    waiting = {"cds": synced("NOT SENT", sent=None, milliseconds=None)}
    told = documents()
    async with looking_at_agent(chromium, parts(told)) as (look, telling):
        telling.say(parts(told | {"syncz": {**told["syncz"], "types": waiting}}))
        await look.again()
        kept = await look.reads("#xds", "Of a stream that has ended: Envoy keeps what it accepted")
        again = {"cds": synced("SYNCED", sent=sent("v3"))}
        telling.say(parts(told | {"syncz": {**told["syncz"], "types": again}}))
        await look.again()
        new = await look.reads("#xds", "v3")

    assert "lds listeners ✕ STALE, refused v2" in kept
    assert "NOT SENT" in kept  # of the types that had nothing then
    assert "stream that has ended" not in new
    assert "lds" not in new


async def test_activity_is_counted_anew_when_the_agent_was_restarted(chromium: str) -> None:
    async with looking_at_agent(chromium, parts(documents())) as (look, telling):
        assert isinstance(telling.answer, dict)
        telling.answer["time"] += 30
        telling.answer["agent"]["uptime_seconds"] += 30
        telling.answer["activity"]["scrapes"] += 7
        await look.again()
        before = await look.reads("#activity", "7 37")
        bars = await look.tab.evaluate("document.querySelectorAll('.bars')[4].getAttribute('d')")
        telling.answer["agent"]["uptime_seconds"] = 1
        telling.answer["activity"]["scrapes"] = 2
        await look.again()
        after = await look.reads("#activity", f"scrapes of metrics {DASH} 0 2")

    assert "last 30 s" in before
    assert bars.count("z") == 1
    assert "last 0 s" in after


async def test_an_agent_that_takes_its_time_is_waited_for(chromium: str) -> None:
    async with looking_at_agent(chromium, parts(documents())) as (look, telling):
        telling.may_answer.clear()
        await look.again()
        await look.reads("#link", "▲ waiting for an answer")
        telling.may_answer.set()
        await look.reads("#link", "✓ live")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (web.Response(status=403, text="Only requests from localhost are allowed\n"), "403: Only"),
        (web.Response(text='{"time": 1'), "the answer cannot be read"),
        (web.Response(text='{"time": 1}'), "the answer cannot be read"),
    ],
)
async def test_an_answer_that_is_none_leaves_the_last_one(
    answer: web.Response, words: str, chromium: str
) -> None:
    async with looking_at_agent(chromium, parts(documents())) as (look, telling):
        good, telling.answer = telling.answer, answer
        await look.again()
        lost = await look.reads("#lost", "✕ No connection", words)
        title = await look.tab.evaluate("document.title")
        last = await look.tab.text("#readiness")
        telling.answer = good
        await look.again()
        await look.reads("#link", "✓ live")
        # A browser tells of a status that is none of success.
        look.tab.problems = [each for each in look.tab.problems if "status of 403" not in each]

    assert "Below is what was known" in lost
    assert title.startswith(f"No connection {DASH} ")
    assert "✓ Ready" in last


async def test_other_sites_get_nothing_and_end_nothing(chromium: str) -> None:
    agent = Agent()
    async with (
        status_server(envoy_enabled=False, agent=agent) as status,
        new_tab(chromium) as tab,  # about:blank is another site
    ):
        address = f"http://127.0.0.1:{status.port}"
        for path in ("drain", "quitquitquit"):
            send = f"fetch('{address}/{path}', {{method: 'POST', mode: 'no-cors'}})"
            assert await tab.evaluate(f"{send}.then((answer) => answer.type)") == "opaque"
        read = f"fetch('{address}/debug/overview').then(() => 'read', () => 'refused')"
        assert await tab.evaluate(read) == "refused"

    assert agent.calls == []


async def test_a_site_whose_name_leads_here_gets_nothing_and_ends_nothing(chromium: str) -> None:
    agent = Agent()
    async with (
        status_server(envoy_enabled=False, agent=agent) as status,
        new_tab(chromium) as tab,
    ):
        # As if it were the site's own server: a browser sees but one site.
        await tab.go(f"http://evil.example:{status.port}/healthz/ready")
        ended = "fetch('/quitquitquit', {method: 'POST'}).then((answer) => answer.status)"
        read = "fetch('/debug/overview').then((answer) => answer.status)"
        assert [await tab.evaluate(each) for each in (ended, read)] == [403, 403]

    assert agent.calls == []
