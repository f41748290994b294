"""Readiness and the merged page, asked of a real Envoy."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import envoy
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.status.settings import ScrapeSettings
from tests.fakes.status import status_server
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
