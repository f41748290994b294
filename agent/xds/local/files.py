"""A directory of resource files: what is in it, and what it is after each change.

A Kubernetes ConfigMap is changed by a rename of the `..data` link that its files point through,
which the directory's watch sees as one event.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final, Protocol

from inotify_simple import INotify, flags

from agent.errors import AgentError
from agent.xds.local.process import convert
from agent.xds.snapshot import Snapshot

SUFFIXES: Final = (".yaml", ".yml", ".json")
#: A file is looked at when it is complete: closed, or renamed into place. Not when created.
EVENTS: Final = flags.CLOSE_WRITE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE
#: After the first event, for the others of the same change.
SETTLE_SECONDS: Final = 0.05
#: A look without an event: for what a watch cannot see, such as links that lead elsewhere, or a
#: directory that was replaced.
RECHECK_SECONDS: Final = 30.0


class ResourceDirectory:
    """The resource files of one directory."""

    def __init__(self, path: str) -> None:
        """Check that there is such a directory.

        Raises:
            AgentError: there is none, or it cannot be read.
        """
        self.path = Path(path)
        try:
            self.read()
        except OSError as error:
            raise AgentError(
                f"AGENT_LOCAL_XDS={path!r}: {error.strerror}; expected 'builtin' or a directory "
                "of Envoy resources"
            ) from error

    def read(self) -> dict[str, bytes]:
        """Return the content of each resource file by name; OSError if one cannot be read."""
        return {
            file.name: file.read_bytes()
            for file in sorted(self.path.iterdir())
            if file.suffix in SUFFIXES and not file.name.startswith(".") and file.is_file()
        }

    async def changes(self) -> AsyncIterator[None]:
        """Yield at once, and then whenever the content may have changed, for ever."""
        with _watched(self.path) as changed:
            yield
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RECHECK_SECONDS):
                        await changed.wait()
                        await asyncio.sleep(SETTLE_SECONDS)
                changed.clear()
                yield


class Follower(Protocol):
    """Who serves what the directory holds."""

    def serve(self, snapshot: Snapshot) -> None:
        """Take another snapshot."""

    def refuse(self, problem: str) -> None:
        """Keep the last one, for a reason."""


async def follow(directory: ResourceDirectory, follower: Follower) -> None:
    """Give the follower what the directory holds, and each change of it, for ever."""
    converted: dict[str, bytes] | None = None
    async for _ in directory.changes():
        try:
            files = directory.read()
        except OSError as error:
            follower.refuse(f"{directory.path}: {error.strerror}")
            continue
        if files == converted:
            continue
        converted = files
        if not files:
            follower.refuse(f"{directory.path}: expected files named *.yaml, *.yml or *.json")
            continue
        snapshot, problem = await convert(str(directory.path), files)
        if snapshot is None:
            follower.refuse(problem)
        else:
            follower.serve(snapshot)


@contextlib.contextmanager
def _watched(path: Path) -> Iterator[asyncio.Event]:
    """Provide an event that is set by each change in the directory."""
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    with INotify() as inotify:

        def drain() -> None:
            inotify.read(timeout=0)
            changed.set()

        inotify.add_watch(os.fspath(path), EVENTS)
        loop.add_reader(inotify.fileno(), drain)
        try:
            yield changed
        finally:
            loop.remove_reader(inotify.fileno())
