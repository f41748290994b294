"""An Envoy without an agent, on whatever ports are free, and connections to it."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import envoy

from agent.http.client import fetch
from agent.lifecycle.client import Admin
from tests.waiting import block_until

ENVOY = Path(envoy.__file__).parent / "_bin" / "envoy"
FILTERS = "type.googleapis.com/envoy.extensions.filters"
LOCAL = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def http_manager(prefix: str, *routes: object, **members: object) -> dict[str, object]:
    """Return a network filter that speaks HTTP."""
    router = {"@type": f"{FILTERS}.http.router.v3.Router"}
    manager = {
        "@type": f"{FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": prefix,
        "route_config": {"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [*routes]}]},
        "http_filters": [{"name": "router", "typed_config": router}],
        **members,
    }
    return {"name": "http", "typed_config": manager}


async def eventually(condition: Callable[[], Awaitable[bool | None]]) -> None:
    """Return when another process is as far as that."""
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110 - each look is a request
            await asyncio.sleep(0.005)


@contextmanager
def running(directory: Path, document: object, *options: str) -> Iterator[int]:
    """Run an Envoy; yield its admin port."""
    config, admin = directory / "envoy.json", directory / "admin"
    config.write_text(json.dumps(document))
    usual = ["--disable-hot-restart", "-l", "critical", "--concurrency", "1"]
    child = subprocess.Popen([ENVOY, "-c", config, "--admin-address-path", admin, *usual, *options])
    try:
        block_until(lambda: admin.exists() and admin.read_text())
        yield int(admin.read_text().rpartition(":")[2])
    finally:
        child.kill()
        child.wait()


async def listener_ports(admin: Admin) -> dict[str, int]:
    """Return the ports of an Envoy's listeners, once it is live."""
    await eventually(admin.is_live)
    answer = await fetch("GET", admin.host, admin.port, "/listeners?format=json", timeout_seconds=5)
    return {
        each["name"]: each["local_address"]["socket_address"]["port_value"]
        for each in json.loads(answer.body)["listener_statuses"]
        if "socket_address" in each["local_address"]
    }


class Client:
    """A connection on which bytes are sent and awaited."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def exchange(self, sent: bytes, expected: bytes) -> bytes:
        """Send, and return what has arrived when the expected bytes are among it."""
        self.writer.write(sent)
        received = b""
        async with asyncio.timeout(10):
            while expected not in received:
                data = await self.reader.read(65536)
                assert data, received
                received += data
        return received

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield client
    finally:
        await client.close()
