"""Types that are converted on their way to Envoy. Sections 2.7 and 2.8, D-8, D-26, R-7."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.protobuf.wire import message
from agent.xds.discovery import (
    Kind,
    Request,
    read_response,
    write_request,
    write_response,
)
from agent.xds.resources import CLUSTER, EXTENSION
from agent.xds.upstream.conversion.run import MOST
from tests.fakes.control_plane import Stream, control_plane
from tests.fakes.relay_bench import bench, response, streaming
from tests.waiting import until


class Converter:
    """Converts what it is let convert; a body of 'bad' is refused."""

    def __init__(self, *ready: bytes) -> None:
        self._ready: dict[bytes, asyncio.Event] = {}
        self.begun: list[bytes] = []
        for body in ready:
            self.let(body)

    def let(self, body: bytes) -> None:
        self._event(body).set()

    async def __call__(self, kind: Kind, raw: bytes) -> bytes:
        del kind
        body = next(body for body in (b"bad", b"one", b"two", b"three") if body in raw)
        self.begun.append(body)
        await self._event(body).wait()
        if body == b"bad":
            raise ValueError("no extension")
        return raw.replace(body, body.upper())

    def _event(self, body: bytes) -> asyncio.Event:
        return self._ready.setdefault(body, asyncio.Event())

    def types(self) -> Mapping[str, "Converter"]:
        return {EXTENSION: self}


@pytest.mark.parametrize("kind", Kind)
async def test_others_go_on_and_the_order_is_kept(kind: Kind, tmp_path: Path) -> None:
    """D-26: what takes longer is not overtaken by what was sent later."""
    converter = Converter(b"two")
    async with streaming(tmp_path, kind, convert=converter.types()) as (_, call, stream):
        await stream.send(response(kind, EXTENSION, b"one", nonce="1"))
        await stream.send(response(kind, EXTENSION, b"two", nonce="2"))
        clusters = response(kind, CLUSTER, b"x")
        await stream.send(clusters)
        assert await call.receive() == clusters
        assert converter.begun == [b"one", b"two"]

        converter.let(b"one")

        assert await call.receive() == response(kind, EXTENSION, b"ONE", nonce="1")
        assert await call.receive() == response(kind, EXTENSION, b"TWO", nonce="2")
        await stream.send(clusters)
        assert await call.receive() == clusters


@pytest.mark.parametrize("kind", Kind)
async def test_what_cannot_be_converted_is_refused(kind: Kind, tmp_path: Path) -> None:
    converter = Converter(b"bad", b"one", b"two")
    async with streaming(tmp_path, kind, convert=converter.types()) as (_, call, stream):
        await stream.send(response(kind, EXTENSION, b"one", nonce="1"))
        await call.receive()
        await call.send(write_request(kind, EXTENSION, version="accepted", nonce="1"))
        await stream.request()
        for body, nonce in ((b"bad", "2"), (b"two", "3")):
            await stream.send(response(kind, EXTENSION, body, nonce=nonce))

        assert await call.receive() == response(kind, EXTENSION, b"TWO", nonce="3")
        nack = await stream.request()

    assert nack == Request(EXTENSION, "accepted" if kind is Kind.SOTW else "", "2", "no extension")


async def test_a_refusal_names_what_was_accepted_on_an_earlier_stream(tmp_path: Path) -> None:
    converter = Converter(b"bad")
    async with (
        control_plane() as plane,
        bench(tmp_path, plane.address, convert=converter.types()) as b,
    ):
        first = b.client.open(Kind.SOTW)
        stream = await plane.accept()
        await first.send(write_request(Kind.SOTW, EXTENSION, version="7", nonce="n"))
        await stream.request()
        b.client.open(Kind.SOTW)
        stream = await plane.accept()
        await stream.send(response(Kind.SOTW, EXTENSION, b"bad", nonce="1"))

        assert await stream.request() == Request(EXTENSION, "7", "1", "no extension")


def names(nonce: str, *wanted: str) -> bytes:
    """Return Envoy's request for these extensions."""
    rest = message(*((3, name) for name in wanted))
    return write_request(Kind.SOTW, EXTENSION, version="1", nonce=nonce) + rest


