"""Probes of an application that is an Envoy: HTTP/2 by somebody else, also while it drains."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.status.probes import HttpProbe
from agent.status.settings import ProbeSettings
from tests.envoy.identity_envoy import HTTP, ROUTER, TLS
from tests.envoy.xds_envoy import RunningEnvoy, envoy_of
from tests.fakes.control_plane import Authority
from tests.fakes.status import status_server

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

PATH = "/app-health/web/readyz"
BODY = "over two"


def bootstrap(directory: Path, protocols: list[str]) -> dict[str, object]:
    """Return an Envoy on any port that speaks TLS and answers by itself."""
    answer = {"status": 203, "body": {"inline_string": BODY}}
    host = {"name": "all", "domains": ["wiki"], "routes": [{"match": {"prefix": "/"}}]}
    host["routes"][0]["direct_response"] = answer  # type: ignore[index]  # JSON
    manager = {
        "@type": HTTP,
        "stat_prefix": "in",
        "route_config": {"virtual_hosts": [host]},
        "http_filters": [ROUTER],
    }
    files = {"certificate_chain": "certificate.pem", "private_key": "key.pem"}
    certificate = {name: {"filename": str(directory / file)} for name, file in files.items()}
    common = {"tls_certificates": [certificate], "alpn_protocols": protocols}
    socket = {"@type": f"{TLS}.DownstreamTlsContext", "common_tls_context": common}
    chain = {
        "filters": [{"name": "http", "typed_config": manager}],
        "transport_socket": {"name": "tls", "typed_config": socket},
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    return {
        "admin": {"address": {"pipe": {"path": str(directory / "admin")}}},
        "static_resources": {
            "listeners": [{"name": "in", "address": address, "filter_chains": [chain]}]
        },
    }


@contextlib.asynccontextmanager
async def application(directory: Path, *protocols: str) -> AsyncIterator[tuple[int, RunningEnvoy]]:
    """Run an Envoy that stands for an application; yield its port."""
    pair = Authority().issue("application")
    (directory / "certificate.pem").write_bytes(pair.certificate)
    (directory / "key.pem").write_bytes(pair.key)
    async with envoy_of(RunningEnvoy, directory, bootstrap(directory, list(protocols))) as envoy:
        await envoy.live()
        listeners = json.loads(await envoy.admin("listeners?format=json"))
        address = listeners["listener_statuses"][0]["local_address"]["socket_address"]
        yield address["port_value"], envoy


async def served(envoy: RunningEnvoy, version: int) -> int:
    """Return how many requests came by a version of HTTP."""
    text = await envoy.admin(f"stats?filter=http.in.downstream_cx_http{version}_total")
    return int(text.rpartition(":")[2])


@pytest.mark.parametrize(
    ("protocols", "offers_alpn", "version"),
    [(("h2",), True, 2), (("h2", "http/1.1"), True, 2), (("h2", "http/1.1"), False, 1)],
)
async def test_an_envoy_is_probed_by_the_version_it_agrees_on(
    tmp_path: Path,
    protocols: tuple[str, ...],
    offers_alpn: bool,  # noqa: FBT001 -- a column
    version: int,
) -> None:
    """cases.md P3; and while it drains, when it says goodbye before it answers."""
    async with application(tmp_path, *protocols) as (port, envoy):
        probes = ProbeSettings(
            {PATH: HttpProbe("/", port, is_tls=True)}, "127.0.0.1", offers_alpn=offers_alpn
        )
        async with status_server(probes=probes) as status:
            before = await status.ask(PATH, headers=(("Host", "wiki"),))
            await envoy.admin("drain_listeners?graceful&skip_exit", method="POST")
            during = await status.ask(PATH, headers=(("Host", "wiki"),))
            other = await status.ask(PATH)

        assert await served(envoy, version) == 3

    assert (before.status, before.body) == (203, BODY.encode())
    assert (during.status, during.body) == (203, BODY.encode())
    assert other.status == 404  # no virtual host has the address's name
