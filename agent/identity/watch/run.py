"""Follows the files behind secrets: a good new content replaces the old one, a bad one does not.

    absent --read--> good --changed--> due --read--> good
                                       |  ^
                                       v  | again, for a while
                                      bad (the last good content stays)

Events of directories make a file due, after a short wait for the rest of the same change; a slow
look at everything makes up for what no event tells. What counts is the content: a change that
leaves it as it was is none.

Source: xds-identity-dns.md sections 5.4 and 5.5, requirements R-4, R-5 and R-16; cases C5, C6, C9.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from agent.errors import SecretError
from agent.identity.files import read_crl, read_secret
from agent.identity.names import FileResource
from agent.identity.rotation import retry_delay
from agent.identity.secret import KeyPair, Roots

if TYPE_CHECKING:
    from agent.identity.watch.files import Watches

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 30.0
WATCHER_FAILURES: Final = "num_file_watcher_failures_total"
SECRET_FAILURES: Final = "num_file_secret_failures_total"  # noqa: S105 - the name of a metric

Content = KeyPair | Roots | bytes  #: bytes are a CRL


class Watched:
    """Files that are followed, and their last good content."""

    __slots__ = ("content", "failing_since", "failures", "is_watched", "name", "paths", "problem",
                 "read", "signature")  # fmt: skip

    def __init__(
        self, name: str, files: FileResource, read: Callable[[FileResource], Content]
    ) -> None:
        self.name = name
        # Absolute: the working directory may change.
        here = os.getcwd()  # noqa: PTH109 - strings
        self.paths = FileResource(*(path and os.path.join(here, path) for path in files))  # noqa: PTH118 - strings
        self.read = read
        self.content: Content | None = None
        self.signature = 0
        self.is_watched = False
        self.failures = 0  #: in a row, since the last event
        self.failing_since = 0.0
        self.problem = ""

    def look(self) -> int:
        """Return what tells, without reading, that the files are not as they were.

        It stands for device, inode, size, and when content and inode changed, of each file.
        """
        found: list[tuple[int, ...] | None] = []
        for path in filter(None, self.paths):
            try:
                seen = os.stat(path)  # noqa: PTH116 - strings
            except OSError:
                found.append(None)
            else:
                times = (seen.st_mtime_ns, seen.st_ctime_ns)
                found.append((seen.st_dev, seen.st_ino, seen.st_size, *times))
        return hash(tuple(found))


def kernel_watches() -> "Watches":
    """Return the kernel's watches, on nothing yet; OSError if it gives no more to this user."""
    from agent.identity.watch.files import Watches  # noqa: PLC0415 - few pods need it

    return Watches()


