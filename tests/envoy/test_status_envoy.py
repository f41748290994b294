"""Readiness and the merged page, asked of a real Envoy."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import envoy
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.http.client import fetch
from agent.status.scrape import Target
from agent.status.settings import ReadinessSettings, ScrapeSettings
from tests.fakes.scraped import OM1, judged, page
from tests.fakes.status import status_server
from tests.fakes.web import Pages, web_server
from tests.waiting import until

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

BINARY = Path(envoy.__file__).parent / "_bin" / "envoy"
EMPTY = json.dumps({"resources": []})


@asynccontextmanager
async def running_envoy(directory: Path) -> AsyncIterator[int]:
    """An Envoy that takes listeners and clusters from files; yields its admin port."""

    def source(kind: str) -> dict[str, object]:
        return {"path_config_source": {"path": str(directory / f"{kind}.json")}}

    any_port = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    bootstrap = {
        "node": {"id": "test", "cluster": "test"},
        "admin": {"address": any_port},
        "dynamic_resources": {"lds_config": source("lds"), "cds_config": source("cds")},
    }
    (directory / "bootstrap.json").write_text(json.dumps(bootstrap))
    (directory / "cds.json").write_text(EMPTY)
    (directory / "lds.json").write_text("no resources")
    address = directory / "admin"
    process = await asyncio.create_subprocess_exec(
        BINARY, "--config-path", directory / "bootstrap.json", "--admin-address-path", address,
        "--disable-hot-restart", "--concurrency", "1", "--log-level", "critical",
    )  # fmt: skip
    try:
        await until(lambda: address.exists() and address.read_text())
        yield int(address.read_text().rpartition(":")[2])
    finally:
        process.kill()
        await process.wait()


async def test_envoy_is_ready_once_it_took_its_listeners(tmp_path: Path) -> None:
    async with running_envoy(tmp_path) as port, status_server(admin_port=port) as status:
        before = await status.ask("/healthz/ready")
        new = tmp_path / "new.json"
        new.write_text(EMPTY)
        new.rename(tmp_path / "lds.json")  # Envoy watches for moves
        after = [before.status]

        async with asyncio.timeout(10):
            while after[-1] != 200:
                after.append((await status.ask("/healthz/ready")).status)

    assert before.body.startswith(b"config not ")
    assert b"; lds updates: 0 successful, " in before.body
    assert set(after) == {503, 200}


async def test_envoys_page_is_merged(tmp_path: Path) -> None:
    async with running_envoy(tmp_path) as port:
        scrape = ScrapeSettings(envoy_port=port)
        async with status_server(admin_port=port, scrape=scrape) as status:
            response = await status.ask("/metrics?filter=server.live")

    families = text_string_to_metric_families(response.body.decode())
    names = {family.name for family in families}
    assert {"envoy_server_live", "istio_agent_scrapes"} <= names
    assert "envoy_server_uptime" not in names


@pytest.mark.parametrize("strict", [False, True], ids=["passed on", "strict"])
async def test_envoys_page_is_valid_beside_openmetrics_and_keeps_its_series(
    tmp_path: Path,
    strict: bool,  # noqa: FBT001 -- a column
) -> None:
    """D19; cases.md M3, M9."""
    application = Pages({"/metrics": page("# TYPE app gauge\napp 1\n# EOF\n", OM1)})
    async with running_envoy(tmp_path) as port, web_server(application) as target:
        scrape = ScrapeSettings(
            envoy_port=port, targets=(Target(target, "/metrics"),), strict=strict
        )
        async with status_server(admin_port=port, scrape=scrape) as status:
            own = await fetch("GET", "127.0.0.1", port, "/stats/prometheus", timeout_seconds=5)
            response = await status.ask("/metrics")

    families = judged(response)
    assert response.header("content-type") == OM1
    assert {family.type for family in families} >= {"counter", "gauge", "histogram", "unknown"}
    merged = series(response.body.decode())
    assert series(own.body.decode()) <= merged
    assert "app" in merged
    assert "istio_agent_scrape_dropped_total" not in response.body.decode()


def series(text: str) -> set[str]:
    """Return name and labels of every sample."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {line.rpartition(" ")[0] for line in lines}


async def test_a_pod_waits_for_its_listeners(tmp_path: Path) -> None:
    readiness = ReadinessSettings(min_listeners=2)
    async with (
        running_envoy(tmp_path) as port,
        status_server(admin_port=port, readiness=readiness) as status,
    ):
        reasons = []
        for count in (1, 2):
            new = tmp_path / "new.json"
            new.write_text(json.dumps({"resources": [listener(n) for n in range(count)]}))
            new.rename(tmp_path / "lds.json")
            async with asyncio.timeout(10):
                while True:
                    answer = await status.ask("/healthz/ready")
                    reason = answer.body.decode().partition("\n")[0]
                    if answer.status == 200 or reason.startswith("listeners active: 1"):
                        break
            reasons.append(reason)

    assert reasons == ["listeners active: 1, expected at least 2", ""]


def listener(number: int) -> dict[str, object]:
    proxy = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "test",
        "cluster": "none",
    }
    return {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": f"listener{number}",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{"name": "tcp", "typed_config": proxy}]}],
    }
