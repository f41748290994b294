"""What the relay tells of Envoy's streams, over the status port and in metrics. Source: 2.14."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.http.client import stream as http_stream
from agent.metrics import Metrics
from agent.protobuf.wire import message
from agent.xds.discovery import Kind, Resource, read_response, write_request, write_response
from agent.xds.monitor.server import KEPT_LINES, MAX_WATCHERS
from agent.xds.resources import CLUSTER, LISTENER, NAME_TABLE
from agent.xds.run import Relay, serving
from agent.xds.settings import CredentialSettings, UpstreamSettings, XdsSettings
from tests.fakes.ads_client import AdsCall, ads_client
from tests.fakes.control_plane import Stream, control_plane
from tests.fakes.relay_bench import bench, response, streaming
from tests.fakes.status import Agent, status_server
from tests.waiting import until

NODE = "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local"


def first_request(kind: Kind, type_url: str) -> bytes:
    """Return what Envoy says first: with its node."""
    node = message((1, NODE), (2, "web.shop"))
    return write_request(kind, type_url) + message((1 if kind is Kind.DELTA else 2, node))


async def push(stream: Stream, call: AdsCall, raw: bytes) -> None:
    await stream.send(raw)
    assert await call.receive() == raw


async def answer(
    stream: Stream, call: AdsCall, type_url: str, nonce: str, error: str | None = None
) -> None:
    """Have Envoy answer; return when the control plane knows."""
    said = write_request(stream.kind, type_url, version="1", nonce=nonce, error=error)
    await call.send(said)
    while await stream.receive() != said:
        pass


class Lines:
    """What a watcher is told."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._text = b""

    async def next(self) -> Any:  # noqa: ANN401 - JSON
        async with asyncio.timeout(10):
            while b"\n" not in self._text:
                self._text += await anext(self._pieces)
        line, _, self._text = self._text.partition(b"\n")
        return json.loads(line)


@asynccontextmanager
async def status_of(relay: Relay) -> AsyncIterator[int]:
    agent = Agent()
    agent.documents |= {"syncz": relay.document, "syncz/watch": relay.watch}
    async with status_server(agent=agent) as status:
        yield status.port


@asynccontextmanager
async def watching(port: int, *headers: tuple[str, str]) -> AsyncIterator[Lines]:
    target = "/debug/syncz/watch"
    async with http_stream(
        "GET", "127.0.0.1", port, target, headers=headers, timeout_seconds=None
    ) as incoming:
        assert ("Content-Type", "application/x-ndjson") in incoming.headers
        yield Lines(incoming)


def state(relay: Relay, name: str) -> Any:  # noqa: ANN401 - JSON
    return relay.document()["types"][name]["state"]


@pytest.mark.parametrize("kind", Kind)
async def test_each_type_has_its_state(kind: Kind, tmp_path: Path) -> None:
    began = time.time()
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        before = b.relay.document()
        call = b.client.open(kind)
        stream = await plane.accept()
        await call.send(first_request(kind, CLUSTER))
        await stream.receive()
        asked = b.relay.document()
        raw = response(kind, CLUSTER, b"one", b"two")
        await push(stream, call, raw)
        sent = b.relay.document()
        await answer(stream, call, CLUSTER, "n")
        synced = b.relay.document()
        await push(stream, call, response(kind, CLUSTER, b"bad", nonce="m"))
        await answer(stream, call, CLUSTER, "m", error="no such cluster")
        refused = b.relay.document()

    assert b.relay.passed() == {"requests": 3, "responses": 2, "refused": 1}
    none = {
        "address": plane.address,
        "state": "disconnected",
        "problem": None,
        "last_error": None,
        "sessions": 0,
        "stream": None,
    }
    assert before == {"connection": none, "types": {}}
    connection = asked["connection"]
    assert connection["problem"] == f"control plane {plane.address}: no answer yet"
    assert (connection["state"], sent["connection"]["state"]) == ("connecting", "connected")
    assert (connection["sessions"], connection["stream"]["node"]) == (1, NODE)
    assert connection["stream"]["kind"] == {Kind.SOTW: "sotw", Kind.DELTA: "delta"}[kind]
    assert began <= connection["stream"]["since"] <= time.time()
    assert connection["stream"]["requests"] == 1
    asked, sent, synced = (each["types"]["cds"] for each in (asked, sent, synced))
    assert (asked["state"], asked["sent"]) == ("NOT SENT", None)
    assert asked["subscribed"] >= began - 0.001
    assert sent["state"] == "STALE"
    assert sent["sent"].items() >= {"version": "1", "nonce": "n", "resources": 2}.items()
    assert sent["sent"]["bytes"] == len(raw)
    assert (sent["answered"], sent["acknowledged"]) == (None, None)
    assert (synced["state"], synced["acknowledged"]) == ("SYNCED", sent["sent"])
    assert synced["milliseconds"] >= 0
    assert synced["last_nack"] is None
    assert refused["connection"]["stream"]["response_bytes"] > len(raw)
    refused = refused["types"]["cds"]
    assert (refused["state"], refused["acknowledged"]["nonce"]) == ("STALE", "n")
    assert (refused["last_nack"]["nonce"], refused["last_nack"]["error"]) == (
        "m",
        "no such cluster",
    )


