"""The directory of modules: what is in it at the start, and what goes.

It may be shared: another agent may be writing into it, or use what this one does not. The time of a
file says when somebody last used it.

Source: xds-identity-dns.md section 3.4, deviation D-17.
"""

# pathlib would be 0.4 MB in every pod with a module:
# ruff: noqa: PTH106, PTH108, PTH116, PTH120, PTH123

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from agent.wasm.cache import Key, is_leftover, parse_path

#: After which nobody is still writing a file that is not complete.
WRITING_SECONDS: Final = 600.0


def index(directory: str) -> list[Key]:
    """Return what an earlier run has left, without what it left half done; nothing if unreadable.

    A file that is too short for a module is none: a crash of the node may leave such.
    """
    found = []
    for name in _names(directory):
        path = f"{directory}/{name}"
        key = parse_path(name)
        if key and _is_module(path):
            found.append(key)
        elif is_leftover(name):
            with suppress(OSError):  # it is complete by now, under its own name
                if _age(path) > WRITING_SECONDS:
                    os.unlink(path)
    return found


def touch(directory: str, key: Key) -> bool:
    """Take note, on disk, that a module is used; return whether it is there."""
    try:
        os.utime(f"{directory}/{key.path}")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass  # it is somebody else's
    return True


def remove(directory: str, key: Key, *, unused_seconds: float) -> bool:
    """Remove a file, and its directory if it was the last; return whether it is gone.

    It stays where somebody has used it within the last so many seconds.
    """
    path = f"{directory}/{key.path}"
    try:
        if _age(path) < unused_seconds:
            return False
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    with suppress(OSError):
        os.rmdir(os.path.dirname(path))
    return True


def _age(path: str) -> float:
    """Return the seconds since a file was written or touched; OSError if it is not there."""
    return time.time() - os.stat(path).st_mtime


def _names(directory: str) -> Iterator[str]:
    """Yield the files one level below a directory."""
    with suppress(OSError), os.scandir(directory) as places:
        for place in places:
            with suppress(OSError), os.scandir(place) as entries:
                for entry in entries:
                    yield f"{place.name}/{entry.name}"


def _is_module(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return len(head := file.read(8)) == 8 and head.startswith(b"\0asm")  # noqa: PLR2004 - magic and version
    except OSError:
        return False
