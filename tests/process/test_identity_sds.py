"""SDS over the socket, with secrets that a test sets. Source: sections 4.1 to 4.6; 11.3, T-S."""

import asyncio
import contextlib
import re
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from agent.errors import SecretError
from agent.identity.secret import HEALTH, KeyPair, PrivateKey, Roots, Secret
from agent.identity.server import Recorder, SdsServer
from agent.metrics import Metrics
from tests.fakes.sds_client import SdsClient, sds_client
from tests.waiting import listens, until


class Source:
    """Where secrets come from."""

    def __init__(self) -> None:
        self.secrets: dict[str, Secret] = {
            "default": KeyPair(b"chain 1", PrivateKey(b"key 1")),
            "ROOTCA": Roots(b"root 1"),
        }
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.asked = asyncio.Event()

    async def get(self, name: str) -> Secret:
        self.asked.set()
        await self.may_go_on.wait()
        try:
            return self.secrets[name]
        except KeyError:
            raise SecretError("no such file") from None


class Bench(NamedTuple):
    server: SdsServer
    source: Source
    client: SdsClient
    metrics: Metrics


@contextlib.asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Bench]:
    source, metrics = Source(), Metrics()
    server = SdsServer(source.get, None, Recorder(metrics.count, metrics.set, metrics.observe))
    async with (
        asyncio.TaskGroup() as tasks,
        server.serving(str(path), tasks),
        sds_client(str(path)) as client,
    ):
        yield Bench(server, source, client, metrics)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with serving(tmp_path / "sds") as made:
        yield made


async def test_the_socket_is_for_everyone_in_the_container(tmp_path: Path) -> None:
    path = tmp_path / "new" / "sds"
    async with serving(path):
        modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)]

    assert modes == [0o750, 0o666]
    assert not path.exists()


async def test_only_what_was_added_is_sent(bench: Bench) -> None:
    """T-S1."""
    call = bench.client.open()
    first = await call.fetch("default")
    await call.acknowledge(first, "default", "ROOTCA")
    second = await call.receive()
    await call.acknowledge(second, "default", "ROOTCA")

    assert (first.names, first.chain(), first.key()) == (["default"], b"chain 1", b"key 1")
    assert (second.names, second.roots()) == (["ROOTCA"], b"root 1")
    assert await call.is_silent("default", "ROOTCA")


