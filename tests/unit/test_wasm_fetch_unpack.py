"""Modules out of what they came in. Sections 3.5 and 3.6, R-24, R-26, T-W8."""

import gzip
import hashlib
import io
import random

import pytest

from agent.wasm.fetch.unpack import (
    Content,
    Limited,
    TooLargeError,
    digest,
    find_module,
    is_module,
    unpack,
)
from tests.fakes.archives import tar, tar_gz
from tests.fakes.wasm import MODULE

LIMIT = 1 << 20
#: Hard to compress, and larger than the limits below.
LARGE = MODULE + random.Random(0).randbytes(200_000)  # noqa: S311 - any bytes


def unpacked(body: bytes, limit: int = LIMIT, *, is_cut: bool = False) -> bytes:
    file = unpack(Content(io.BytesIO(body), is_cut), io.BytesIO, limit)
    file.seek(0)
    return file.read()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(MODULE, id="plain"),
        pytest.param(gzip.compress(MODULE), id="gzip"),
        pytest.param(tar(("a.wasm", MODULE)), id="tar"),
        pytest.param(tar(("directory", None), ("a.wasm", MODULE), ("b", b"")), id="among others"),
        pytest.param(gzip.compress(tar(("a.wasm", MODULE))), id="tar.gz"),
        pytest.param(tar(("a.gz", gzip.compress(MODULE))), id="gzip in tar"),
        pytest.param(
            gzip.compress(gzip.compress(tar(("a.tar", tar(("a.wasm", MODULE)))))),
            id="tar in tar.gz in gzip",
        ),
    ],
)
def test_a_module_is_found_in_whatever_it_is_packed(body: bytes) -> None:
    assert unpacked(body) == MODULE


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"no module", id="text"),
        pytest.param(gzip.compress(b"no module"), id="text in gzip"),
        pytest.param(gzip.compress(MODULE)[:-9], id="gzip cut off"),
        pytest.param(b"\x1f\x8bno gzip", id="head of gzip"),
        pytest.param(tar(("directory", None)), id="directory in tar"),
        pytest.param(tar(("a.wasm", MODULE))[:520], id="tar cut off"),
        pytest.param(gzip.compress(MODULE) + b"and more", id="more after gzip"),
        pytest.param(b"x" * 257 + b"ustar" + b"x" * 600, id="mark of tar"),
    ],
)
def test_what_holds_no_module_is_left_as_it_is(body: bytes) -> None:
    assert unpacked(body) == body


def test_a_module_that_is_cut_is_none() -> None:
    with pytest.raises(TooLargeError, match="ISTIO_WASM_MAX_BINARY_SIZE_BYTES=100000; raise it"):
        unpacked(gzip.compress(LARGE), 100_000)
    with pytest.raises(TooLargeError):
        unpacked(tar(("a.wasm", LARGE)), 100_000)
    with pytest.raises(TooLargeError):
        unpacked(MODULE, is_cut=True)


def test_what_follows_the_module_may_be_cut() -> None:
    body = tar(("a.wasm", MODULE), ("rest", LARGE))

    assert unpacked(body[:100_000], 100_000, is_cut=True) == MODULE
    assert unpacked(gzip.compress(body), 100_000) == MODULE


def test_a_bomb_is_not_unpacked_beyond_the_limit() -> None:
    written = io.BytesIO()
    bomb = gzip.compress(b"\0" * 10_000_000)

    unpack(Content(io.BytesIO(bomb)), lambda: written, 1000)

    assert len(written.getvalue()) == 1000


def test_a_body_that_is_packed_in_itself_ends() -> None:
    """A gzip that unpacks to itself does the same without end; each step costs a file."""
    body, files = MODULE, list[io.BytesIO]()
    for _ in range(9):
        body = gzip.compress(body)

    def make() -> io.BytesIO:
        files.append(io.BytesIO())
        return files[-1]

    sent = io.BytesIO(body)

    assert unpack(Content(sent), make, LIMIT) is sent
    assert len(files) == 8
    assert [each.closed for each in files] == [True] * 7 + [False]


def test_a_module_may_look_like_an_archive_further_on() -> None:
    module = (MODULE + bytes(257))[:257] + b"ustar" + bytes(600)

    assert unpacked(gzip.compress(module)) == module


def found(layer: bytes, limit: int = LIMIT) -> bytes:
    file = find_module(io.BytesIO(layer), io.BytesIO, limit)
    file.seek(0)
    return file.read()


@pytest.mark.parametrize("name", ["plugin.wasm", "./plugin.wasm", "some/where/plugin.wasm"])
def test_a_layer_holds_the_module_somewhere(name: str) -> None:
    layer = tar_gz(("plugin.wasm", None), ("other.wasm", b"other"), (name, MODULE))

    assert found(layer) == MODULE


@pytest.mark.parametrize(
    ("layer", "problem"),
    [
        (tar_gz(("other.wasm", MODULE)), "layer holds no plugin.wasm: no such file"),
        (b"", "layer holds no plugin.wasm: "),
        (tar(("plugin.wasm", MODULE)), "Not a gzipped file"),
        (gzip.compress(b"x" * 1000), "layer holds no plugin.wasm: a header has a number"),
        (tar_gz(("plugin.wasm", LARGE))[:50_000], "layer holds no plugin.wasm: "),
    ],
    ids=["another file", "nothing", "no gzip", "no tar", "cut off"],
)
def test_a_layer_without_module_is_refused(layer: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        found(layer)


def test_a_layer_larger_than_the_limit_is_refused() -> None:
    with pytest.raises(TooLargeError):
        found(tar_gz(("plugin.wasm", LARGE)), 100_000)
    with pytest.raises(TooLargeError):
        found(tar_gz(("before", LARGE), ("plugin.wasm", MODULE)), 100_000)


def test_reading_stops_at_the_limit() -> None:
    exact, cut = (Limited(io.BytesIO(b"abcdef"), limit) for limit in (6, 5))

    assert [exact.read(4), exact.read(4), exact.read(4)] == [b"abcd", b"ef", b""]
    assert not exact.was_cut
    assert [cut.read(9), cut.read(1), cut.read(1)] == [b"abcde", b"", b""]
    assert cut.was_cut


def test_a_module_is_known_by_its_head() -> None:
    assert is_module(io.BytesIO(MODULE))
    assert not is_module(io.BytesIO(MODULE[:7]))
    assert not is_module(io.BytesIO(b"12345678"))


def test_the_digest_is_that_of_the_whole_file() -> None:
    file = io.BytesIO(LARGE)
    file.seek(10)

    assert digest(file) == hashlib.sha256(LARGE).hexdigest()
