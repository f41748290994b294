"""A module out of what it came in: gzip and tar, in any nesting, all of it in files.

Nothing is held in memory but a piece at a time, and no file grows beyond the limit: what is packed
may be a thousand times larger than what was sent.

Source: xds-identity-dns.md sections 3.5 and 3.6.
"""

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable
from typing import IO, Final, NamedTuple, Protocol, cast

MAGIC: Final = b"\0asm"
#: Magic and version.
HEAD_BYTES: Final = 8
GZIP_MAGIC: Final = b"\x1f\x8b"
TAR_MAGIC: Final = b"ustar"
TAR_MAGIC_AT: Final = 257
#: Of an image: the module's name in its archive.
MODULE_FILE: Final = "plugin.wasm"
PIECE_BYTES: Final = 1 << 20
#: What the two libraries raise where the bytes are not what they should be.
BAD_ARCHIVE: Final = (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, ValueError)

Make = Callable[[], IO[bytes]]


class TooLargeError(ValueError):
    """The module is larger than allowed."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"module is larger than ISTIO_WASM_MAX_BINARY_SIZE_BYTES={limit_bytes}; raise it"
        )


class Content(NamedTuple):
    """What a file holds; `is_cut` says that there would be more."""

    file: IO[bytes]
    is_cut: bool = False


class Source(Protocol):
    """What can be read."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes, nothing at the end."""


class Limited(io.BufferedIOBase):
    """Reads a source up to a limit."""

    def __init__(self, source: Source, limit_bytes: int) -> None:
        self._source = source
        self._rest = limit_bytes
        self.was_cut = False

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most so many bytes, nothing at the end or the limit."""
        wanted = self._rest if size is None or size < 0 else min(size, self._rest)
        piece = self._source.read(wanted)
        self._rest -= len(piece)
        if size and not piece and not self._rest:
            self.was_cut = self.was_cut or bool(self._source.read(1))
        return piece


def is_module(file: IO[bytes]) -> bool:
    """Return whether this is a Wasm module, as far as its head tells."""
    file.seek(0)
    head = file.read(HEAD_BYTES)
    return len(head) == HEAD_BYTES and head.startswith(MAGIC)


def digest(file: IO[bytes]) -> str:
    """Return the hex sha256 of a file."""
    file.seek(0)
    hashed = hashlib.sha256()
    while piece := file.read(PIECE_BYTES):
        hashed.update(piece)
    return hashed.hexdigest()


def unpack(body: Content, make: Make, limit_bytes: int) -> IO[bytes]:
    """Return the module in a body; the body itself where there is none in it.

    Args:
        body: what was sent, of which more than the limit was not read.
        make: returns a new file for what is unpacked.
        limit_bytes: of the result of each step.

    Raises:
        TooLargeError: of the module there is only the beginning.
    """
    current = body
    while not _has(current.file, 0, MAGIC):
        try:
            if _has(current.file, 0, GZIP_MAGIC):
                current = _gunzip(current.file, make(), limit_bytes)
            elif _has(current.file, TAR_MAGIC_AT, TAR_MAGIC):
                current = _first_file(current.file, make(), limit_bytes)
            else:
                return body.file
        except BAD_ARCHIVE:
            return body.file
    if current.is_cut:
        raise TooLargeError(limit_bytes)
    return current.file


def find_module(layer: IO[bytes], make: Make, limit_bytes: int) -> IO[bytes]:
    """Return the module in the layer of an image, which is a tar.gz.

    Raises:
        ValueError: it is none, has no such file, or one larger than the limit.
    """
    layer.seek(0)
    with gzip.open(layer) as plain:
        # Below tarfile, which believes what a header says of its own length.
        limited = Limited(plain, limit_bytes)
        try:
            return _named_file(limited, make(), limit_bytes)
        except BAD_ARCHIVE as error:
            if limited.was_cut:
                raise TooLargeError(limit_bytes) from None
            raise ValueError(f"layer cannot be unpacked: {error}") from None


def _named_file(source: Limited, target: IO[bytes], limit_bytes: int) -> IO[bytes]:
    with tarfile.open(fileobj=source, mode="r|") as tar:
        while (entry := tar.next()) is not None:
            if entry.isfile() and entry.name.rpartition("/")[2] == MODULE_FILE:
                return _copied(tar, entry, target, limit_bytes).file
            _forget(tar)
    raise ValueError(f"no file {MODULE_FILE}")


def _first_file(source: IO[bytes], target: IO[bytes], limit_bytes: int) -> Content:
    source.seek(0)
    with tarfile.open(fileobj=source, mode="r:") as tar:
        while (entry := tar.next()) is not None:
            if entry.isfile():
                return _copied(tar, entry, target, limit_bytes)
            _forget(tar)
    raise ValueError("no file in the archive")


def _forget(tar: tarfile.TarFile) -> None:
    """Keep no list of what was passed over: an archive may have a million entries."""
    tar.members.clear()  # type: ignore[attr-defined]  # which is there, and not in the stubs


def _copied(
    tar: tarfile.TarFile, entry: tarfile.TarInfo, target: IO[bytes], limit_bytes: int
) -> Content:
    content = cast("IO[bytes]", tar.extractfile(entry))  # none only for what is no file
    return _copy(content, target, limit_bytes)


def _gunzip(source: IO[bytes], target: IO[bytes], limit_bytes: int) -> Content:
    source.seek(0)
    with gzip.open(source) as plain:
        return _copy(plain, target, limit_bytes)


def _copy(source: Source, target: IO[bytes], limit_bytes: int) -> Content:
    limited = Limited(source, limit_bytes)
    while piece := limited.read(PIECE_BYTES):
        target.write(piece)
    return Content(target, limited.was_cut)


def _has(file: IO[bytes], position: int, magic: bytes) -> bool:
    file.seek(position)
    return file.read(len(magic)) == magic
