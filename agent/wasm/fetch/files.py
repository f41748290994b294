"""The modules' files as they are made, and Docker's configuration.

Source: xds-identity-dns.md sections 3.4 and 3.8, deviation D-17.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from agent.wasm.cache import TEMPORARY
from bootstrap.files import read_text

DIRECTORY_MODE: Final = 0o755
FILE_MODE: Final = 0o644


def scratch(directory: str) -> IO[bytes]:
    """Return a new file without a name, gone when it is closed; OSError if there can be none."""
    return tempfile.TemporaryFile(dir=directory)


def store(source: IO[bytes], path: str) -> None:
    """Write a module so that nobody ever sees half of it.

    Args:
        source: the module.
        path: its own; the directory of its directory must exist.

    Raises:
        OSError: the disk is full, or not writable.
    """
    target = Path(path)
    source.seek(0)
    descriptor, temporary = _make(target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(source, file)
            os.fchmod(file.fileno(), FILE_MODE)
            file.flush()
            os.fsync(file.fileno())  # or a crash of the node leaves an empty file with its name
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink()
        raise


def _make(directory: Path) -> tuple[int, str]:
    """Return a new file, open, and its path; in a directory that is made where there is none."""
    while True:
        with suppress(FileExistsError):
            directory.mkdir(mode=DIRECTORY_MODE)
            with suppress(FileNotFoundError):
                directory.chmod(DIRECTORY_MODE)  # whatever the umask is
        with suppress(FileNotFoundError):  # purged meanwhile, as it was empty
            return tempfile.mkstemp(dir=directory, suffix=TEMPORARY)


def read_docker_config(environ: Mapping[str, str]) -> str | None:
    """Return the text of the configuration that Docker or Podman would use, none without one."""
    home = environ.get("HOME", "")
    places = [
        (environ.get("DOCKER_CONFIG") or (f"{home}/.docker" if home else ""), "config.json"),
        (environ.get("REGISTRY_AUTH_FILE", ""), ""),
        (environ.get("XDG_RUNTIME_DIR", ""), "containers/auth.json"),
    ]
    for directory, name in places:
        if directory:
            with suppress(OSError):
                return read_text(str(Path(directory) / name))
    return None
