"""The database of accepted resources: whose it is, and what becomes of it when things go wrong."""

import contextlib
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.xds.cache.files import ASIDE, FILE, FORMAT, UNVERSIONED, Store
from agent.xds.cache.ledger import Accept, Drop, Stage
from agent.xds.discovery import Kind, Resource, write_response
from agent.xds.resources import CLUSTER
from tests.fakes.limits import no_more_bytes

#: At the beginning of a database: what reads and writes it, a wrong one of which is the disk's.
HEADER_BYTES = 100
NODE = "sidecar~10.0.0.1~pod.ns~ns.svc.cluster.local"
#: Keeps one set, has half of another on disk, says so, and waits to be killed.
HALF = """
import sys
from tests.process.test_xds_cache_files import accepted, Store, NODE
store = Store(sys.argv[1], NODE)
store.apply(accepted(1, b"old"), 5.0)
store.apply(accepted(2, b"new" * 1000000), None)
print("half", flush=True)
sys.stdin.read()
"""


def accepted(push: int, body: bytes, version: str = "7") -> tuple[Stage, Accept]:
    """Return what follows from a cluster that was pushed and accepted."""
    resource = Resource(CLUSTER, "one", version, body)
    raw = write_response(Kind.DELTA, CLUSTER, version="", nonce="n", resources=[resource])
    return Stage(push, Kind.DELTA, CLUSTER, raw), Accept(push, CLUSTER, replaces=True)


