"""Watches on directories: which ones a path depends on, and what changed in them.

A file is watched through directories, never itself: it is replaced by a rename, and the watch
would stay with the old one. A path may lead through links, such as those of a Kubernetes volume
(`tls.crt -> ..data/tls.crt`, `..data -> ..2026_08_22/`) or of a CSI driver in front of one (C5):
whatever of them is turned elsewhere, the directory that holds the link tells.

Source: xds-identity-dns.md section 5.5; inotify(7).
"""

import os
import os.path
from collections import deque
from collections.abc import Iterable
from typing import Final

from agent.inotify import files as inotify
from agent.inotify.files import Event, Inotify

#: A file is looked at when it is complete: closed, or renamed into place.
COMPLETED: Final = inotify.CLOSE_WRITE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE
#: A new link or directory is complete at once; a new file is not.
NEW: Final = inotify.CREATE
GONE: Final = inotify.DELETE_SELF | inotify.MOVE_SELF
EVENTS: Final = COMPLETED | NEW | GONE | inotify.ONLYDIR
MAX_LINKS: Final = 40  #: as the kernel has it, path_resolution(7)


def directories(path: str) -> set[str]:
    """Return the directories in which a change can alter what a path leads to.

    Those that hold its links, and the one that holds its file. Where the path leads nowhere, the
    last one that exists. Links in the root directory, such as /var, are left out.
    """
    found: set[str] = set()
    # Not normalised: what `..` means depends on the links before it.
    parts = deque(os.path.join(os.getcwd(), path).split("/"))  # noqa: PTH109, PTH118 - strings
    place, links = "", 0
    while parts and links <= MAX_LINKS:
        part = parts.popleft()
        if part in ("", "."):
            continue
        if part == "..":
            place = place.rpartition("/")[0]
            continue
        here = f"{place}/{part}"
        target = _link(here)
        if target is not None:
            links += 1
            if place:
                found.add(place)
            if target.startswith("/"):
                place = ""
            parts.extendleft(reversed(target.split("/")))
        elif parts and os.path.isdir(here):  # noqa: PTH112 - strings throughout
            place = here
        else:
            found.add(place or "/")
            break
    return found


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - strings throughout
    except OSError:
        return None


class Watches:
    """The kernel's watches; each belongs to those who depend on its directory."""

    def __init__(self) -> None:
        """Raise OSError if the kernel gives no more to this user."""
        self._inotify = Inotify()
        self._users: dict[int, set[str]] = {}  #: by watch
        self._places: dict[int, str] = {}  #: the directory of a watch
        self._watched: dict[str, tuple[int, ...]] = {}  #: by user; few each, of thousands

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when something has changed."""
        return self._inotify.fileno()

    def close(self) -> None:
        """Give up all watches."""
        self._inotify.close()

    def depend(self, user: str, paths: Iterable[str]) -> None:
        """Have a user depend on what decides where these paths lead, and on nothing else.

        Raises:
            OSError: one cannot be watched; the others are.
        """
        problem: OSError | None = None
        wanted: set[int] = set()
        for place in set[str]().union(*map(directories, paths)):
            try:
                watch = self._inotify.add(place, EVENTS)
            except OSError as error:
                problem = error
            else:
                wanted.add(watch)
                self._places[watch] = place
        before = self._watched.get(user, ())
        self._watched[user] = tuple(wanted)
        for watch in wanted:
            self._users.setdefault(watch, set()).add(user)
        for watch in set(before) - wanted:
            self._leave(watch, user)
        if problem:
            raise problem

    def remove(self, user: str) -> None:
        """Forget a user."""
        for watch in self._watched.pop(user, ()):
            self._leave(watch, user)

    def changed(self) -> set[str]:
        """Return the users for whom something may have changed since the last time."""
        users: set[str] = set()
        for event in self._inotify.read():
            if event.mask & inotify.Q_OVERFLOW:
                return set(self._watched)
            if event.mask & inotify.IGNORED:  # the directory is gone, and its watch with it
                self._forget(event.watch)
            elif not self._is_unfinished(event):
                users |= self._users.get(event.watch, set())
        return users

    def _is_unfinished(self, event: Event) -> bool:
        """Return whether a file was made that somebody is about to write."""
        if not event.mask & NEW or event.mask & inotify.ISDIR:
            return False
        return _link(f"{self._places.get(event.watch)}/{event.name}") is None

    def _leave(self, watch: int, user: str) -> None:
        users = self._users.get(watch, set())
        users.discard(user)
        if not users and watch in self._users:
            self._forget(watch)
            self._inotify.remove(watch)

    def _forget(self, watch: int) -> None:
        for user in self._users.pop(watch, set()):
            self._watched[user] = tuple(each for each in self._watched[user] if each != watch)
        self._places.pop(watch, None)