async def test_a_new_stream_begins_anew_and_none_is_none(tmp_path: Path) -> None:
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        first = b.client.open(Kind.DELTA)
        await first.send(write_request(Kind.DELTA, CLUSTER))
        await (await plane.accept()).receive()
        second = b.client.open(Kind.DELTA)
        stream = await plane.accept()
        await second.send(write_request(Kind.DELTA, LISTENER))
        await stream.receive()
        await first.status()
        now = b.relay.document()
        await second.half_close()
        await second.status()

        assert (now["connection"]["sessions"], list(now["types"])) == (2, ["lds"])
        assert b.relay.document()["connection"]["stream"] is None


@pytest.mark.parametrize("kind", Kind)
async def test_the_agents_own_answers_count_and_what_is_dropped_does_not(
    kind: Kind, tmp_path: Path
) -> None:
    def take(resource: bytes | None) -> None:
        if resource == b"garbage":
            raise ValueError("no name table")

    taking = {"deliver": {NAME_TABLE: take}, "subscribe": (NAME_TABLE,)}
    async with streaming(tmp_path, kind, **taking) as (b, call, stream):
        await call.send(write_request(kind, LISTENER))
        for _ in range(2):
            await stream.receive()
        states = [state(b.relay, "nds")]
        for nonce, body in (("1", b"table"), ("2", b"garbage")):
            await stream.send(response(kind, NAME_TABLE, body, nonce=nonce))
            await stream.receive()
            states.append(state(b.relay, "nds"))
        wrong = [Resource(CLUSTER, "", "", b"")]
        await stream.send(write_response(kind, NAME_TABLE, version="1", nonce="3", resources=wrong))
        await stream.receive()
        await stream.send(response(kind, "istio.io/debug", b"x"))
        await push(stream, call, response(kind, LISTENER))
        found = b.relay.document()["types"]

    assert states == ["NOT SENT", "SYNCED", "STALE"]
    assert list(found) == ["lds", "nds"]
    assert found["nds"]["last_nack"]["error"].startswith("expected a resource of")
    assert b.counts["pilot_total_xds_rejects", "nds"] == 2


async def test_figures_by_type(tmp_path: Path) -> None:
    metrics = Metrics()
    async with streaming(tmp_path, Kind.DELTA, observe=metrics.observe) as (b, call, stream):
        for nonce, error in (("1", None), ("2", "bad"), ("3", None)):
            await push(stream, call, response(Kind.DELTA, CLUSTER, nonce=nonce))
            await answer(stream, call, CLUSTER, nonce, error)
        await answer(stream, call, CLUSTER, "1")
        text = metrics.render()

    assert 'istio_agent_xds_proxy_push_ack_seconds_count{type="cds"} 2\n' in text
    assert b.counts["pilot_total_xds_rejects", "cds"] == 1
    assert b.counts["pilot_xds_expired_nonce", "cds"] == 1


@pytest.mark.parametrize("kind", Kind)
async def test_a_watcher_is_told_of_each_push_with_its_answer(kind: Kind, tmp_path: Path) -> None:
    def named(*names: str, nonce: str, removed: tuple[str, ...] = ()) -> bytes:
        resources = [Resource(CLUSTER, name, "", message((1, name), (2, nonce))) for name in names]
        return write_response(
            kind, CLUSTER, version=f"v{nonce}", nonce=nonce, resources=resources, removed=removed
        )

    pushes = {
        "1": named("a", "b", nonce="1"),
        "2": named("b", "c", nonce="2", removed=("a",)),
        "3": named("b", nonce="3", removed=("c",)),
    }
    async with (
        control_plane() as plane,
        bench(tmp_path, plane.address) as b,
        status_of(b.relay) as port,
        # Whoever can take it compressed gets it at once all the same.
        watching(port, ("Accept-Encoding", "gzip")) as lines,
    ):
        begin = await lines.next()
        call = b.client.open(kind)
        stream = await plane.accept()
        await call.send(first_request(kind, CLUSTER))
        await stream.receive()  # a push may not come before it: who watches takes note of it
        for nonce, error in (("1", None), ("2", "bad port"), ("3", None)):
            await push(stream, call, pushes[nonce])
            if nonce != "3":
                await answer(stream, call, CLUSTER, nonce, error)
        stream.end()
        await call.status()
        told = [await lines.next() for _ in range(3)]

    assert begin["types"] == {}
    assert [each["result"] for each in told] == ["ACK", "NACK", "unanswered"]
    assert [each["error"] for each in told] == [None, "bad port", None]
    assert [each["version"] for each in told] == ["v1", "v2", "v3"]
    assert [each["bytes"] for each in told] == [len(raw) for raw in pushes.values()]
    assert [each["names"] for each in told] == [
        {"added": ["a", "b"]},
        {"added": ["c"], "changed": ["b"], "removed": ["a"]},
        {"changed": ["b"], "removed": ["c"]},
    ]
    assert told[1]["change"] == {"added": 1, "changed": 1, "removed": 1, "unknown": 0}
    assert told[0]["milliseconds"] >= 0
    assert told[2]["milliseconds"] is None


