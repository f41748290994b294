"""A relay to a plaintext control plane, a client on its socket, and what it counted."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from agent.credentials.settings import TokenSettings
from agent.xds.discovery import Kind, Resource, write_response
from agent.xds.run import Consume, Convert, Relay, serving
from agent.xds.settings import (
    CacheSettings,
    CredentialSettings,
    KeepaliveSettings,
    PatienceSettings,
    UpstreamSettings,
    XdsSettings,
)
from tests.fakes.ads_client import AdsCall, AdsClient, ads_client
from tests.fakes.control_plane import Stream, control_plane

CANCELLED = ("istiod_connection_terminations", "cancelled")
ERROR = ("istiod_connection_terminations", "error")
ENVOY_CANCELLED = ("envoy_connection_terminations", "cancelled")
ENVOY_ERROR = ("envoy_connection_terminations", "error")


class Counts(Counter[tuple[str, str]]):
    """Counters by name and type label; `changed` is set by each."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        self[name, labels.get("type", "")] += amount
        self.changed.set()

    async def reach(self, key: tuple[str, str], value: int = 1) -> None:
        async with asyncio.timeout(10):
            while self[key] < value:
                self.changed.clear()
                await self.changed.wait()


class Bench:
    """A relay, its client and what it counted."""

    def __init__(self, relay: Relay, client: AdsClient, counts: Counts, path: str) -> None:
        self.relay = relay
        self.client = client
        self.counts = counts
        self.path = path


@contextlib.asynccontextmanager
async def bench(
    directory: Path,
    address: str,
    *,
    deliver: Mapping[str, Consume] | None = None,
    convert: Mapping[str, Convert] | None = None,
    subscribe: tuple[str, ...] = (),
    metadata: tuple[tuple[str, str], ...] = (("clusterid", ""),),
    keepalive: KeepaliveSettings = KeepaliveSettings(),  # noqa: B008 - immutable
    max_receive_bytes: int = 4_194_304,
    observe: Callable[..., None] = lambda *_, **__: None,
    others: tuple[str, ...] = (),
    proxy: str = "",
    patience: PatienceSettings = PatienceSettings(),  # noqa: B008 - immutable
    cache: CacheSettings = CacheSettings(),  # noqa: B008 - immutable
    rng: Callable[[], float] = lambda: 0.0,
) -> AsyncIterator[Bench]:
    """Run a relay to a plaintext control plane, and connect a client."""
    upstream = UpstreamSettings(
        address=address,
        tls=False,
        server_name="istiod",
        credentials=CredentialSettings(),
        metadata=metadata,
        token=TokenSettings(str(directory / "token")),
        proxy=proxy,
    )
    settings = XdsSettings(
        socket_path=str(directory / "proxy" / "XDS"),
        upstream=upstream,
        others=tuple(upstream._replace(address=other) for other in others),
        keepalive=keepalive,
        max_receive_bytes=max_receive_bytes,
        patience=patience,
        cache=cache,
    )
    counts = Counts()
    async with (
        serving(
            settings,
            count=counts.add,
            observe=observe,
            deliver=deliver,
            convert=convert,
            subscribe=subscribe,
            rng=rng,
        ) as relay,
        ads_client(settings.socket_path) as client,
    ):
        yield Bench(relay, client, counts, settings.socket_path)


@contextlib.asynccontextmanager
async def streaming(
    directory: Path,
    kind: Kind,
    **options: Any,  # noqa: ANN401 - those of `bench`
) -> AsyncIterator[tuple[Bench, AdsCall, Stream]]:
    """Run a relay to a control plane of its own; open a stream, here and there."""
    async with (
        control_plane() as plane,
        bench(directory, plane.address, **options) as made,
    ):
        call = made.client.open(kind)
        yield made, call, await plane.accept()


def response(kind: Kind, type_url: str, *bodies: bytes, nonce: str = "n") -> bytes:
    resources = [Resource(type_url, f"r{i}", "1", body) for i, body in enumerate(bodies)]
    return write_response(kind, type_url, version="1", nonce=nonce, resources=resources)
