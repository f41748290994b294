"""A real Envoy gets all of its types through the relay, in order, and what changes of them."""

import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from agent.xds import resources
from agent.xds.discovery import Kind
from agent.xds.local.convert import convert
from agent.xds.settings import CacheSettings
from agent.xds.snapshot import Snapshot, make_snapshot
from tests.envoy.test_xds_cached_envoy import ADS, cluster, services
from tests.envoy.test_xds_directory import HTTP, ROUTER
from tests.envoy.test_xds_refused import Plane, serving
from tests.envoy.xds_envoy import RunningEnvoy, running_envoy
from tests.fakes.control_plane import Authority, Pair
from tests.fakes.relay_bench import bench

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

TYPES = "type.googleapis.com/envoy.extensions"
RBAC = f"{TYPES}.filters.http.rbac.v3.RBAC"
DENY: dict[str, Any] = {"rules": {}}


def listener() -> dict[str, Any]:
    """Return a listener that names a secret, an extension and routes."""
    manager = {
        "@type": f"{HTTP}.HttpConnectionManager",
        "stat_prefix": "in",
        "rds": {"config_source": ADS, "route_config_name": "routes"},
        "http_filters": [
            {"name": "guard", "config_discovery": {"config_source": ADS, "type_urls": [RBAC]}},
            {"name": "router", "typed_config": {"@type": ROUTER}},
        ],
    }
    secret = {"name": "server", "sds_config": ADS}
    tls = {
        "@type": f"{TYPES}.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": {"tls_certificate_sds_secret_configs": [secret]},
    }
    return {
        "@type": resources.LISTENER,
        "name": "listener",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [
            {
                "filters": [{"name": "http", "typed_config": manager}],
                "transport_socket": {"name": "tls", "typed_config": tls},
            }
        ],
    }


def mesh(directory: Path, pair: Pair, names: tuple[str, ...], guard: dict[str, Any]) -> Snapshot:
    """Return one resource of each type, and these clusters; routes lead to the first."""
    route = {"match": {"prefix": "/"}, "route": {"cluster": names[0]}}
    documents = [
        *(document for name in names for document in cluster(directory, name)),
        listener(),
        {
            "@type": resources.ROUTE,
            "name": "routes",
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}],
        },
        {
            "@type": resources.EXTENSION,
            "name": "guard",
            "typed_config": {"@type": RBAC, **guard},
        },
        {
            "@type": resources.SECRET,
            "name": "server",
            "tls_certificate": {
                "certificate_chain": {"inline_string": pair.certificate.decode()},
                "private_key": {"inline_string": pair.key.decode()},
            },
        },
    ]
    return make_snapshot(*convert({"x.yaml": yaml.safe_dump_all(documents).encode()}))


class Client:
    """Somebody who trusts an authority."""

    def __init__(self, authority: Authority, envoy: RunningEnvoy) -> None:
        self._trust = ssl.create_default_context(cadata=authority.root.decode())
        self._envoy = envoy

    async def ask(self) -> tuple[int, str]:
        listeners = json.loads(await self._envoy.admin("listeners?format=json"))
        (found,) = listeners["listener_statuses"]
        port = found["local_address"]["socket_address"]["port_value"]
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{port}/", ssl=self._trust) as response,
        ):
            return response.status, await response.text()


@pytest.mark.parametrize("kind", Kind)
async def test_all_types_arrive_in_order_and_change(kind: Kind, tmp_path: Path) -> None:
    """Also with a cache, which keeps no secret. Sections 2.7, 10.5; R-29."""
    authority = Authority()
    first, second = authority.issue("first"), authority.issue("second")
    plane = Plane(mesh(tmp_path, first, ("one", "gone"), {}))
    cache = CacheSettings(str(tmp_path / "kept"))
    async with (
        services(tmp_path, "one", "two", "gone"),
        serving(plane) as server,
        bench(tmp_path, server.address, cache=cache) as b,
        running_envoy(tmp_path, kind, b.path) as envoy,
    ):
        client = Client(authority, envoy)
        await envoy.live()
        answered = await client.ask()
        asked = list(b.relay.document()["types"])
        clusters = await envoy.admin("clusters")
        await plane.replace(mesh(tmp_path, second, ("two",), {}))

        async def has_followed() -> bool:
            now = await envoy.admin("clusters")
            return "gone::" not in now and await client.ask() == (200, "two")

        await envoy.until(has_followed)
        await plane.replace(mesh(tmp_path, second, ("two",), DENY))

        async def is_denied() -> bool:
            return (await client.ask())[0] == 403

        await envoy.until(is_denied)

        async def is_synced() -> bool:
            types = b.relay.document()["types"]
            return {each["state"] for each in types.values()} == {"SYNCED"}

        await envoy.until(is_synced)
        secrets = await envoy.admin("config_dump?resource=dynamic_active_secrets")

    assert answered == (200, "one")
    assert asked[:3] == ["cds", "eds", "lds"]
    assert set(asked[3:]) == {"rds", "ecds", "sds"}
    assert "gone::" in clusters
    assert json.loads(secrets)["configs"][0]["name"] == "server"
    kept = b"".join(path.read_bytes() for path in (tmp_path / "kept").iterdir())
    assert b"routes" in kept
    assert b"PRIVATE KEY" not in kept
