"""Tar archives. Section 3.5; pax(1)."""

import io
import tarfile

import pytest

from agent.wasm.fetch.archive import find_file
from tests.fakes.archives import tar

BLOCK = 512


def header(kind: bytes, size: int, name: str = "a") -> bytes:
    """Return a header of any kind and size."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT)


def pax(**said: str) -> bytes:
    """Return an entry of pax attributes; a dot in a name is '__'."""
    info = tarfile.TarInfo("a")
    info.pax_headers = {name.replace("__", "."): value for name, value in said.items()}
    return info.tobuf(tarfile.PAX_FORMAT)[:-BLOCK]


def found(archive: bytes, name: bytes = b"") -> bytes:
    """Return the file of a name, the first one without."""
    source = io.BytesIO(archive)
    return source.read(find_file(source, lambda each: each == name if name else True))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_file_is_found_behind_others(form: int) -> None:
    archive = tar(("d", None), ("x", b"x" * 700), ("e", b""), ("d/a", b"found"), form=form)

    assert found(archive, b"d/a") == b"found"
    assert found(archive) == b"x" * 700
    assert found(archive, b"e") == b""


def test_a_long_name_stands_before_its_file() -> None:
    name = "long/" * 50 + "name"

    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        archive = tar((name, b"found"), ("b", b"other"), form=form)
        assert found(archive, name.encode()) == b"found"
        assert found(archive, b"b") == b"other"


def test_attributes_may_give_the_size() -> None:
    archive = pax(size="5", comment="none", path="b") + header(b"0", 0) + b"found"

    assert found(archive, b"b") == b"found"


def test_a_number_may_be_binary() -> None:
    binary = bytearray(header(b"0", 5))
    binary[124:136] = b"\x80" + (5).to_bytes(11, "big")
    binary[148:156] = b" " * 8
    binary[148:156] = b"%06o\0 " % sum(binary)

    assert found(bytes(binary) + b"found") == b"found"


@pytest.mark.parametrize("kind", [b"1", b"2", b"3", b"4", b"5", b"6"])
def test_what_has_no_content_is_no_file(kind: bytes) -> None:
    """Links and devices are not followed, whatever size they claim to have."""
    archive = header(kind, 700) + header(b"0", 5, "b") + b"found"

    assert found(archive) == b"found"


@pytest.mark.parametrize("kind", [b"g", b"K"])
def test_what_is_said_of_all_or_of_links_does_not_matter(kind: bytes) -> None:
    assert found(header(kind, 3) + b"abc" + bytes(509) + header(b"0", 5) + b"found") == b"found"


def test_an_old_directory_is_no_file() -> None:
    assert found(header(b"\0", 0, "d/") + header(b"\0", 5) + b"found") == b"found"


@pytest.mark.parametrize(
    "sparse", [header(b"S", 512), pax(GNU__sparse__major="1") + header(b"0", 512)]
)
def test_a_file_with_holes_is_passed_over(sparse: bytes) -> None:
    """Its map may have a million holes, of a terabyte."""
    assert found(sparse + bytes(512) + header(b"0", 5) + b"found") == b"found"


@pytest.mark.parametrize(
    ("archive", "problem"),
    [
        (b"", "no such file"),
        (bytes(1024) + header(b"0", 0), "no such file"),
        (header(b"0", 0)[:100], "ends within a header"),
        (header(b"5", 0), "no such file"),
        (header(b"S", 700) + bytes(100), "ends within an entry"),
        (header(b"x", 700) + bytes(100), "ends within an entry"),
        (header(b"x", (1 << 20) + 1), "1048577 bytes of attributes"),
        (header(b"L", 1 << 40), "bytes of attributes"),
        (header(b"x", 3) + b"abc" + bytes(509), "a number that is none"),
        (header(b"x", 4) + b"4 ab" + bytes(508), "attributes that are none"),
        (header(b"x", 6) + b"3 a=b\n" + bytes(506), "attributes that are none"),
        (header(b"x", 4) + b"0 a=" + bytes(508), "attributes that are none"),
        (b"x" * 512, "a number that is none|not an archive"),
        (b"a" + header(b"0", 0)[1:-1] + b"x", "not an archive"),
    ],
)
def test_what_is_no_archive_is_refused(archive: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        found(archive)
