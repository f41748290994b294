"""A control plane that misbehaves: `python chaos_plane.py DIRECTORY ADDRESS MODE SEED`.

It serves what lets a pod's traffic through, on TLS with DIRECTORY/server.pem and server.key, and
besides does what its mode says, until it is killed. It writes `listening` once it does.

    good      nothing else
    bulk      pushes clusters of 20 or 60 MB, and takes them back
    invalid   pushes a listener that Envoy must refuse
    garbage   sends bytes that are no message, resources that are none, types that nobody wants
    abort     ends each stream at once or after a moment, with any status
    silent    takes streams and never answers
    hang      takes connections and never answers
    reset     takes connections and resets them
    plain     speaks no TLS
"""

import asyncio
import random
import socket
import struct
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import grpc

from agent.protobuf.wire import message
from agent.xds.discovery import Kind, Resource, read_request, write_response
from agent.xds.local.passthrough import passthrough
from agent.xds.resources import CLUSTER, LISTENER, PREFIX
from agent.xds.snapshot import ServedStream, Snapshot
from tests.fakes.control_plane import ControlPlane, Pair, Stream, control_plane

MEGABYTE: Final = 1_000_000
NO_LINGER: Final = struct.pack("ii", 1, 0)
Act = Callable[[Stream, random.Random], Coroutine[Any, Any, None]]


def snapshot() -> Snapshot:
    return passthrough(ipv4=True, ipv6=True)


def push(kind: Kind, type_url: str, name: str, body: bytes, version: str) -> bytes:
    """Return a response with everything of its type that is good, and one resource more."""
    good = snapshot().resources[type_url].values()
    resource = Resource(type_url, name, version, body)
    return write_response(
        kind, type_url, version=version, nonce=version, resources=[*good, resource]
    )


def large_cluster(size: int) -> bytes:
    """Return a static cluster whose metadata are large."""
    value = message((3, b"x" * size))  # Value.string_value
    fields = message((1, message((1, "bulk"), (2, value))))  # Struct.fields
    metadata = message((1, message((1, "bulk"), (2, fields))))  # Metadata.filter_metadata
    return message((1, "bulk"), (25, metadata))


async def bulk(stream: Stream, rng: random.Random) -> None:
    """Push much, and take it back."""
    await asyncio.sleep(0.2)
    size = rng.choice((20, 60)) * MEGABYTE
    await stream.send(push(stream.kind, CLUSTER, "bulk", large_cluster(size), "bulk"))
    await asyncio.sleep(0.5)
    good = snapshot().resources[CLUSTER].values()
    await stream.send(
        write_response(
            stream.kind, CLUSTER, version="less", nonce="less", resources=good, removed=["bulk"]
        )
    )


async def invalid(stream: Stream, _: random.Random) -> None:
    """Push a listener without an address."""
    await asyncio.sleep(0.2)
    await stream.send(push(stream.kind, LISTENER, "broken", message((1, "broken")), "bad"))


async def garbage(stream: Stream, rng: random.Random) -> None:
    """Send what is no push."""
    await asyncio.sleep(0.1)
    noise = rng.randbytes(1000)
    other = Resource(f"{PREFIX}envoy.service.nothing.v3.Nothing", "x", "1", noise)
    await stream.send(
        write_response(stream.kind, other.type_url, version="1", nonce="n", resources=[other])
    )
    await stream.send(push(stream.kind, CLUSTER, "noise", noise, "noise"))
    await asyncio.sleep(0.1)
    await stream.send(rng.choice((noise, b"", b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 100)))


async def abort(stream: Stream, rng: random.Random) -> None:
    """End the stream, perhaps while something is being said on it."""
    await asyncio.sleep(rng.choice((0.0, rng.random() / 2)))
    stream.end(rng.choice(list(grpc.StatusCode)), "as you like it")


async def behave(_: Stream, __: random.Random) -> None:
    """Do nothing else."""


ACTS: Final[dict[str, Act]] = {
    "good": behave,
    "bulk": bulk,
    "invalid": invalid,
    "garbage": garbage,
    "abort": abort,
}


async def answer(stream: Stream) -> None:
    """Serve what lets traffic through."""
    served = ServedStream(stream.kind, snapshot())
    while (raw := await stream.receive()) is not None:
        if read_request(stream.kind, raw).error is None:
            served.receive_request(raw)
        while (response := served.next_response()) is not None:
            await stream.send(response)


async def serve(plane: ControlPlane, mode: str, rng: random.Random) -> None:
    """Serve streams for ever."""
    kept = set()
    while True:
        stream = await plane.accept()
        if mode != "silent":
            kept |= {asyncio.create_task(do) for do in (answer(stream), ACTS[mode](stream, rng))}


async def mistreat(host: str, port: int, mode: str) -> None:
    """Take connections without speaking gRPC."""
    listener = socket.create_server((host, port), backlog=100)
    listener.settimeout(0)
    kept = []
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    while True:
        connection, _ = await asyncio.get_running_loop().sock_accept(listener)
        if mode == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            connection.close()
        else:
            if mode == "plain":
                connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            kept.append(connection)


async def main(pair: Pair, host: str, port: int, mode: str, seed: str) -> None:
    if mode in ("hang", "reset", "plain"):
        await mistreat(host, port, mode)
    async with control_plane(host=host, port=port, pair=pair) as plane:
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        await serve(plane, mode, random.Random(seed))  # noqa: S311 - nothing secret


if __name__ == "__main__":
    directory, address, *rest = sys.argv[1:]
    certificate, key = (Path(directory, name).read_bytes() for name in ("server.pem", "server.key"))
    host, _, port = address.rpartition(":")
    asyncio.run(main(Pair(certificate, key), host, int(port), *rest))
