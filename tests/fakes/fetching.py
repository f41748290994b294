"""What fetches modules, in the process of a test: it does not wait, and knows no resolver."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp.abc import AbstractResolver, ResolveResult

from agent.wasm.cache import PullSecret
from agent.wasm.fetch.client import Surroundings, Web
from agent.wasm.fetch.run import Fetcher
from agent.wasm.order import Fetched, FetchOrder, Outcome, Refused
from agent.wasm.settings import FetchSettings


class Names(AbstractResolver):
    """Knows these names; records which it was asked for."""

    def __init__(self, addresses: Mapping[str, str], *, failures: int = 0) -> None:
        self._addresses = addresses
        self._failures = failures  #: until the name server is there
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        del family
        self.asked.append(host)
        if self._failures:
            self._failures -= 1
            raise socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution")
        if host not in self._addresses:
            raise OSError(f"no such name {host}")
        return [
            ResolveResult(
                hostname=host,
                host=self._addresses[host],
                port=port,
                family=socket.AF_INET,
                proto=0,
                flags=0,
            )
        ]

    async def close(self) -> None:
        pass


class Bench(NamedTuple):
    """What a test has in hand."""

    fetcher: Fetcher
    directory: Path
    pauses: list[float]

    async def fetch(
        self,
        url: str,
        checksum: str = "",
        *,
        seconds: float = 10,
        secret: str | None = None,
        known: tuple[str, ...] = (),
    ) -> Outcome:
        pull_secret = None if secret is None else PullSecret(secret)
        return await self.fetcher.carry_out(FetchOrder(url, checksum, seconds, pull_secret, known))

    async def fetched(self, url: str, checksum: str = "", **more: Any) -> str:  # noqa: ANN401 - of fetch
        """Return the checksum of a module that must be fetched."""
        outcome = await self.fetch(url, checksum, **more)
        assert isinstance(outcome, Fetched), outcome
        return outcome.checksum

    async def refused(self, url: str, checksum: str = "", **more: Any) -> Refused:  # noqa: ANN401 - of fetch
        """Return why a module is not fetched; nothing is left of it."""
        before = self.modules()
        outcome = await self.fetch(url, checksum, **more)
        assert isinstance(outcome, Refused), outcome
        assert self.modules() == before
        return outcome

    def modules(self) -> dict[str, bytes]:
        """Return all files, by path."""
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in self.directory.glob("*/*")
        }


@asynccontextmanager
async def fetching(
    directory: Path,
    *,
    environ: Mapping[str, str] | None = None,
    names: Mapping[str, str] | Names | None = None,
    **settings: Any,  # noqa: ANN401 - of any field
) -> AsyncIterator[Bench]:
    """Fetch into a directory; names is what there is of a resolver."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    resolver = names if isinstance(names, Names) else Names(names or {})
    surroundings = Surroundings(environ or {}, random.Random(0).random, sleep, resolver)  # noqa: S311 - any numbers
    chosen = FetchSettings(directory=str(directory), **settings)
    async with Web(chosen, surroundings) as web:
        yield Bench(Fetcher(chosen, web, surroundings), directory, pauses)
