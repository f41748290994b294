"""A module out of what it came in: gzip and tar, in any nesting, all of it in files.

Nothing is held in memory but a piece at a time, and no file grows beyond the limit: what is packed
may be a thousand times larger than what was sent, and may hold itself.

Source: xds-identity-dns.md sections 3.5 and 3.6.
"""

import gzip
import hashlib
import zlib
from collections.abc import Callable
from typing import IO, Final, NamedTuple

from agent.wasm.fetch.archive import PIECE_BYTES, Source, find_file

MAGIC: Final = b"\0asm"
#: Magic and version.
HEAD_BYTES: Final = 8
GZIP_MAGIC: Final = b"\x1f\x8b"
TAR_MAGIC: Final = b"ustar"
TAR_MAGIC_AT: Final = 257
#: Of an image: the module's name in its archive.
MODULE_FILE: Final = b"plugin.wasm"
#: Of whatever the body is packed in. There is a gzip that unpacks to itself.
MAX_STEPS: Final = 8
#: What is raised where the bytes are not what they should be.
BAD_ARCHIVE: Final = (zlib.error, EOFError, gzip.BadGzipFile, ValueError)

Make = Callable[[], IO[bytes]]
Step = Callable[[IO[bytes], IO[bytes], int], "Content"]


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


class Limited:
    """Reads a source up to a limit."""

    def __init__(self, source: Source, limit_bytes: int) -> None:
        self._source = source
        self._rest = limit_bytes
        self.was_cut = False

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes, nothing at the end or the limit."""
        piece = self._source.read(min(size, self._rest))
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
    for _ in range(MAX_STEPS):
        step = _next_step(current)
        if step is None:
            break
        try:
            unpacked = step(current.file, make(), limit_bytes)
        except BAD_ARCHIVE:
            return body.file
        if current is not body:
            current.file.close()
        current = unpacked
    if not _has(current.file, 0, MAGIC):
        return body.file
    if current.is_cut:
        raise TooLargeError(limit_bytes)
    return current.file


def _next_step(content: Content) -> Step | None:
    """Return how to unpack this, none if there is nothing to unpack."""
    if _has(content.file, 0, MAGIC):
        return None
    if _has(content.file, 0, GZIP_MAGIC):
        return _gunzip
    return _first_file if _has(content.file, TAR_MAGIC_AT, TAR_MAGIC) else None


def find_module(layer: IO[bytes], make: Make, limit_bytes: int) -> IO[bytes]:
    """Return the module in the layer of an image, which is a tar.gz.

    Raises:
        ValueError: it is none, has no such file, or one larger than the limit.
    """
    layer.seek(0)
    with gzip.open(layer) as plain:
        limited = Limited(plain, limit_bytes)
        try:
            size = find_file(limited, lambda name: name.rpartition(b"/")[2] == MODULE_FILE)
            return _copy(limited, make(), size, limit_bytes).file
        except BAD_ARCHIVE as error:
            if limited.was_cut:
                raise TooLargeError(limit_bytes) from None
            raise ValueError(f"layer holds no {MODULE_FILE.decode()}: {error}") from None


def _first_file(source: IO[bytes], target: IO[bytes], limit_bytes: int) -> Content:
    source.seek(0)
    return _copy(source, target, find_file(source, lambda _: True), limit_bytes)


def _gunzip(source: IO[bytes], target: IO[bytes], limit_bytes: int) -> Content:
    source.seek(0)
    with gzip.open(source) as plain:
        limited = Limited(plain, limit_bytes)
        while piece := limited.read(PIECE_BYTES):
            target.write(piece)
        return Content(target, limited.was_cut)


def _copy(source: Source, target: IO[bytes], size: int, limit_bytes: int) -> Content:
    """Return a file of an archive, or its beginning."""
    rest = min(size, limit_bytes)
    while rest and (piece := source.read(min(rest, PIECE_BYTES))):
        target.write(piece)
        rest -= len(piece)
    if rest:
        raise ValueError("archive ends within the file")
    return Content(target, is_cut=size > limit_bytes)


def _has(file: IO[bytes], position: int, magic: bytes) -> bool:
    file.seek(position)
    return file.read(len(magic)) == magic
