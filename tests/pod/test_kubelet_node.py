"""The node that whoever runs pods stands on."""

import asyncio
from pathlib import Path

import grpc
import pytest

from tests.pod.node import standing_on_a_node

pytestmark = pytest.mark.root


async def started() -> grpc.aio.Server:
    server = grpc.aio.server()
    assert server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server


def test_no_thread_of_ours_stays_there() -> None:
    """gRPC's connect, and live on for a while if anything of it does."""
    with asyncio.Runner() as runner:
        with standing_on_a_node():
            server = runner.run(started())

        networks = {path.readlink() for path in Path("/proc/self/task").glob("*/ns/net")}
        runner.run(server.stop(None))

    assert len(networks) == 1
