"""Two pods with a real Envoy each talk by mutual TLS while their certificates change."""

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import pytest

from agent.credentials.x509 import certificates, read_certificate
from agent.demo.addresses import CABLE
from agent.demo.commands import enter
from agent.demo.process import Namespace, network
from agent.identity.settings import RotationSettings
from tests.envoy.identity_envoy import Json, MeshEnvoy, calling_side, mesh_envoy, serving_side
from tests.fakes.ca import CsrCall, FakeCa, Respond, Root, fake_ca
from tests.fakes.control_plane import Authority
from tests.fakes.identity import Bench, mode, serving_identity, settings
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

AUTHORITY: Final = Authority("ca")
REQUESTS_PER_SECOND: Final = 100
#: Of certificates that live for so long, in seconds; they are renewed as early as any, in their
#: second second.
LIFETIME: Final = 4
EARLY: Final = RotationSettings(grace_ratio=0.75, jitter_ratio=0.0)
Configure = Callable[[Path, Path, str], Json]


class Pod(NamedTuple):
    """An Envoy with an identity."""

    directory: Path
    identity: Bench
    envoy: MeshEnvoy

    async def rotated(self, times: int) -> None:
        """Return once Envoy has used so many certificates, each after another."""
        seen = await self.envoy.serials()
        for _ in range(times):
            before = await self.envoy.serials()

            async def has_another(before: set[int] = before) -> bool:
                return bool(await self.envoy.serials() - before)

            await self.envoy.until(has_another)
            seen |= await self.envoy.serials()
        assert len(seen) >= times

    async def trusting(self, *roots: Root) -> None:
        """Return once Envoy trusts these roots, and no others."""
        wanted = {root.certificate.serial_number for root in roots}

        async def trusts() -> bool:
            return await self.envoy.trusted() == wanted

        await self.envoy.until(trusts)


class Place(NamedTuple):
    """Where two pods run."""

    directory: Path
    node: Namespace
    inside: Namespace


class Mesh(NamedTuple):
    """Who asks, and who answers."""

    calling: Pod
    serving: Pod
    ca: FakeCa

    async def ask(self) -> int:
        """Return the status of one request, made by a new handshake between the pods."""
        connector = aiohttp.UnixConnector(str(self.calling.directory / "in"))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get("http://peer/") as response,
        ):
            await response.read()
            return response.status

    async def until_answered(self, status: int) -> None:
        """Return once a request gets this status."""

        async def has_status() -> bool:
            return await self.ask() == status

        await self.calling.envoy.until(has_status)

    @contextlib.asynccontextmanager
    async def load(self) -> AsyncIterator[Counter[int]]:
        """Ask again and again; yield how often there was which status."""
        statuses: Counter[int] = Counter()
        asking: set[asyncio.Task[None]] = set()

        async def one() -> None:
            statuses[await self.ask()] += 1

        async def many() -> None:
            while True:
                task = asyncio.create_task(one())
                asking.add(task)
                task.add_done_callback(asking.discard)
                await asyncio.sleep(1 / REQUESTS_PER_SECOND)

        generator = asyncio.create_task(many())
        try:
            yield statuses
        finally:
            generator.cancel()
            await asyncio.wait((generator,))
            await asyncio.gather(*asking)


@contextlib.asynccontextmanager
async def mesh(place: Place, respond: Respond) -> AsyncIterator[Mesh]:
    """Run two pods on one cable, whose certificates come from one CA."""
    directory, node, inside = place
    async with (
        fake_ca(respond, directory / "ca", authority=AUTHORITY) as ca,
        pod(directory / "b", ca, inside.holder, serving_side) as serving,
        pod(directory / "a", ca, node.holder, calling_side) as calling,
    ):
        made = Mesh(calling, serving, ca)
        await made.until_answered(200)
        yield made


@contextlib.asynccontextmanager
async def pod(
    directory: Path, ca: FakeCa, namespace: int, configure: Configure
) -> AsyncIterator[Pod]:
    """Run an Envoy in a process's namespace, its secrets from a socket as the agent's."""
    (directory / "crl").mkdir(parents=True)
    (directory / "ca-root.pem").write_bytes(AUTHORITY.root)
    (directory / "token").write_text("token")
    crl_path = str(directory / "crl" / "ca-crl.pem")
    async with serving_identity(
        settings(directory, ca, rotation=EARLY), mode(directory), crl_path=crl_path
    ) as identity:
        config = configure(directory, Path(identity.path), CABLE.pod_ipv4)
        async with mesh_envoy(directory, config, enter(namespace, ())) as envoy:
            yield Pod(directory, identity, envoy)


@pytest.fixture
def place() -> Iterator[Place]:
    """A directory with a short path, for sockets in it, and two namespaces."""
    with (
        tempfile.TemporaryDirectory(prefix="mesh-") as name,
        network() as (node, inside),
    ):
        yield Place(Path(name), node, inside)


async def test_ten_rotations_fail_no_request(place: Place) -> None:
    """Each request is a handshake of its own, at a hundred a second."""
    root = Root()

    def respond(call: CsrCall) -> list[str]:
        return root.answer(call, seconds=LIFETIME)

    async with mesh(place, respond) as made, made.load() as statuses:
        await asyncio.gather(made.serving.rotated(10), made.calling.rotated(10))
        await until(lambda: statuses[200] > 1000)

    assert len(made.ca.calls) >= 20
    assert set(statuses) == {200}


async def test_a_root_is_replaced_with_an_overlap(place: Place) -> None:
    """C8: both are trusted while certificates of both are in use."""
    old, new = Root("old"), Root("new")
    signer, trusted = old, [old]

    def respond(call: CsrCall) -> list[str]:
        leaf = signer.answer(call, seconds=LIFETIME)[0]
        return [leaf, "".join(root.pem for root in trusted)]

    async with mesh(place, respond) as made, made.load() as statuses:
        for phase_signer, phase_roots in ((old, [old, new]), (new, [old, new]), (new, [new])):
            signer, trusted = phase_signer, phase_roots
            pods = (made.serving, made.calling)
            await asyncio.gather(*(each.trusting(*phase_roots) for each in pods))
            await asyncio.gather(*(each.rotated(1) for each in pods))

    assert set(statuses) == {200}
    assert statuses[200] > 300


async def test_a_revoked_client_is_refused(place: Place) -> None:
    root = Root()
    async with mesh(place, root.answer) as made:
        held = made.calling.identity.identity.workload.held
        assert held
        leaf = read_certificate(certificates(held.issued.chain)[0])
        crl = made.serving.directory / "crl" / "ca-crl.pem"

        crl.write_bytes(root.revoke(leaf.serial))
        await made.until_answered(503)
        crl.write_bytes(root.revoke(leaf.serial + 1))
        await made.until_answered(200)
        crl.write_bytes(root.revoke(leaf.serial, leaf.serial + 1))
        await made.until_answered(503)
        crl.unlink()
        await made.until_answered(200)
