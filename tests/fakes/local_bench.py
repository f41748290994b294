"""A relay that serves local resources, a client on its socket, and its problem, awaited."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from agent.credentials.settings import TokenSettings
from agent.xds.discovery import Kind, read_response, write_request
from agent.xds.resources import CLUSTER
from agent.xds.run import Relay, serving
from agent.xds.settings import CredentialSettings, UpstreamSettings, XdsSettings
from tests.fakes.ads_client import AdsCall, AdsClient, ads_client

GOOD = f'"@type": {CLUSTER}\nname: one\n'
BETTER = f'"@type": {CLUSTER}\nname: two\n'


class Noticed:
    """The relay's problem, awaited."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    async def becomes(self, text: str | None) -> str:
        """Wait until the problem has a text in it, or there is none."""
        async with asyncio.timeout(20):
            while True:
                problem = self._relay.problem()
                if (problem is None) if text is None else (text in (problem or "")):
                    return problem or ""
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def local(directory: Path, what: str) -> AsyncIterator[tuple[AdsClient, Noticed]]:
    """Serve what AGENT_LOCAL_XDS names; there is neither control plane nor root nor token."""
    upstream = UpstreamSettings(
        address="",
        tls=True,
        server_name="",
        credentials=CredentialSettings(root="/nowhere"),
        metadata=(),
        token=TokenSettings("/nowhere"),
    )
    settings = XdsSettings(str(directory / "XDS"), upstream, local=what)
    async with (
        serving(settings, count=lambda *_args, **_labels: None) as relay,
        ads_client(settings.socket_path) as client,
    ):
        yield client, Noticed(relay)


async def subscribed(client: AdsClient, kind: Kind = Kind.SOTW, type_url: str = CLUSTER) -> AdsCall:
    call = client.open(kind)
    await call.send(write_request(kind, type_url))
    return call


async def accept(call: AdsCall, kind: Kind, raw: bytes) -> None:
    head = read_response(raw)
    await call.send(write_request(kind, head.type_url, version=head.version, nonce=head.nonce))


async def served(call: AdsCall, name: bytes) -> None:
    """Accept responses until one has this resource alone."""
    async with asyncio.timeout(20):
        while True:
            raw = await call.receive()
            await accept(call, Kind.SOTW, raw)
            if name in raw and read_response(raw).resource_count == 1:
                return
