"""The bootstrap's files: what is read of the pod, what is written for Envoy, and the gate.

The gate is a FIFO under the bootstrap's name. Envoy, started early, stops in open() until the
agent's servers listen; then the text goes through and a plain file takes the FIFO's place.

Source: bootstrap.md sections 3.1, 4.4, 5.1 and 7; performance.md, recommended start sequence.
"""

# pathlib would cost 5 ms before Envoy is spawned:
# ruff: noqa: PTH103, PTH105, PTH108, PTH112, PTH119, PTH120, PTH208

import errno
import os
import stat
from contextlib import suppress
from typing import Final

from bootstrap.errors import BootstrapError

#: A pipe's capacity; more would not be taken at once.
CHUNK_BYTES: Final = 65536
CONFIG_PATH: Final = "configPath"
#: More than any configuration or bundle of certificates has; what is larger is something else.
LIMIT_BYTES: Final = 16 << 20
#: Ends the name of a file that is not complete.
TEMPORARY: Final = ".tmp"


class Gate:
    """Holds Envoy in open() of its own configuration until everyone it would call listens.

    shut --open()--> open --write() until True--> done; remove() from any of them.
    """

    def __init__(self, path: str, text: str, *, owner: tuple[int, int] | None = None) -> None:
        """Make the FIFO, and beside it the plain file that takes its place.

        Args:
            path: the bootstrap's; what was there goes.
            text: the bootstrap.
            owner: uid and gid that Envoy runs with, where they are not the agent's.

        Raises:
            BootstrapError: the directory is not writable, or full.
        """
        self.path = path
        self._plain = _temporary(path)
        self._owner = owner
        self._rest = memoryview(text.encode())
        self._pipe = -1
        _make_parent(path, owner)
        try:
            _remove_leftovers(path)
            _write(self._plain, text, mode=0o600, owner=owner)
            _let_go(path)
            _unlink(path)
            os.mkfifo(path, 0o600)
            if owner:
                os.chown(path, *owner)
        except OSError as error:
            _clear(self._plain)
            raise _refused(path, error) from error

    def replace(self, text: str) -> None:
        """Let another text through, while the gate is shut.

        Raises:
            BootstrapError: the directory is full.
        """
        try:
            _write(self._plain, text, mode=0o600, owner=self._owner)
        except OSError as error:
            raise _refused(self.path, error) from error
        self._rest = memoryview(text.encode())

    def open(self) -> bool:
        """Return whether Envoy waits at the gate, which is open then; else ask again later.

        Envoy may not have got there yet, or have died: its process tells which.
        """
        try:
            self._pipe = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a FIFO that nobody reads
                return False
            raise _refused(self.path, error) from error
        return True

    def fileno(self) -> int:
        """Return the descriptor that becomes writable when Envoy has read something."""
        return self._pipe

    def write(self) -> bool:
        """Write what Envoy takes without waiting; return whether it has got everything.

        Raises:
            BootstrapError: Envoy has gone away.
        """
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._pipe, self._rest[:CHUNK_BYTES]) :]
            # Before the end of file: whoever opens the name again must not stop at a FIFO.
            os.replace(self._plain, self.path)
        except BlockingIOError:
            return False
        except BrokenPipeError as error:
            raise BootstrapError([f"{self.path}: Envoy died before it had read all"]) from error
        except OSError as error:
            raise _refused(self.path, error) from error
        self._close()
        return True

    def remove(self) -> None:
        """Remove the files; an Envoy still at the gate reads an empty file and exits with 1."""
        self._close()
        _let_go(self.path)
        _clear(self.path)
        _clear(self._plain)

    def _close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def make_gate(path: str, text: str, *, owner: tuple[int, int] | None = None) -> Gate:
    """Return a gate that is shut; its directory is made where it is missing.

    Raises:
        BootstrapError: the directory is not writable, or full.
    """
    return Gate(path, text, owner=owner)


