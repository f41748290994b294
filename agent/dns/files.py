"""resolv.conf on disk: read at the start, and again whenever it changes.

A container's runtime mounts the file itself, so it is watched itself; elsewhere it is replaced,
perhaps behind a link, so the directories are watched, too.

Source: xds-identity-dns.md section 8.2; inotify(7).
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from agent.errors import SystemRefusedError
from agent.inotify.files import CLOSE_WRITE, MOVED_TO, Inotify
from bootstrap.files import read_text

log = logging.getLogger(__name__)

RESOLV_CONF: Final = Path("/etc/resolv.conf")
#: For an agent that /etc/resolv.conf itself names.
OTHER_RESOLV_CONF: Final = Path("/var/lib/istio/resolv.conf")
#: A file is looked at when it is complete: closed, or renamed into place.
EVENTS: Final = CLOSE_WRITE | MOVED_TO
#: A look without an event, for what a watch cannot see: a link on the way that leads elsewhere.
RECHECK_SECONDS: Final = 30.0


def find_resolv_conf(*, is_resolver: bool) -> Path:
    """Return the path of the file that names the upstream resolvers."""
    return OTHER_RESOLV_CONF if is_resolver and OTHER_RESOLV_CONF.exists() else RESOLV_CONF


def read_resolv_conf(path: Path) -> str:
    """Return the text of the file.

    Raises:
        SystemRefusedError: it cannot be read.
    """
    try:
        return read_text(str(path))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SystemRefusedError(f"{path}: {reason}; DNS needs its nameservers") from error


async def follow(path: Path, text: str, use: Callable[[str], None]) -> None:
    """Call `use` with each new text of the file; what cannot be read changes nothing.

    Args:
        path: of the file.
        text: as it was read last.
        use: called with the new text.
    """
    problem = ""
    with _watched(path) as changed:
        while True:
            try:
                found, now = read_resolv_conf(path), ""
            except SystemRefusedError as error:
                found, now = text, str(error)
            if found != text:
                text = found
                use(text)
            if now and now != problem:
                log.warning("nameservers stay as they are reason=%r", now)
            problem = now
            with suppress(TimeoutError):
                async with asyncio.timeout(RECHECK_SECONDS):
                    await changed.wait()
            changed.clear()


@contextmanager
def _watched(path: Path) -> Iterator[asyncio.Event]:
    """Provide an event that is set when the file may have changed.

    Watches are few, and shared by all agents of a node, whose user is the same: without one the
    file is only looked at now and then.
    """
    changed = asyncio.Event()
    try:
        inotify = Inotify()
    except OSError as error:
        log.warning("cannot watch path=%s reason=%r", path, (error.strerror or "").lower())
        yield changed
        return
    loop = asyncio.get_running_loop()

    def watch() -> None:
        for place in (path, path.parent, path.resolve().parent):
            with suppress(OSError):
                inotify.add(os.fspath(place), EVENTS)

    def read() -> None:
        inotify.read()
        watch()  # another file may be in its place
        changed.set()

    watch()
    loop.add_reader(inotify.fileno(), read)
    try:
        yield changed
    finally:
        loop.remove_reader(inotify.fileno())
        inotify.close()