@contextlib.contextmanager
def store(directory: Path, node: str = NODE) -> Iterator[Store]:
    with contextlib.closing(Store(str(directory / "kept"), node)) as opened:
        yield opened


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A directory with a database that holds one cluster."""
    with store(tmp_path) as made:
        made.apply(accepted(1, b"the content"), 5.0)
    return tmp_path


def test_what_was_accepted_is_there_for_the_next(filled: Path) -> None:
    with store(filled) as opened:
        kept = opened.load()

    assert kept is not None
    assert (kept.at, kept.resources, kept.size) == (5.0, 1, 11)
    assert kept.snapshot.resources == {
        CLUSTER: {"one": Resource(CLUSTER, "one", "7", b"the content")}
    }
    assert not kept.snapshot.is_whole


def test_at_first_there_is_nothing(tmp_path: Path) -> None:
    with store(tmp_path) as opened:
        assert opened.load() is None


def test_what_has_no_version_gets_one_that_no_control_plane_gives(tmp_path: Path) -> None:
    with store(tmp_path) as opened:
        opened.apply(accepted(1, b"the content", version=""), 5.0)
        kept = opened.load()

    assert kept is not None
    assert kept.snapshot.resources[CLUSTER]["one"].version == UNVERSIONED


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    with store(tmp_path) as opened:
        opened.apply(accepted(1, b"x" * 3_000_000), None)
        modes = {path.name: mode(path) for path in (tmp_path / "kept").iterdir()}

    assert mode(tmp_path / "kept") == 0o700
    assert modes == {FILE: 0o600, f"{FILE}-journal": 0o600}


def test_that_of_another_node_is_set_aside(filled: Path, caplog: pytest.LogCaptureFixture) -> None:
    with store(filled, "sidecar~10.0.0.2~other.ns~ns.svc.cluster.local") as opened:
        found = opened.load()
        opened.apply(accepted(1, b"mine"), 6.0)
        own = opened.load()

    aside = filled / "kept" / f"{FILE}{ASIDE}"
    assert found is None
    assert own is not None
    assert mode(aside) == 0o600
    assert str(aside) in caplog.text
    assert NODE in caplog.text


def test_that_of_another_format_is_set_aside(
    filled: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(sqlite3.connect(filled / "kept" / FILE)) as database:
        database.execute(f"PRAGMA user_version = {FORMAT + 1}")

    with store(filled) as opened:
        assert opened.load() is None

    assert f"expected format {FORMAT}, found {FORMAT + 1}" in caplog.text


@pytest.mark.parametrize("content", [b"nothing of the kind", b"\0" * 8192])
def test_what_is_no_database_is_set_aside(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / FILE).write_bytes(content)

    with store(tmp_path) as opened:
        assert opened.load() is None
        opened.apply(accepted(1, b"the content"), 5.0)
        assert opened.load() is not None

    assert "set aside" in caplog.text


def test_a_single_damaged_byte_is_noticed(filled: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = filled / "kept" / FILE
    path.write_bytes(path.read_bytes().replace(b"the content", b"the contend"))

    with store(filled) as opened:
        assert opened.load() is None
        assert opened.load() is None

    assert "'one' of type" in caplog.text
    assert "is damaged" in caplog.text


@pytest.mark.parametrize("flip", [0x80, 0x01])
def test_wherever_a_bit_is_wrong_all_is_as_it_was_or_nothing_is(flip: int, filled: Path) -> None:
    path = filled / "kept" / FILE
    good = path.read_bytes()
    used = [place for place, byte in enumerate(good) if byte and place > HEADER_BYTES]
    rng = random.Random(flip)  # noqa: S311 - the same each time
    for place in rng.sample(used, 60):
        path.write_bytes(good[:place] + bytes((good[place] ^ flip,)) + good[place + 1 :])

        with store(filled) as opened:
            kept = opened.load()
            opened.apply(accepted(2, b"another"), 6.0)
            again = opened.load()

        found = kept and [each.body for each in kept.snapshot.resources[CLUSTER].values()]
        assert found in (None, [b"the content"]), place
        assert again is not None
        assert again.snapshot.resources[CLUSTER]["one"].body == b"another", place


def test_a_torn_file_is_noticed(filled: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = filled / "kept" / FILE
    path.write_bytes(path.read_bytes()[:-4096])

    with store(filled) as opened:
        assert opened.load() is None

    assert "set aside" in caplog.text


def test_one_without_our_tables_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept").mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / "kept" / FILE)) as database:
        database.execute("CREATE TABLE other (x)")
        database.execute(f"PRAGMA user_version = {FORMAT}")

    with store(tmp_path) as opened:
        assert opened.load() is None

    assert "expected other tables" in caplog.text


def test_that_of_an_agent_that_is_alive_is_left_alone(filled: Path) -> None:
    with store(filled) as opened:
        opened.apply([], 6.0)
        with pytest.raises(sqlite3.OperationalError, match="locked"), store(filled):
            pass

        assert opened.load() is not None
    assert not (filled / "kept" / f"{FILE}{ASIDE}").exists()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/null")])
def test_what_is_no_file_makes_way(
    make: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept").mkdir()
    make(tmp_path / "kept" / FILE)

    with store(tmp_path) as opened:
        assert opened.load() is None
        opened.apply(accepted(1, b"the content"), 5.0)
        assert opened.load() is not None

    assert "expected a regular file" in caplog.text


def test_who_is_killed_leaves_what_was_good_before(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HALF, str(tmp_path / "kept")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == b"half\n"
        child.send_signal(signal.SIGKILL)

    with store(tmp_path) as opened:
        kept = opened.load()

    assert kept is not None
    assert kept.snapshot.resources[CLUSTER]["one"].body == b"old"


def test_what_fails_is_undone(filled: Path) -> None:
    with store(filled) as opened:
        opened.apply(accepted(2, b"staged"), None)
        broken = Stage(3, Kind.DELTA, None, b"")  # type: ignore[arg-type]  # no type has no number
        with pytest.raises(sqlite3.Error):
            opened.apply([broken], 6.0)
        kept = opened.load()

    assert kept is not None
    assert (kept.at, kept.size) == (5.0, 11)


def test_what_is_kept_on_a_full_disk_can_be_served(filled: Path) -> None:
    """Also where the last agent was killed before all of it was accepted."""
    with store(filled) as opened:
        opened.apply(accepted(2, b"not accepted")[:1], 6.0)
    with no_more_bytes(), store(filled) as opened:
        kept = opened.load()
        with pytest.raises(sqlite3.Error):
            opened.apply(accepted(1, b"another"), 7.0)
    with store(filled) as opened:
        opened.apply(accepted(2, b"another")[1:], 8.0)
        without = opened.load()

    assert kept is not None
    assert kept.snapshot.resources[CLUSTER]["one"].body == b"the content"
    assert without is None  # what was staged by another agent is not there to be accepted


def test_a_part_of_what_is_not_known_is_nothing(filled: Path) -> None:
    stage, accept = accepted(2, b"more")
    with store(filled) as opened:
        opened.apply([Drop(CLUSTER), stage, accept._replace(replaces=False)], 6.0)
        part = opened.load()
        opened.apply(accepted(3, b"all of it"), 7.0)
        whole = opened.load()

    assert part is None
    assert whole is not None
    assert whole.size == len(b"all of it")
