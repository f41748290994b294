"""Secrets in files that are followed, and what was told of them."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from agent.identity.names import FileResource
from agent.identity.secret import KeyPair, Roots
from agent.identity.watch.files import Watches
from agent.identity.watch.run import FileSecrets, kernel_watches
from agent.metrics import Metrics
from tests.fakes.ca import Root
from tests.fakes.control_plane import Pair
from tests.waiting import until

ROOT: Final = Root()
PAIRS: Final = [ROOT.pair(f"spiffe://td/ns/a/sa/{number}") for number in range(5)]
ROOTS: Final = [Root(str(number)) for number in range(3)]


class Bench:
    """Files that are followed, and what was told of them."""

    def __init__(
        self, *, patience: float, look: float, make_watches: Callable[[], Watches] = kernel_watches
    ) -> None:
        self.metrics = Metrics()
        self.events: asyncio.Queue[str] = asyncio.Queue()
        self.wanted = {"pair", "root", "crl", "0", "1", "2"}
        self.secrets = FileSecrets(
            debounce_seconds=0.02,
            changed=self.events.put_nowait,
            wanted=lambda: self.wanted,
            count=self.metrics.count,
            rng=lambda: 0.5,
            patience_seconds=patience,
            look_seconds=look,
            make_watches=make_watches,
        )

    async def pair(self, directory: Path, name: str = "pair") -> Pair:
        files = FileResource(f"{directory}/cert-chain.pem", f"{directory}/key.pem")
        secret = await self.secrets.get(name, files)
        assert isinstance(secret, KeyPair)
        return Pair(secret.chain, bytes(secret.key))

    async def root(self, path: Path) -> str:
        secret = await self.secrets.get("root", FileResource(str(path)))
        assert isinstance(secret, Roots)
        return secret.pem.decode()

    async def event(self) -> str:
        async with asyncio.timeout(10):
            return await self.events.get()

    async def settled(self) -> None:
        """Return once nothing is due any more, so that what was not told will not be."""
        await asyncio.sleep(0)
        await until(lambda: not self.secrets._due)  # noqa: SLF001 - nothing else tells


@contextlib.asynccontextmanager
async def following(
    *,
    patience: float = 10,
    look: float = 3600,
    make_watches: Callable[[], Watches] = kernel_watches,
) -> AsyncIterator[Bench]:
    bench = Bench(patience=patience, look=look, make_watches=make_watches)
    task = asyncio.create_task(bench.secrets.run())
    try:
        yield bench
    finally:
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()


def no_watches() -> Watches:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def replace(path: Path, content: bytes | str) -> None:
    """Replace a file by a rename, as careful writers do."""
    beside = path.with_name(f"{path.name}.tmp")
    beside.write_bytes(content if isinstance(content, bytes) else content.encode())
    beside.rename(path)


def replace_pair(directory: Path, pair: Pair) -> None:
    replace(directory / "cert-chain.pem", pair.certificate)
    replace(directory / "key.pem", pair.key)
