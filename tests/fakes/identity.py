"""A workload's identity at work in a test: its settings, its CA, its socket."""

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from agent.credentials.settings import TokenSettings
from agent.identity.keys import KeySettings
from agent.identity.modes import Mode
from agent.identity.names import FileResource
from agent.identity.renewal.run import Clock
from agent.identity.run import Identity, Recorder, serving
from agent.identity.settings import Address, AuthoritySettings, IdentitySettings, RotationSettings
from agent.metrics import Metrics
from tests.fakes.ca import FakeCa
from tests.fakes.control_plane import SERVER_NAME
from tests.fakes.sds_client import SdsClient, sds_client

SPIFFE_ID = "spiffe://cluster.local/ns/default/sa/hello"


def settings(directory: Path, *cas: FakeCa, tls: bool = True, **changes: Any) -> IdentitySettings:  # noqa: ANN401 - of any field
    """Return settings for elliptic keys and these CAs; the CA's root and the token are files."""
    authority = AuthoritySettings(
        addresses=tuple(Address(ca.address, SERVER_NAME, tls, send_token=True) for ca in cas),
        metadata=(("clusterid", "Kubernetes"),),
        root=str(directory / "ca-root.pem"),
        token=TokenSettings(str(directory / "token")),
    )
    authority = authority._replace(**changes.pop("authority", {}))
    return IdentitySettings(
        key=KeySettings(SPIFFE_ID, elliptic=True), authority=authority, **changes
    )


def mode(directory: Path, **changes: Any) -> Mode:  # noqa: ANN401 - of any field
    """Return a mode in which a CA issues, and nothing is mounted."""
    mounted = directory / "certs"
    made = Mode(
        socket_path=str(directory / "sds"),
        pair=FileResource(f"{mounted}/cert-chain.pem", f"{mounted}/key.pem"),
        root=FileResource(f"{mounted}/root-cert.pem"),
        has_authority=True,
    )
    return made._replace(**changes)


class Bench(NamedTuple):
    """What a test has in hand."""

    identity: Identity
    client: SdsClient
    metrics: Metrics
    path: str

    def metric(self, line: str) -> float | None:
        """Return the value of a series, such as 'x{type="sds"}'; None if there is none."""
        for each in self.metrics.render().splitlines():
            if each.startswith(f"istio_agent_{line} "):
                return float(each.rpartition(" ")[2])
        return None


@contextlib.asynccontextmanager
async def serving_identity(
    settings: IdentitySettings, mode: Mode, *, clock: Clock | None = None, crl_path: str = ""
) -> AsyncIterator[Bench]:
    """Serve secrets, with a client connected."""
    metrics = Metrics()
    async with serving(
        settings if crl_path else settings._replace(crl=False),
        mode,
        recorder=Recorder(metrics.count, metrics.set, metrics.observe),
        rng=random.random,
        clock=clock or Clock(),
        crl_path=crl_path,
    ) as identity:
        metrics.before_render(identity.collect)
        async with sds_client(mode.socket_path) as client:
            yield Bench(identity, client, metrics, mode.socket_path)


async def main(directory: Path, ca: str) -> None:
    """Serve secrets in a process of its own until killed."""
    there = FakeCa(lambda _: [])
    there.port = int(ca)
    chosen = settings(directory, there, rotation=RotationSettings(0.5, 0.0))
    async with serving_identity(chosen, mode(directory)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
