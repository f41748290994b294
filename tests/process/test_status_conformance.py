"""The tables of conformance cases, from the environment to what an application and a caller see.

Source: status-lifecycle.md sections 13.2 and 13.3; what is not here is named in the tests beside.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from agent.http.message import Headers, Response
from agent.reader import Reader
from agent.status.probes import TcpProbe
from agent.status.run import serving
from agent.status.settings import parse_status
from tests.fakes.probed import PATH, probed
from tests.fakes.scraped import ENVOY, OM0, OM1, TEXT, judged, merging, page
from tests.fakes.status import Agent, Status
from tests.fakes.web import web_server

READYZ, LIVEZ = "/app-health/hello/readyz", "/app-health/hello/livez"
SOME = ("Some-Header", "some-value")


class App:
    """The application of section 13, and what it was asked."""

    def __init__(self) -> None:
        self.requests: list[web.BaseRequest] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        if request.path == "/redirect":
            return web.Response(status=301, headers={"Location": "/"})
        if request.path == "/remote-redirect":
            return web.Response(status=301, headers={"Location": "http://127.0.0.2:1/"})
        if request.path == "/header":
            is_right = request.host == "test.com:9999" and request.headers.get(SOME[0]) == SOME[1]
            return web.Response(status=200 if is_right else 400)
        if request.path.startswith("/status/"):
            status = int(request.path.rpartition("/")[2])
            return web.Response(status=status, headers={"Location": "/"})
        return web.Response(text="welcome")


@asynccontextmanager
async def agent(probers: dict[str, Any], instance_ip: str = "127.0.0.1") -> AsyncIterator[Status]:
    """A status server out of the environment that the injector writes."""
    read = Reader({"ISTIO_KUBE_APP_PROBERS": json.dumps(probers)})
    settings = parse_status(
        read, port=0, admin_host="127.0.0.1", admin_port=1, instance_ip=instance_ip, ipv6=False,
        is_sidecar=True, envoy_enabled=False,
    )  # fmt: skip
    assert read.errors == []
    state = Agent()
    async with serving(settings, state.hooks(), state.metrics) as port:
        yield Status(port, state)


async def forwarded(action: dict[str, Any], *, headers: Headers = ()) -> tuple[Response, App]:
    """Return the answer to a probe whose action lacks the port, and its application."""
    app = App()
    async with (
        web_server(app) as port,
        agent({READYZ: {"httpGet": {"port": port, **action}}}) as it,
    ):
        return await it.ask(READYZ, headers=headers), app


async def test_an_unregistered_path_is_not_found() -> None:
    async with agent({}) as status:
        assert (await status.ask("/app-unregistered")).status == 404


@pytest.mark.parametrize(
    "path", ["/hello/sunnyvale", "hello/sunnyvale", None, "/redirect", "redirect"]
)
async def test_http_probes_pass(path: str | None) -> None:
    response, app = await forwarded({"path": path} if path else {})

    assert response.status == 200
    assert app.requests[0].path == "/" + (path or "").removeprefix("/")


async def test_a_probe_of_each_kind_has_its_own_port_and_path() -> None:
    app = App()
    async with web_server(app) as port:
        probers = {
            READYZ: {"httpGet": {"path": "/hello", "port": port}},
            LIVEZ: {"httpGet": {"port": port}},
        }
        async with agent(probers) as status:
            answers = [(await status.ask(path)).status for path in (READYZ, LIVEZ)]

    assert answers == [200, 200]
    assert [request.path for request in app.requests] == ["/hello", "/"]


async def test_host_and_headers_of_the_caller_arrive() -> None:
    response, _ = await forwarded({"path": "/header"}, headers=(("Host", "test.com:9999"), SOME))
    without, _ = await forwarded({"path": "/header"}, headers=(SOME,))

    assert (response.status, without.status) == (200, 400)


async def test_a_remote_redirect_is_a_success_and_not_followed() -> None:
    response, app = await forwarded({"path": "/remote-redirect"})

    assert response.status == 200
    assert len(app.requests) == 1


@pytest.mark.parametrize("code", [200, 201, 206, 299, 400, 401, 404, 429, 499, 500, 503, 599])
async def test_a_status_is_relayed(code: int) -> None:
    response, _ = await forwarded({"path": f"/status/{code}"})

    assert response.status == code


async def test_every_status_of_redirection_is_a_success() -> None:
    app = App()
    async with web_server(app) as port:
        probers = {
            f"/app-health/c{code}/livez": {"httpGet": {"path": f"/status/{code}", "port": port}}
            for code in range(300, 400)
        }
        async with agent(probers) as status:
            found = {path: (await status.ask(path)).status for path in probers}

    assert set(found.values()) == {200}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("sends", [True, False], ids=["the caller", "the configuration"])
async def test_only_the_callers_headers_are_sent(times: int, sends: bool) -> None:  # noqa: FBT001 -- a column
    configured = {"httpHeaders": [{"name": SOME[0], "value": SOME[1]}] * times}

    _, app = await forwarded(configured, headers=(SOME,) * times if sends else ())

    seen = [
        (name, value)
        for name, value in app.requests[0].headers.items()
        if name not in ("Host", "User-Agent", "Accept-Encoding")
    ]
    assert sorted(seen) == [("Connection", "close"), *([SOME] * times if sends else [])]


@pytest.mark.parametrize("instance_ip", ["", "127.0.0.1"])
async def test_a_tcp_probe_connects_to_the_pod(instance_ip: str) -> None:
    async with web_server(App()) as port:
        probers = {path: {"tcpSocket": {"port": port}} for path in (READYZ, LIVEZ)}
        async with agent(probers, instance_ip) as status:
            answers = [(await status.ask(path)).status for path in probers]

    assert answers == [200, 200]


async def test_a_tcp_probe_connects_over_ipv6() -> None:
    async with web_server(App(), host="::1") as port:
        response = await probed(TcpProbe(port), host="::1", source="::1")

    assert response.status == 200
    assert PATH == READYZ


# Metrics


async def negotiating(request: web.BaseRequest) -> web.StreamResponse:
    """Answer as an application of Prometheus' libraries does."""
    accepted = request.headers["Accept"].partition(",")[0]
    if "openmetrics" not in accepted:
        return page("# TYPE app_total counter\napp_total 1\n")
    version = OM1 if "version=1.0.0" in accepted else OM0
    return page("# TYPE app counter\napp_total 1\n# EOF\n", version)


PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("accept", "label"),
    [
        (
            f"{PROTOBUF},application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5,*/*;q=0.1",
            OM1,
        ),
        (f"{PROTOBUF};q=0.7,application/openmetrics-text;version=0.0.1,*/*;q=0.1", OM0),
        ("application/openmetrics-text", OM0),
        ("application/*", OM0),
        (PROTOBUF, TEXT),
        ("text/plain;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5", TEXT),
        ("*/*", TEXT),
        ("", TEXT),
        ("nonsense,,", TEXT),
    ],
)
async def test_the_callers_wish_becomes_the_format(accept: str, label: str, count: int) -> None:
    async with merging(page(ENVOY), *[negotiating] * count) as (status, _, _):
        response = await status.ask("/metrics", headers=(("Accept", accept),) if accept else ())

    assert response.header("content-type") == label
    text = response.body.decode()
    assert text.count("# EOF") == (label != TEXT)
    assert "\napp_total 1\n" in text
    if count == 1:
        assert "app_total" in {sample.name for each in judged(response) for sample in each.samples}


async def test_what_is_asked_before_does_not_change_what_is_answered() -> None:
    """D1."""
    full = f"{PROTOBUF},application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1"
    async with merging(page(ENVOY), negotiating) as (status, envoy, applications):
        for accept in ("*/*", full, "*/*", "application/*", full):
            await status.ask("/metrics", headers=(("Accept", accept),))

    asked = [request.headers["Accept"] for request in applications[0].requests]
    assert asked[0] == asked[2] == "text/plain; q=0.1; version=0.0.4"
    assert asked[1] == asked[4]
    assert {request.headers["Accept"] for request in envoy.requests} == {
        "text/plain; q=0.1; version=0.0.4",
        "text/plain; q=0.2,text/plain; q=0.1; version=0.0.4",
        "text/plain;version=0.0.4",
    }
