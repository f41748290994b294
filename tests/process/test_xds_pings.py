"""How often a client of the socket may ping. Section 2.1."""

import asyncio
from pathlib import Path

import pytest
from h2.connection import H2Connection

from agent.xds.client import SERVICE
from agent.xds.discovery import Kind
from agent.xds.settings import KeepaliveSettings
from tests.fakes.control_plane import control_plane
from tests.fakes.relay_bench import bench

#: Of HTTP/2's frames and errors, RFC 9113.
GOAWAY, ENHANCE_YOUR_CALM = 7, 11
#: gRPC overlooks two that come too soon, and what comes before it has sent anything.
PINGS = 7
#: The shortest there is; half of it is what pings must keep.
KEEPALIVE = KeepaliveSettings(interval_seconds=1)


def goaway(sent: bytes) -> int | None:
    """Return with which error a server has sent its client away, none if it has not."""
    while sent:
        size = int.from_bytes(sent[:3])
        kind, content, sent = sent[3], sent[9 : 9 + size], sent[9 + size :]
        if kind == GOAWAY:
            return int.from_bytes(content[4:8])
    return None


async def pinging(path: str, every_seconds: float) -> int | None:
    """Ping beside an open stream; return with which error one is sent away, none if one is not."""
    reader, writer = await asyncio.open_unix_connection(path)
    client = H2Connection()
    client.initiate_connection()
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/{SERVICE}/{Kind.DELTA.value}",
        ":authority": "xds",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    client.send_headers(1, headers.items())
    reading = asyncio.create_task(reader.read())
    for number in range(PINGS):
        client.ping(b"%08d" % number)
        writer.write(client.data_to_send())
        await asyncio.wait((reading,), timeout=every_seconds)
    writer.write_eof()
    sent = await reading
    writer.close()
    return goaway(sent)


@pytest.mark.slow
async def test_pings_are_taken_at_half_the_keepalive_interval_and_no_faster(tmp_path: Path) -> None:
    async with (
        control_plane() as plane,
        bench(tmp_path, plane.address, keepalive=KEEPALIVE) as b,
    ):
        calm = await pinging(b.path, 0.6)
        eager = await pinging(b.path, 0.05)

    assert (calm, eager) == (None, ENHANCE_YOUR_CALM)
