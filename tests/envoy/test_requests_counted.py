"""What a real Envoy counts as requests under way: upgrades and tunnels, idle and busy."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import h2.config
import h2.connection
import pytest

from agent.lifecycle.client import Admin
from agent.lifecycle.drain import REQUESTS_TARGET, count_requests
from tests.envoy.bare_envoy import (
    FILTERS,
    LOCAL,
    REQUEST,
    Client,
    connected,
    eventually,
    http_manager,
    listener_ports,
    running,
)

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

EXTENSIONS = FILTERS.removesuffix(".filters")
UPGRADE = b"GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
UPGRADED = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CONNECT = b"CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n"


def listener(name: str, filters: list[object], **members: object) -> dict[str, object]:
    where = {"internal_listener": {}} if name == "main_internal" else {"address": LOCAL}
    return {"name": name, **where, "filter_chains": filters, **members}


def http(prefix: str, *routes: object, **members: object) -> dict[str, object]:
    """Return a filter chain that speaks HTTP, whatever it is upgraded to."""
    manager = http_manager(
        prefix,
        *routes,
        upgrade_configs=[{"upgrade_type": "websocket"}, {"upgrade_type": "CONNECT"}],
        http2_protocol_options={"allow_connect": True},
    )
    return {"filters": [manager], **members}


def tunnel(cluster: str) -> dict[str, object]:
    """Return a route that ends a client's tunnel here."""
    upgrade = {"upgrade_type": "CONNECT", "connect_config": {}}
    route = {"cluster": cluster, "upgrade_configs": [upgrade]}
    return {"match": {"connect_matcher": {}}, "route": route}


def bootstrap(application: int) -> dict[str, object]:
    """Return an Envoy that takes HTTP and tunnels, and the mesh's own tunnels as istiod has it."""
    to_application = {"match": {"prefix": "/"}, "route": {"cluster": "application"}}
    raw = {
        "@type": f"{FILTERS}.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "raw",
        "cluster": "application",
    }
    inspector = {"@type": f"{FILTERS}.listener.http_inspector.v3.HttpInspector"}
    inner = [
        http(
            "inbound_0.0.0.0_8080;",
            to_application,
            filter_chain_match={"application_protocols": ["http/1.1"]},
        ),
        {"filters": [{"name": "raw", "typed_config": raw}]},
    ]
    address = {"socket_address": {"address": "127.0.0.1", "port_value": application}}
    internal = {"envoy_internal_address": {"server_listener_name": "main_internal"}}
    extension = f"{EXTENSIONS}.bootstrap.internal_listener.v3.InternalListener"
    return {
        "admin": {"address": LOCAL},
        "bootstrap_extensions": [{"name": "internal", "typed_config": {"@type": extension}}],
        "static_resources": {
            "listeners": [
                listener("inbound", [http("inbound", tunnel("application"), to_application)]),
                listener("connect_terminate", [http("connect_terminate", tunnel("main_internal"))]),
                listener(
                    "main_internal",
                    inner,
                    listener_filters=[{"name": "inspector", "typed_config": inspector}],
                ),
            ],
            "clusters": [
                {
                    "name": name,
                    "load_assignment": {
                        "cluster_name": name,
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": where}}]}],
                    },
                }
                for name, where in (("application", address), ("main_internal", internal))
            ],
        },
    }


@asynccontextmanager
async def application() -> AsyncIterator[int]:
    """Yield the port of a server that answers requests, upgrades them, and echoes the rest."""

    serving = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        with suppress(ConnectionError):  # of an Envoy that was killed
            while data := await reader.read(65536):
                is_upgrade = b"upgrade: websocket" in data.lower()
                writer.write(UPGRADED if is_upgrade else ANSWER if b"HTTP/1.1" in data else data)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*filter(None, serving))  # nobody is connected any more


class Counted:
    """An Envoy, where its listeners are, and what it counts."""

    def __init__(self, admin: Admin, ports: dict[str, int]) -> None:
        self.admin = admin
        self.ports = ports

    async def active(self) -> int:
        activity = count_requests(await self.admin.stats(REQUESTS_TARGET), (), lambda _: None)
        return activity.active if activity else 0

    async def wait_for(self, active: int) -> None:
        """Return when so much is under way: Envoy counts what it has seen, not what was sent."""
        await eventually(lambda: self._counts(active))

    async def _counts(self, active: int) -> bool:
        return await self.active() == active


@asynccontextmanager
async def counted(directory: Path) -> AsyncIterator[Counted]:
    async with application() as port:
        with running(directory, bootstrap(port)) as admin_port:
            admin = Admin("127.0.0.1", admin_port)
            yield Counted(admin, await listener_ports(admin))


@pytest.mark.parametrize(
    ("greeting", "answer"),
    [(UPGRADE, b"101 Switching"), (CONNECT, b"200 OK")],
    ids=["WebSocket", "CONNECT"],
)
async def test_an_upgraded_request_is_under_way_until_it_is_closed(
    tmp_path: Path, greeting: bytes, answer: bytes
) -> None:
    async with counted(tmp_path) as it:
        async with connected(it.ports["inbound"]) as client:
            await client.exchange(greeting, answer)
            await client.exchange(b"ping", b"ping")

            await it.wait_for(active=1)

        await it.wait_for(active=0)


async def test_a_kept_connection_is_nothing_under_way(tmp_path: Path) -> None:
    """Case D7."""
    async with counted(tmp_path) as it, connected(it.ports["inbound"]) as client:
        await client.exchange(REQUEST, b"ok")

        await it.wait_for(active=0)


class Tunnel:
    """A tunnel as the mesh's other end makes it: CONNECT on HTTP/2."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                validate_outbound_headers=False, normalize_outbound_headers=False
            )
        )

    async def open(self) -> None:
        self._h2.initiate_connection()
        self._h2.send_headers(1, [(":method", "CONNECT"), (":authority", "10.0.0.1:8080")])
        self._client.writer.write(self._h2.data_to_send())

    async def exchange(self, sent: bytes, expected: bytes) -> None:
        self._h2.send_data(1, sent)
        await self._client.exchange(self._h2.data_to_send(), expected)


@pytest.mark.parametrize(
    ("sent", "answer", "active"),
    [(REQUEST, b"ok", 0), (b"\x00ping", b"\x00ping", 1)],
    ids=["idle HTTP", "another protocol"],
)
async def test_a_tunnel_of_the_mesh_is_what_comes_through_it(
    tmp_path: Path, sent: bytes, answer: bytes, active: int
) -> None:
    async with counted(tmp_path) as it:
        async with connected(it.ports["connect_terminate"]) as client:
            tunnel = Tunnel(client)
            await tunnel.open()
            await tunnel.exchange(sent, answer)

            await it.wait_for(active=active)
            stats = await it.admin.stats(REQUESTS_TARGET)
            assert "http.connect_terminate.downstream_rq_active: 1" in stats

        await it.wait_for(active=0)