class FileSecrets:
    """Secrets in files, by resource name."""

    def __init__(
        self,
        *,
        debounce_seconds: float,
        changed: Callable[[str], None],
        wanted: Callable[[], Collection[str]],
        count: Callable[..., None],
        rng: Callable[[], float],
        patience_seconds: float = PATIENCE_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        make_watches: Callable[[], "Watches"] = kernel_watches,
    ) -> None:
        """Nothing is read before it is asked for.

        Args:
            debounce_seconds: between an event and the reading of what changed.
            changed: told the name of each resource with a new content.
            wanted: returns the names that somebody is subscribed to; others are forgotten.
            count: adds one to a counter.
            rng: chance, in [0, 1).
            patience_seconds: how long files that are not good are read again and again.
            look_seconds: between two looks at everything.
            make_watches: returns what tells of changes; OSError if there is none.
        """
        self._debounce = debounce_seconds
        self._changed = changed
        self._wanted = wanted
        self._count = count
        self._rng = rng
        self._patience = patience_seconds
        self._look_seconds = look_seconds
        self._watched: dict[str, Watched] = {}
        self._due: dict[str, float] = {}  #: key of what is to be read -> when
        self._wake = asyncio.Event()
        self._make_watches = make_watches
        self._watches: Watches | None = None
        self._is_blind = False  #: nothing tells of changes, so only looks find them

    async def get(self, name: str, files: FileResource) -> KeyPair | Roots:
        """Return the secret in these files, and follow them under this name from now on.

        Raises:
            SecretError: they are not good, and do not become so within a while.
        """
        content = await self._follow(name, name, files, read_secret)
        assert isinstance(content, KeyPair | Roots)  # noqa: S101 - good once, good for ever
        return content

    async def crl(self, name: str, path: str) -> bytes:
        """Return the CRL in a file, empty if there is none; a change is one of this resource.

        Raises:
            SecretError: there is a file, but no CRL in it, and there has never been one.
        """
        content = await self._follow(path, name, FileResource(path), read_crl)
        assert isinstance(content, bytes)  # noqa: S101 - as above
        return content

    async def _follow(
        self, key: str, name: str, files: FileResource, read: Callable[[FileResource], Content]
    ) -> Content | None:
        """Return the last good content, and follow its files under this key."""
        watched = self._watched.get(key)
        if watched is None:
            watched = Watched(name, files, read)
            await self._read_patiently(watched)
            self._watched[key] = watched
            self._watch(key, watched)
            if watched.look() != watched.signature:  # it changed since it was read
                self._notice(key)
        elif watched.look() != watched.signature:
            self._refresh(key, watched)
        return watched.content

    def content(self, name: str) -> Content | None:
        """Return what was read last under a name, if it is followed."""
        watched = self._watched.get(name)
        return watched.content if watched else None

    def problems(self) -> dict[str, str]:
        """Return, by name, what is wrong with files whose last good content is still in use."""
        return {each.name: each.problem for each in self._watched.values() if each.problem}

    async def run(self) -> None:
        """Follow all files, for ever."""
        clock = asyncio.get_running_loop().time
        next_look = clock() + self._look_seconds
        try:
            while True:
                await self._wait(min((next_look, *self._due.values())) - clock())
                if clock() >= next_look:
                    self._look_at_all()
                    next_look = clock() + self._look_seconds
                for key in [key for key, time in self._due.items() if time <= clock()]:
                    del self._due[key]
                    if watched := self._watched.get(key):
                        self._refresh(key, watched)
                    await asyncio.sleep(0)  # others first: 10,000 may be due at once
        finally:
            if self._watches:
                asyncio.get_running_loop().remove_reader(self._watches.fileno())
                self._watches.close()

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                await self._wake.wait()
        self._wake.clear()

    async def _read_patiently(self, watched: Watched) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + self._patience
        failures = 0
        while True:
            signature = watched.look()
            try:
                watched.content = watched.read(watched.paths)
            except SecretError as error:
                failures += 1
                delay = retry_delay(failures, self._rng, first=self._debounce)
                if clock() + delay > end:
                    self._count(SECRET_FAILURES)
                    raise
                log.debug("! not readable yet name=%s reason=%r", watched.name, str(error))
            else:
                watched.signature = signature
                await asyncio.sleep(0)  # a request may ask for hundreds, each takes 0.5 ms
                return
            await asyncio.sleep(delay)

    def _refresh(self, key: str, watched: Watched) -> None:
        """Read the files again: take what is good, come back to what is not."""
        self._watch(key, watched)  # first, or a change during the reading would go unnoticed
        watched.signature = watched.look()
        try:
            content = watched.read(watched.paths)
        except SecretError as error:
            self._fail(key, watched, str(error))
            return
        before, watched.content = watched.content, content
        watched.failures, watched.problem = 0, ""
        if before is not None and _is_change(before, content):
            log.info("changed files of resource=%s", watched.name)
            self._changed(watched.name)

    def _fail(self, key: str, watched: Watched, problem: str) -> None:
        now = asyncio.get_running_loop().time()
        if not watched.failures:
            watched.failing_since = now
        watched.failures += 1
        delay = retry_delay(watched.failures, self._rng, first=self._debounce)
        if now + delay - watched.failing_since <= self._patience:
            self._due[key] = now + delay
            self._wake.set()
        elif watched.problem != problem:
            self._count(SECRET_FAILURES)
            log.warning("keeping previous content resource=%s reason=%r", watched.name, problem)
            watched.problem = problem

    def _look_at_all(self) -> None:
        """Find what changed without an event, and forget what nobody wants any more."""
        wanted = self._wanted()
        for key, watched in list(self._watched.items()):
            if watched.name not in wanted:
                del self._watched[key]
                if self._watches:
                    self._watches.remove(key)
            elif not watched.is_watched or watched.look() != watched.signature:
                self._notice(key)

    def _notice(self, key: str) -> None:
        """Have files read that may have changed, once the rest of the change is done."""
        if watched := self._watched.get(key):
            watched.failures = 0
            soon = asyncio.get_running_loop().time() + self._debounce
            self._due[key] = min(soon, self._due.get(key, soon))
            self._wake.set()

    def _watch(self, key: str, watched: Watched) -> None:
        """Watch the directories that the files depend on now."""
        try:
            if self._watches is None:
                self._watches = self._make_watches()
                loop = asyncio.get_running_loop()
                loop.add_reader(self._watches.fileno(), self._take_events, self._watches)
            self._watches.depend(key, filter(None, watched.paths))
        except OSError as error:
            self._count(WATCHER_FAILURES)
            watched.is_watched = False
            if not self._is_blind:
                log.warning("files are not watched, only looked at: reason=%r", str(error))
            self._is_blind = True
        else:
            watched.is_watched = True
            self._is_blind = False

    def _take_events(self, watches: "Watches") -> None:
        for key in watches.changed():
            self._notice(key)


def _is_change(before: Content, after: Content) -> bool:
    """Return whether Envoy must be told; a key that changes alone is the same key (5.5)."""
    if isinstance(before, KeyPair) and isinstance(after, KeyPair):
        return before.chain != after.chain
    return before != after