async def test_after_a_refusal_envoy_can_change_what_it_wants(tmp_path: Path) -> None:
    """D-8: istiod drops a request with an old nonce."""
    converter = Converter(b"bad", b"one", b"two")
    async with streaming(tmp_path, Kind.SOTW, convert=converter.types()) as (_, call, stream):
        await call.send(names("", "a"))
        await stream.request()
        await stream.send(response(Kind.SOTW, EXTENSION, b"one", nonce="1"))
        await call.receive()
        await stream.send(response(Kind.SOTW, EXTENSION, b"bad", nonce="2"))
        assert (await stream.request()).error == "no extension"

        await call.send(names("1", "a"))  # the ACK of the first, late
        assert (await stream.request()).nonce == "1"
        await call.send(names("1", "a", "b"))
        assert await stream.receive() == _sorted(names("2", "a", "b"))
        await stream.send(response(Kind.SOTW, EXTENSION, b"two", nonce="3"))
        await call.receive()
        await call.send(names("3", "a", "b"))
        assert (await stream.request()).nonce == "3"


def _sorted(request: bytes) -> bytes:
    """Return a request of `names` with its nonce at the end, as the relay writes it."""
    nonce = message((5, "2"))
    return request.replace(nonce, b"") + nonce


async def test_a_stream_that_ends_takes_conversions_along(tmp_path: Path) -> None:
    converter = Converter(b"two")
    async with (
        control_plane() as plane,
        bench(tmp_path, plane.address, convert=converter.types()) as b,
    ):
        first = b.client.open(Kind.DELTA)
        old = await plane.accept()
        await old.send(response(Kind.DELTA, EXTENSION, b"one", nonce="1"))
        await old.send(response(Kind.DELTA, CLUSTER))
        await first.receive()
        second = b.client.open(Kind.DELTA)
        new = await plane.accept()

        await old.closed.wait()
        assert await first.rest() == []
        await new.send(response(Kind.DELTA, EXTENSION, b"two", nonce="1"))
        assert await second.receive() == response(Kind.DELTA, EXTENSION, b"TWO", nonce="1")


async def test_the_control_plane_may_end_the_stream_meanwhile(tmp_path: Path) -> None:
    converter = Converter()
    async with streaming(tmp_path, Kind.DELTA, convert=converter.types()) as (_, call, stream):
        await stream.send(response(Kind.DELTA, EXTENSION, b"one", nonce="1"))
        stream.end()

        assert await call.rest() == []


async def test_many_conversions_and_large_pushes_do_not_mix(tmp_path: Path) -> None:
    """R-7, and beyond so many conversions the control plane has to wait."""
    converter = Converter()
    total = MOST + 20
    large = response(Kind.DELTA, CLUSTER, b"x" * 200_000)
    async with (
        streaming(tmp_path, Kind.DELTA, convert=converter.types()) as (b, call, stream),
        asyncio.TaskGroup() as group,
    ):
        group.create_task(push(stream, total, large))
        for _ in range(MOST - 1):
            assert await call.receive() == large
        await until(lambda: len(converter.begun) == MOST)
        assert b.counts["xds_proxy_responses", ""] == 2 * MOST - 1
        converter.let(b"one")
        rest = [read_response(await call.receive()) for _ in range(2 * total - MOST + 1)]

    nonces = [each.nonce for each in rest if each.type_url == EXTENSION]
    assert nonces == [str(number) for number in range(total)]


async def push(stream: Stream, total: int, large: bytes) -> None:
    for number in range(total):
        await stream.send(response(Kind.DELTA, EXTENSION, b"one", nonce=str(number)))
        await stream.send(large)


async def test_nothing_of_a_response_is_kept_once_envoy_has_it(tmp_path: Path) -> None:
    converted = response(Kind.DELTA, EXTENSION, b"x" * 200_000)
    held = sys.getrefcount(converted)

    async def convert(_kind: Kind, _raw: bytes) -> bytes:
        return converted

    async with streaming(tmp_path, Kind.DELTA, convert={EXTENSION: convert}) as (_, call, stream):
        await stream.send(response(Kind.DELTA, EXTENSION, b"one"))
        assert await call.receive() == converted

        await until(lambda: sys.getrefcount(converted) <= held)


async def test_an_empty_set_is_converted_too(tmp_path: Path) -> None:
    async def convert(_kind: Kind, raw: bytes) -> bytes:
        return raw

    raw = write_response(Kind.DELTA, EXTENSION, version="1", nonce="1", resources=[], removed=["a"])
    async with streaming(tmp_path, Kind.DELTA, convert={EXTENSION: convert}) as (_, call, stream):
        await stream.send(raw)

        assert await call.receive() == raw
