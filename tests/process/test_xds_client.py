"""Streams to a control plane, as they end. Section 2.10."""

import asyncio
from collections import Counter

import grpc

from agent.xds.client import ControlPlane
from agent.xds.discovery import Kind
from agent.xds.settings import CredentialSettings, KeepaliveSettings, UpstreamSettings
from tests.fakes import control_plane as fakes


async def test_a_write_that_fails_does_not_hide_why_the_stream_ended() -> None:
    async def refuse(plane: fakes.ControlPlane) -> None:
        while True:
            stream = await plane.accept()
            stream.end(grpc.StatusCode.UNAUTHENTICATED, "authentication failure")

    async def ended(control_plane: ControlPlane) -> tuple[int, str]:
        """Return how a stream has ended on which requests were being sent."""

        async def write() -> None:
            while await upstream.write(b"request"):
                pass

        upstream = await control_plane.open(Kind.DELTA)
        writing = asyncio.create_task(write())
        assert await upstream.read() is None
        status = await upstream.status()
        await writing
        await upstream.close()
        return status

    async with fakes.control_plane() as plane:
        refusing = asyncio.create_task(refuse(plane))
        settings = UpstreamSettings(
            plane.address,
            tls=False,
            server_name="",
            credentials=CredentialSettings(),
            metadata=(),
            send_token=False,
        )
        control_plane = ControlPlane(settings, KeepaliveSettings())
        found = Counter([await ended(control_plane) for _ in range(30)])
        refusing.cancel()

    # Each time: which of the two grpc tells of first is chance.
    assert found == {(16, "authentication failure"): 30}
