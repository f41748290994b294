"""The directory of modules: what is in it at the start, and what goes.

Source: xds-identity-dns.md section 3.4, deviation D-17.
"""

# pathlib would be 0.4 MB in every pod with a module:
# ruff: noqa: PTH108, PTH113, PTH120, PTH123, PTH106

import os
from collections.abc import Iterator
from contextlib import suppress

from agent.wasm.cache import Key, is_leftover, parse_path


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
            with suppress(OSError):
                os.unlink(path)
    return found


def exists(directory: str, key: Key) -> bool:
    """Return whether the file is there."""
    return os.path.isfile(f"{directory}/{key.path}")


def remove(directory: str, key: Key) -> bool:
    """Remove a file, and its directory if it was the last; return whether it is gone."""
    path = f"{directory}/{key.path}"
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    with suppress(OSError):
        os.rmdir(os.path.dirname(path))
    return True


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
