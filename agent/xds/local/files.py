"""A directory of resource files: what is in it, and what it is after each change.

A Kubernetes ConfigMap is changed by a rename of the `..data` link that its files point through,
which the directory's watch sees as one event.
"""

import asyncio
import errno
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, Self

from agent.errors import AgentError
from agent.inotify.files import CLOSE_WRITE, DELETE, MOVED_FROM, MOVED_TO, Inotify
from agent.xds.local.process import Conversion, convert
from agent.xds.snapshot import Snapshot

SUFFIXES: Final = (".yaml", ".yml", ".json")
#: A file is looked at when it is complete: closed, or renamed into place. Not when created.
EVENTS: Final = CLOSE_WRITE | MOVED_TO | MOVED_FROM | DELETE
#: After the first event, for the others of the same change.
SETTLE_SECONDS: Final = 0.05
#: A look without an event: for what a watch cannot see, such as links that lead elsewhere, or a
#: directory that was replaced.
RECHECK_SECONDS: Final = 30.0
#: A conversion that takes longer makes way for what has changed meanwhile.
PATIENCE_SECONDS: Final = 3.0
#: What runs out for each user, in all containers of a node together.
SYSCTLS: Final = {
    errno.EMFILE: "fs.inotify.max_user_instances",
    errno.ENOSPC: "fs.inotify.max_user_watches",
}


class ResourceDirectory:
    """The resource files of one directory."""

    def __init__(self, path: str) -> None:
        """Check that there is such a directory.

        Raises:
            AgentError: there is none, or it cannot be listed.
        """
        self.path = Path(path)
        try:
            os.listdir(path)  # noqa: PTH208 - its error is what is wanted
        except OSError as error:
            raise AgentError(
                f"AGENT_LOCAL_XDS={path!r}: {error.strerror}; expected 'builtin' or a directory "
                "of Envoy resources"
            ) from error

    def read(self) -> dict[str, bytes]:
        """Return the content of each resource file by name; OSError, with its path, otherwise."""
        names = (path for path in sorted(self.path.iterdir()) if path.suffix in SUFFIXES)
        files = {}
        for path in names:
            content = None if path.name.startswith(".") else _content(path)
            if content is not None:
                files[os.fsencode(path.name).decode(errors="backslashreplace")] = content
        return files


def _content(path: Path) -> bytes | None:
    """Return what is in a file; none if it is no file, or is gone since it was listed."""
    try:
        return path.read_bytes() if stat.S_ISREG(path.stat().st_mode) else None
    except FileNotFoundError:
        if path.is_symlink():  # one that leads nowhere
            raise
        return None


class Follower(Protocol):
    """Who serves what the directory holds."""

    def serve(self, snapshot: Snapshot) -> None:
        """Take another snapshot."""

    def refuse(self, problem: str) -> None:
        """Keep the last one, for a reason."""

    def unwatched(self, problem: str | None) -> None:
        """Know why changes are noticed late, none if they are not."""


async def follow(directory: ResourceDirectory, follower: Follower) -> None:
    """Give the follower what the directory holds, and each change of it, for ever."""
    taken: Mapping[str, bytes] | None = None
    with Watch(directory.path) as watch:
        while True:
            follower.unwatched(watch.renew())  # before the look, so that nothing escapes both
            taken = await _look(directory, taken, follower, watch)
            await watch.wait()


async def _look(
    directory: ResourceDirectory,
    taken: Mapping[str, bytes] | None,
    follower: Follower,
    watch: "Watch",
) -> Mapping[str, bytes] | None:
    """Return the files of which the follower now has the result, none if it has to be tried again.

    Args:
        directory: to look at.
        taken: what was returned last.
        follower: to be told of what is new.
        watch: of the directory.
    """
    try:
        files = directory.read()
    except OSError as error:
        follower.refuse(f"{error.filename or directory.path}: {error.strerror}")
        return None
    if files == taken:
        return taken
    if not files:
        follower.refuse(f"{directory.path}: expected files named *.yaml, *.yml or *.json")
        return files
    conversion = await _convert(directory, files, watch)
    if conversion is None:
        return None
    if conversion.snapshot is None:
        follower.refuse(conversion.problem)
        return files if conversion.is_final else None
    follower.serve(conversion.snapshot)
    return files


async def _convert(
    directory: ResourceDirectory, files: Mapping[str, bytes], watch: "Watch"
) -> Conversion | None:
    """Return what became of the files, none if they have changed while that took long."""
    async with asyncio.TaskGroup() as tasks:
        converting = tasks.create_task(convert(str(directory.path), files))
        superseded = tasks.create_task(watch.long_after(PATIENCE_SECONDS))
        await asyncio.wait((converting, superseded), return_when=asyncio.FIRST_COMPLETED)
        is_done = converting.done()
        converting.cancel()
        superseded.cancel()
    return converting.result() if is_done else None


class Watch:
    """Notices changes in a directory, as far as the kernel tells of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = asyncio.Event()
        self._inotify: Inotify | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()

    def renew(self) -> str | None:
        """Watch what is at the path now, from now on; return why that cannot be."""
        self._changed.clear()
        try:
            if self._inotify is None:
                self._inotify = Inotify()
                asyncio.get_running_loop().add_reader(self._inotify.fileno(), self._drain)
            self._inotify.add(os.fspath(self._path), EVENTS)
        except OSError as error:
            sysctl = SYSCTLS.get(error.errno or 0)
            return (
                f"cannot watch {self._path}: {os.strerror(error.errno or 0).lower()}; "
                f"looking every {RECHECK_SECONDS:g} s" + (f"; raise {sysctl}" if sysctl else "")
            )
        return None

    async def wait(self) -> None:
        """Return after a change, or when it is time to look without one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RECHECK_SECONDS):
                await self._changed.wait()
                await asyncio.sleep(SETTLE_SECONDS)

    async def long_after(self, seconds: float) -> None:
        """Return when there was a change, but not before some time."""
        await asyncio.sleep(seconds)
        await self._changed.wait()

    def _drain(self) -> None:
        if self._inotify is not None:
            self._inotify.read()
            self._changed.set()
