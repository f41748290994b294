"""Opens the status server, which is the first to listen and the last to close.

Source: status-lifecycle.md section 3.1.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from agent.http.message import Reply, Request
from agent.http.server import listening
from agent.metrics import Metrics
from agent.status.hooks import Hooks
from agent.status.process import describe_process
from agent.status.server import COMMON_HEADERS, StatusServer
from agent.status.settings import StatusSettings

__all__ = ["Hooks", "serving"]

log = logging.getLogger(__name__)


@asynccontextmanager
async def serving(settings: StatusSettings, hooks: Hooks, metrics: Metrics) -> AsyncIterator[int]:
    """Serve until the block is left; yield the port.

    Args:
        settings: of the server; its port may be 0 for any.
        hooks: the rest of the agent.
        metrics: the agent's own, to which those of this process are added.

    Raises:
        SystemRefusedError: the port is taken (D21).
    """
    describe_process(metrics)
    server: StatusServer | None = None

    async def handle(request: Request) -> Reply:
        assert server  # noqa: S101 -- set before the loop runs again
        return await server.handle(request)

    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(
            listening(handle, port=settings.port, name="status server", common=COMMON_HEADERS)
        )
        server = StatusServer(settings, port, hooks, metrics)
        stack.callback(server.close)
        log.info("status server listening port=%d", port)
        yield port
