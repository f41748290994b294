"""inotify by ctypes: four calls of the C library that every pod's agent has loaded anyway.

A package such as inotify-simple looks for that library by running ldconfig, and what this takes
stays in memory: 0.6 MB for each pod.

Source: inotify(7).
"""

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

CLOSE_WRITE: Final = 0x00000008
MOVED_FROM: Final = 0x00000040
MOVED_TO: Final = 0x00000080
CREATE: Final = 0x00000100
DELETE: Final = 0x00000200
DELETE_SELF: Final = 0x00000400
MOVE_SELF: Final = 0x00000800
Q_OVERFLOW: Final = 0x00004000  #: events were lost
IGNORED: Final = 0x00008000  #: the watch is gone
ONLYDIR: Final = 0x01000000  #: watch nothing but a directory
ISDIR: Final = 0x40000000  #: what the event is about is a directory

HEAD: Final = struct.Struct("iIII")  #: struct inotify_event without the name
#: All that is there at once: a name has 255 bytes at most.
READ_BYTES: Final = 65536


class Event(NamedTuple):
    """One change."""

    watch: int
    mask: int
    name: str  #: in a directory that is watched; empty for the watched thing itself


class Inotify:
    """Watches of one process."""

    def __init__(self) -> None:
        """Raise OSError if the kernel gives no more to this user."""
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._descriptor = _checked(
            self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK), "inotify"
        )

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there are events."""
        return self._descriptor

    def add(self, path: str, mask: int) -> int:
        """Watch a path; return the number of the watch, the same one if it is watched already.

        Raises:
            OSError: it is not there, or not readable, or there are too many watches.
        """
        number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask)
        return _checked(number, path)

    def remove(self, watch: int) -> None:
        """Give a watch up; an event IGNORED says that it is gone."""
        self._libc.inotify_rm_watch(self._descriptor, watch)

    def read(self) -> list[Event]:
        """Return the events that are there, in order."""
        try:
            return list(_events(os.read(self._descriptor, READ_BYTES)))
        except BlockingIOError:
            return []

    def close(self) -> None:
        """Give all watches up."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _events(data: bytes) -> Iterator[Event]:
    at = 0
    while at < len(data):
        watch, mask, _, length = HEAD.unpack_from(data, at)
        at += HEAD.size
        name = data[at : at + length].rstrip(b"\0")
        yield Event(watch, mask, os.fsdecode(name))
        at += length


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result