def write_atomic(
    path: str,
    text: str,
    *,
    mode: int = 0o600,
    owner: tuple[int, int] | None = None,
    named_by: str = CONFIG_PATH,
) -> None:
    """Write a file so that nobody ever sees half of it; its directory is made with 0700.

    Args:
        path: the file's.
        text: what is to be in it.
        mode: whatever the umask is.
        owner: uid and gid, where they are not the agent's.
        named_by: the setting that the path comes from, for the error.

    Raises:
        BootstrapError: the directory is not writable, or full.
    """
    _make_parent(path, owner, named_by)
    temporary = _temporary(path)
    try:
        _write(temporary, text, mode=mode, owner=owner)
        os.replace(temporary, path)
    except OSError as error:
        _clear(temporary)
        raise _refused(path, error, named_by) from error


def read_mesh_config(path: str) -> str | None:
    """Return the text of the mesh configuration file, None where there is none.

    Raises:
        BootstrapError: there is one, and it cannot be read.
    """
    try:
        return read_text(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        line = f"{path}: expected a readable mesh configuration file: {error.strerror}"
        raise BootstrapError([line]) from error


def read_pod_file(path: str) -> tuple[str | None, list[str]]:
    """Return the text of a downward API file, None where it cannot be read, and warnings.

    A missing file is no warning: many pods have none.
    """
    try:
        return read_text(path), []
    except (FileNotFoundError, NotADirectoryError):
        return None, []
    except OSError as error:
        return None, [f"{path}: expected a readable file: {error.strerror}; it is ignored"]


def read_text(path: str) -> str:
    """Return the text of a file that the user names; OSError as of `read_file`."""
    with open(path, encoding="utf-8", errors="replace", opener=_open_regular) as file:
        return file.read()


def read_file(path: str) -> bytes:
    """Return the content of a file that the user names.

    Raises:
        OSError: it cannot be read, is no regular file, or too large.
    """
    with open(path, "rb", opener=_open_regular) as file:
        return file.read()


def _open_regular(path: str, flags: int) -> int:
    """Return the descriptor of a regular file: another one might have us wait, or never end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    seen = os.fstat(descriptor)
    if stat.S_ISREG(seen.st_mode) and seen.st_size <= LIMIT_BYTES:
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(seen.st_mode):
        raise OSError(errno.EFBIG, f"Has more than {LIMIT_BYTES} bytes")
    raise OSError(errno.EINVAL, "Not a regular file")


def _make_parent(path: str, owner: tuple[int, int] | None, named_by: str = CONFIG_PATH) -> None:
    """Make the directory where it is missing; whoever owns what is in it has to get there."""
    directory = os.path.dirname(path) or "."
    is_missing = not os.path.isdir(directory)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if is_missing and owner:
            os.chown(directory, *owner)
    except OSError as error:
        raise _refused(path, error, named_by) from error


def _remove_leftovers(path: str) -> None:
    """Remove what an agent that was killed could not: the directory may be in memory."""
    directory = os.path.dirname(path) or "."
    prefix = f"{os.path.basename(path)}."
    for name in os.listdir(directory):
        if name.startswith(prefix) and name.endswith(TEMPORARY):
            _unlink(f"{directory}/{name}")


def _temporary(path: str) -> str:
    return f"{path}.{os.getpid()}{TEMPORARY}"


def _write(path: str, text: str, *, mode: int, owner: tuple[int, int] | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)  # whatever the umask is
        if owner:
            os.fchown(descriptor, *owner)
        file.write(text)


def _let_go(path: str) -> None:
    """Have whoever waits at a gate read an empty file, such as the Envoy of a killed agent."""
    if _is_fifo(path):
        both_ends = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # which never waits
        _clear(path)
        os.close(both_ends)


def _is_fifo(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.lstat(path).st_mode)
    except OSError:
        return False


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _clear(path: str) -> None:
    """Remove a file if that can be done; where it cannot, something worse is being reported."""
    with suppress(OSError):
        os.unlink(path)


def _refused(path: str, error: OSError, named_by: str = CONFIG_PATH) -> BootstrapError:
    directory = os.path.dirname(path) or "."
    line = (
        f"{path}: cannot be written by uid {os.geteuid()}: {error.strerror};"
        f" mount a writable volume at {directory}, or set {named_by} to a writable place"
    )
    return BootstrapError([line])
