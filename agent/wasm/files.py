"""The directory of modules: what is in it at the start, and what goes.

Source: xds-identity-dns.md section 3.4, deviation D-17.
"""

import os
from contextlib import suppress
from pathlib import Path

from agent.wasm.cache import Key, is_leftover, parse_path


def index(directory: str) -> list[Key]:
    """Return what an earlier run has left, without what it left half done; nothing if unreadable.

    A file that is too short for a module is none: a crash of the node may leave such.
    """
    found = []
    for path in Path(directory).glob("*/*"):
        name = str(path.relative_to(directory))
        key = parse_path(name)
        if key and _is_module(path):
            found.append(key)
        elif is_leftover(name):
            with suppress(OSError):
                path.unlink()
    return found


def exists(directory: str, key: Key) -> bool:
    """Return whether the file is there."""
    return (Path(directory) / key.path).is_file()


def remove(directory: str, key: Key) -> bool:
    """Remove a file, and its directory if it was the last; return whether it is gone."""
    path = Path(directory) / key.path
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    with suppress(OSError):
        path.parent.rmdir()
    return True


def _is_module(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\0asm" and os.fstat(file.fileno()).st_size >= 8  # noqa: PLR2004 - magic and version
    except OSError:
        return False
