"""Tar archives, read from their beginning up to the file that is wanted.

The standard library's tarfile keeps what an archive says of itself, however much that is: 4 MB from
a registry became 800 MB and took a minute. Here no more than a header and a name is held.

Source: pax(1), ustar and pax interchange formats; GNU tar's long names and numbers.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

BLOCK_BYTES: Final = 512
PIECE_BYTES: Final = 1 << 20
#: Where a header has what it says.
NAME, SIZE, CHECKSUM, KIND = slice(0, 100), slice(124, 136), slice(148, 156), slice(156, 157)
#: Kinds of entries. Those that have a size and no content are links, devices and directories.
FILE_KINDS: Final = (b"0", b"\0", b"7")
EMPTY_KINDS: Final = (b"1", b"2", b"3", b"4", b"5", b"6")
LONG_NAME: Final = b"L"
PAX_KINDS: Final = (b"x", b"X")
#: They say something of the entry that follows, or of all; these of no interest here.
EXTENDING_KINDS: Final = (LONG_NAME, b"K", *PAX_KINDS, b"g")
#: Of what such an entry may say. Source: Go's archive/tar, maxSpecialFileSize.
MAX_EXTENSION_BYTES: Final = 1 << 20
#: Of a number in binary form, the first byte.
BINARY: Final = 0x80
PAX_NAME, PAX_SIZE, PAX_SPARSE = b"path", b"size", b"GNU.sparse."


class Source(Protocol):
    """What can be read."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes, nothing at the end."""


class _Entry(NamedTuple):
    kind: bytes
    name: bytes
    size: int  #: of the content, without padding


def find_file(source: Source, is_wanted: Callable[[bytes], bool]) -> int:
    """Read up to the content of the first file that is wanted; return its size in bytes.

    Args:
        source: the archive, at its beginning.
        is_wanted: told the name of each file, with its directories as far as they fit a header.

    Raises:
        ValueError: there is none, or this is no archive.
    """
    while entry := _next_entry(source):
        if entry.kind in FILE_KINDS and is_wanted(entry.name):
            return entry.size
        _skip(source, _padded(entry.size))
    raise ValueError("no such file in the archive")


def _next_entry(source: Source) -> _Entry | None:
    """Return the next entry with what was said of it before; none at the end."""
    said: dict[bytes, bytes] = {}
    while (entry := _read_header(source)) and entry.kind in EXTENDING_KINDS:
        if entry.size > MAX_EXTENSION_BYTES:
            raise ValueError(f"an entry has {entry.size} bytes of attributes")
        content = _read(source, _padded(entry.size))[: entry.size]
        if entry.kind == LONG_NAME:
            said[PAX_NAME] = content.partition(b"\0")[0]
        elif entry.kind in PAX_KINDS:
            said |= _records(content)
    if entry is None:
        return None
    if PAX_SPARSE in said:
        entry = entry._replace(kind=b"S")  # with holes: no module has any
    return entry._replace(
        name=said.get(PAX_NAME, entry.name),
        size=_decimal(said[PAX_SIZE]) if PAX_SIZE in said else entry.size,
    )


def _read_header(source: Source) -> _Entry | None:
    header = _read_up_to(source, BLOCK_BYTES)
    if not header.strip(b"\0"):
        return None
    if len(header) < BLOCK_BYTES:
        raise ValueError("archive ends within a header")
    kind, name = header[KIND], header[NAME].partition(b"\0")[0]
    if sum(header) - sum(header[CHECKSUM]) + 8 * ord(" ") != _number(header[CHECKSUM]):
        raise ValueError("not an archive, or one that is damaged")
    if kind == b"\0" and name.endswith(b"/"):
        kind = b"5"  # how a directory was written before there was a kind
    return _Entry(kind, name, 0 if kind in EMPTY_KINDS else _number(header[SIZE]))


def _records(content: bytes) -> dict[bytes, bytes]:
    """Return what counts of attributes in pax's form: lines that begin with their length."""
    said, at = {}, 0
    while at < len(content):
        length = _decimal(content[at : at + 20].partition(b" ")[0])
        name, equals, value = content[at : at + length].partition(b" ")[2].partition(b"=")
        if not equals or not value.endswith(b"\n"):
            raise ValueError("an entry has attributes that are none")
        if name in (PAX_NAME, PAX_SIZE):
            said[name] = value[:-1]
        elif name.startswith(PAX_SPARSE):
            said[PAX_SPARSE] = b""
        at += length
    return said


def _number(field: bytes) -> int:
    if field[0] & BINARY:
        return int.from_bytes(field, "big") & ~(BINARY << 8 * (len(field) - 1))
    digits = field.partition(b"\0")[0].strip()
    if not re.fullmatch(rb"[0-7]*", digits):
        raise ValueError("a header has a number that is none")
    return int(digits or b"0", 8)


def _decimal(digits: bytes) -> int:
    if not re.fullmatch(rb"[0-9]{1,19}", digits):
        raise ValueError("an entry has a number that is none")
    return int(digits)


def _padded(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _read(source: Source, size: int) -> bytes:
    content = _read_up_to(source, size)
    if len(content) < size:
        raise ValueError("archive ends within an entry")
    return content


def _read_up_to(source: Source, size: int) -> bytes:
    content = b""
    while len(content) < size and (piece := source.read(size - len(content))):
        content += piece
    return content


def _skip(source: Source, size: int) -> None:
    while size > 0 and (piece := source.read(min(size, PIECE_BYTES))):
        size -= len(piece)
    if size:
        raise ValueError("archive ends within an entry")
