"""A status server with everything around it replaceable."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from agent.http.client import fetch
from agent.http.message import Headers, Response
from agent.metrics import Metrics
from agent.status.run import Hooks, serving
from agent.status.settings import (
    ProbeSettings,
    ReadinessSettings,
    ScrapeSettings,
    StatusSettings,
)


class Agent:
    """The rest of the agent, as far as its status server calls it."""

    def __init__(self) -> None:
        self.cause: str | None = None
        self.checks: dict[str, Callable[[], str | None]] = {}
        self.details: dict[str, Callable[[], str | None]] = {}
        self.calls: list[str] = []
        self.starts = 1
        self.documents: dict[str, Callable[[], object]] = {}
        self.metrics = Metrics()

    async def drain(self) -> None:
        self.calls.append("drain")

    def set_log_levels(self, levels: str, seconds: float) -> None:
        if levels == "loud":
            raise ValueError("level 'loud': expected one of debug, info")
        self.calls.append(f"levels {levels} {seconds:g}")

    def hooks(self) -> Hooks:
        return Hooks(
            terminating=lambda: self.cause,
            checks=self.checks,
            details=self.details,
            drain=self.drain,
            quit=lambda: self.calls.append("quit"),
            set_log_levels=self.set_log_levels,
            starts=lambda: self.starts,
            documents=self.documents,
        )


class Status:
    """A running status server."""

    def __init__(self, port: int, agent: Agent) -> None:
        self.port = port
        self.agent = agent

    async def ask(
        self,
        target: str,
        *,
        method: str = "GET",
        headers: Headers = (),
        source: str | None = None,
        host: str = "127.0.0.1",
        body: bytes = b"",
    ) -> Response:
        return await fetch(
            method,
            host,
            self.port,
            target,
            headers=headers,
            timeout_seconds=20,
            source=source,
            limit_bytes=64 << 20,
            body=body,
        )


def content_types(response: Response) -> tuple[str, str]:
    """Return the type of a body, and what keeps browsers from guessing another one."""
    return response.header("content-type"), response.header("x-content-type-options")


@asynccontextmanager
async def status_server(
    *,
    admin_port: int = 1,
    envoy_enabled: bool = True,
    probes: ProbeSettings = ProbeSettings(),  # noqa: B008 -- immutable
    scrape: ScrapeSettings = ScrapeSettings(envoy_port=None),  # noqa: B008 -- immutable
    readiness: ReadinessSettings = ReadinessSettings(),  # noqa: B008 -- immutable
    profiling: bool = True,
    is_local: bool = False,
    agent: Agent | None = None,
) -> AsyncIterator[Status]:
    """Serve on any port; admin port 1 is refused."""
    agent = agent or Agent()
    settings = StatusSettings(
        port=0,
        admin_host="127.0.0.1",
        admin_port=admin_port,
        envoy_enabled=envoy_enabled,
        probes=probes,
        scrape=scrape,
        readiness=readiness,
        profiling=profiling,
        is_local=is_local,
    )
    async with serving(settings, agent.hooks(), agent.metrics) as port:
        yield Status(port, agent)