async def test_versions_and_nonces_are_unlike_any_other(bench: Bench) -> None:
    """Section 4.4."""
    replies = [await bench.client.open().fetch("default") for _ in range(3)]

    versions = [reply.version.partition("/") for reply in replies]
    assert [number for _, _, number in versions] == ["1", "2", "3"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", at) for at, _, _ in versions)
    uuid4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert all(re.fullmatch(uuid4, reply.nonce) for reply in replies)
    assert len({reply.nonce for reply in replies}) == 3


async def test_streams_get_what_each_of_them_asked_for(bench: Bench) -> None:
    """T-S2, T-S7."""
    calls = [bench.client.open() for _ in range(20)]
    names = ["default", "ROOTCA"] * 10

    replies = await asyncio.gather(
        *(call.fetch(name) for call, name in zip(calls, names, strict=True))
    )

    assert [reply.names for reply in replies] == [[name] for name in names]


async def test_a_secret_that_cannot_be_had_ends_the_stream(bench: Bench) -> None:
    """T-S3."""
    call = bench.client.open()
    await call.ask("default", "other")
    code, details = await call.status()
    bench.source.secrets["other"] = Roots(b"now")
    reply = await bench.client.open().fetch("other")

    assert code is grpc.StatusCode.UNKNOWN
    assert details == "failed to generate secret for other: no such file"
    assert reply.roots("other") == b"now"
    assert 'istio_agent_pilot_total_xds_internal_errors{type="sds"} 1' in bench.metrics.render()


async def test_a_secret_that_disappears_ends_the_stream(bench: Bench) -> None:
    """T-S4, R-4."""
    call = bench.client.open()
    await call.fetch("default")

    del bench.source.secrets["default"]
    bench.server.publish("default")

    assert (await call.status())[0] is grpc.StatusCode.UNKNOWN


async def test_a_change_reaches_those_who_are_subscribed(bench: Bench) -> None:
    """T-S5."""
    one, other = bench.client.open(), bench.client.open()
    await one.fetch("default", "ROOTCA")
    await other.fetch("ROOTCA")

    bench.source.secrets["default"] = KeyPair(b"chain 2", PrivateKey(b"key 2"))
    bench.server.publish("default")
    pushed = await one.receive()

    assert (pushed.names, pushed.chain(), pushed.key()) == (["default"], b"chain 2", b"key 2")
    assert await other.is_silent("ROOTCA")
    assert bench.server.subscribed() == {"default", "ROOTCA"}


async def test_a_change_that_changes_nothing_is_not_sent(bench: Bench) -> None:
    call = bench.client.open()
    await call.fetch("default")

    bench.server.publish("default")

    assert await call.is_silent("default")


async def test_a_change_during_a_reply_is_sent_once(bench: Bench) -> None:
    """Envoy waits for its first certificate, and it arrives."""
    bench.source.may_go_on.clear()
    call = bench.client.open()
    await call.ask("default")
    await bench.source.asked.wait()
    bench.server.publish("default")
    bench.source.may_go_on.set()

    assert (await call.receive()).names == ["default"]
    assert await call.is_silent("default")


async def test_after_a_reconnect_everything_is_sent(bench: Bench) -> None:
    """T-S6."""
    before = await bench.client.open().fetch("default")
    call = bench.client.open()
    await call.ask("default", nonce=before.nonce, version=before.version)

    assert (await call.receive()).names == ["default"]


async def test_requests_that_call_for_nothing_get_nothing(bench: Bench) -> None:
    """T-S8, T-S9; a stale nonce, a refusal, another type."""
    call = bench.client.open()
    await call.ask(kind=HEALTH, node="")
    await call.ask("default", node="me")
    reply = await call.receive()
    await call.ask("default", nonce="stale")
    await call.ask("default", nonce=reply.nonce, error="bad")
    await call.ask("default", "ROOTCA", nonce=reply.nonce, kind="other")
    await call.ask(nonce=reply.nonce)
    bench.server.publish("default")

    assert await call.is_silent("ROOTCA")
    rendered = bench.metrics.render()
    assert 'istio_agent_pilot_total_xds_rejects{type="sds"} 1' in rendered
    assert 'istio_agent_pilot_xds_expired_nonce{type="sds"} 1' in rendered


async def test_a_refusal_out_of_the_blue_is_survived(bench: Bench) -> None:
    """D-19."""
    call = bench.client.open()
    await call.ask("default", error="bad")

    assert (await call.fetch("default")).names == ["default"]


async def test_who_does_not_say_who_it_is_gets_nothing(bench: Bench) -> None:
    call = bench.client.open()
    await call.ask("default", node="")

    assert await call.status() == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "missing node information",
    )


async def test_what_is_no_request_ends_the_stream(bench: Bench) -> None:
    call = bench.client.open()
    await call.send_raw(b"\x0a")

    code, details = await call.status()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("request cannot be read")


@pytest.mark.parametrize("method", ["DeltaSecrets", "FetchSecrets"])
async def test_other_methods_are_not_implemented(bench: Bench, method: str) -> None:
    call = bench.client.open(method)

    assert await call.status() == (grpc.StatusCode.UNIMPLEMENTED, f"{method} not implemented")


async def test_a_stream_that_is_gone_is_forgotten(bench: Bench) -> None:
    call = bench.client.open()
    await call.fetch("default")
    call.cancel()

    await until(lambda: not bench.server.subscribed())


async def test_a_socket_that_cannot_be_made_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "sds"
    async with serving(path) as bench:
        assert "no SDS yet" in caplog.text
        assert bench.server.problem.startswith(f"no SDS: {path}: cannot listen there: not a dir")
        (tmp_path / "file").unlink()

        await until(lambda: listens(path))
        async with sds_client(str(path)) as client:
            assert (await client.open().fetch("default")).names == ["default"]
        assert not bench.server.problem
