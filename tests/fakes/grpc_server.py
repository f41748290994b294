"""A gRPC server of a fake that ends with its context, however that ends.

One that is still running when it is collected has gRPC wait for its threads: in the next test, or
for ever.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc


@asynccontextmanager
async def running(
    server: grpc.aio.Server, grace_seconds: float | None = None
) -> AsyncIterator[None]:
    """Run a server while the context is open; who is cancelled meanwhile leaves none behind."""
    starting = asyncio.ensure_future(server.start())
    try:
        await asyncio.shield(starting)
        yield
    finally:
        await starting
        await server.stop(grace_seconds)