async def test_who_begins_to_watch_later_cannot_tell_what_is_new(tmp_path: Path) -> None:
    async with streaming(tmp_path, Kind.DELTA) as (b, call, stream):
        await call.send(first_request(Kind.DELTA, CLUSTER))
        await push(stream, call, response(Kind.DELTA, CLUSTER, b"x"))
        async with aclosing(b.relay.watch()) as pieces:
            lines = Lines(pieces)
            begin = await lines.next()
            await answer(stream, call, CLUSTER, "n")
            of_before = await lines.next()
            await push(stream, call, response(Kind.DELTA, CLUSTER, b"x", nonce="m"))
            await answer(stream, call, CLUSTER, "m")
            of_now = await lines.next()

    assert begin["types"]["cds"]["state"] == "STALE"
    assert (of_before["change"], of_before["names"]) == (None, {})
    assert of_now["names"] == {"unknown": ["r0"]}


async def test_a_node_or_a_list_of_versions_that_cannot_be_read_ends_nothing(
    tmp_path: Path,
) -> None:
    broken = write_request(Kind.DELTA, CLUSTER) + message((1, b"\xff"), (5, b"\xff"))
    odd = message((2, b"\xff"), (4, CLUSTER), (5, "n"))
    async with (
        streaming(tmp_path, Kind.DELTA) as (b, call, stream),
        aclosing(b.relay.watch()) as pieces,
    ):
        lines = Lines(pieces)
        await lines.next()
        await call.send(broken)
        assert await stream.receive() == broken
        await push(stream, call, odd)
        await answer(stream, call, CLUSTER, "n")

        assert (await lines.next())["change"] is None
        assert b.relay.document()["connection"]["stream"]["node"] is None


async def test_a_slow_watcher_is_left_behind_and_slows_nobody(tmp_path: Path) -> None:
    async with (
        streaming(tmp_path, Kind.DELTA) as (b, call, stream),
        aclosing(b.relay.watch()) as pieces,
    ):
        lines = Lines(pieces)
        await lines.next()
        for number in range(KEPT_LINES + 10):
            await push(stream, call, response(Kind.DELTA, CLUSTER, nonce=str(number)))
            await answer(stream, call, CLUSTER, str(number))
        told = [await lines.next() for _ in range(KEPT_LINES + 1)]

        assert [each["nonce"] for each in told[:-1]] == [str(each) for each in range(KEPT_LINES)]
        assert told[-1] == {"end": f"too slow: {KEPT_LINES} lines were waiting"}
        with pytest.raises(StopAsyncIteration):
            await anext(pieces)


async def test_there_may_be_few_watchers(tmp_path: Path) -> None:
    async with bench(tmp_path, "127.0.0.1:1") as b:
        watchers = [b.relay.watch() for _ in range(MAX_WATCHERS)]
        for each in watchers:
            await anext(each)
        refused = [json.loads(line) async for line in b.relay.watch()]
        await watchers[0].aclose()
        admitted = json.loads(await anext(another := b.relay.watch()))
        for each in (*watchers, another):
            await each.aclose()

    assert refused == [{"end": f"{MAX_WATCHERS} others watch already"}]
    assert "connection" in admitted


async def test_watchers_are_told_that_the_agent_ends(tmp_path: Path) -> None:
    async with bench(tmp_path, "127.0.0.1:1") as b:
        pieces = b.relay.watch()
        lines = Lines(pieces)
        await lines.next()

    assert await lines.next() == {"end": "the agent ends"}
    await pieces.aclose()


async def test_a_watcher_that_leaves_is_forgotten(tmp_path: Path) -> None:
    async def is_admitted(port: int) -> bool:
        async with watching(port) as lines:
            return "connection" in await lines.next()

    async with bench(tmp_path, "127.0.0.1:1") as b, status_of(b.relay) as port:
        async with asyncio.timeout(10):
            for _ in range(2 * MAX_WATCHERS):
                while not await is_admitted(port):
                    pass  # the server has yet to notice that another one left


async def test_local_resources_are_told_of_too(tmp_path: Path) -> None:
    upstream = UpstreamSettings("", False, "", CredentialSettings(), ())  # noqa: FBT003 - TLS
    settings = XdsSettings(str(tmp_path / "XDS"), upstream, local="builtin")
    async with (
        serving(settings, count=lambda *_, **__: None) as relay,
        ads_client(settings.socket_path) as client,
    ):
        call = client.open(Kind.DELTA)
        await call.send(first_request(Kind.DELTA, CLUSTER))
        sent = read_response(await call.receive())
        states = [state(relay, "cds")]
        await call.send(write_request(Kind.DELTA, CLUSTER, nonce=sent.nonce))
        await until(lambda: state(relay, "cds") == "SYNCED")
        await call.half_close()
        await call.status()
        after = relay.document()["connection"]

    assert states == ["STALE"]
    assert (after["address"], after["sessions"], after["stream"]) == ("builtin", 1, None)
