"""The directory of modules, which several agents may share. Section 3.4, D-17."""

import io
import os
import subprocess
import time
from pathlib import Path

import pytest

from agent.wasm.cache import Key
from agent.wasm.fetch.files import store
from agent.wasm.files import WRITING_SECONDS, index, remove, touch
from tests.fakes.wasm import MODULE

ONE, TWO = "1" * 64, "2" * 64
KEY = Key(ONE, TWO)
HOUR = 3600.0


def aged(path: Path, seconds: float) -> Path:
    """Write a module so long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(MODULE)
    at = time.time() - seconds
    os.utime(path, (at, at))
    return path


def test_a_module_is_found_and_removed_with_its_directory(tmp_path: Path) -> None:
    aged(tmp_path / KEY.path, 2 * HOUR)

    assert index(str(tmp_path)) == [KEY]
    assert remove(str(tmp_path), KEY, unused_seconds=HOUR)
    assert list(tmp_path.iterdir()) == []
    assert not touch(str(tmp_path), KEY)
    assert remove(str(tmp_path), KEY, unused_seconds=HOUR)


def test_what_another_agent_uses_stays(tmp_path: Path) -> None:
    path = aged(tmp_path / KEY.path, 2 * HOUR)

    assert touch(str(tmp_path), KEY)

    assert not remove(str(tmp_path), KEY, unused_seconds=HOUR)
    assert path.exists()


def test_what_another_agent_is_writing_stays(tmp_path: Path) -> None:
    written = aged(tmp_path / ONE / "a.tmp", WRITING_SECONDS / 2)
    left = aged(tmp_path / ONE / "b.tmp", WRITING_SECONDS * 2)

    assert index(str(tmp_path)) == []
    assert written.exists()
    assert not left.exists()


def test_what_goes_while_it_is_looked_at_is_nothing(tmp_path: Path) -> None:
    """A file that another agent completes is there by one name, and then by another."""
    (tmp_path / ONE).mkdir()
    (tmp_path / ONE / "a.tmp").symlink_to("gone")

    assert index(str(tmp_path)) == []


def test_a_module_is_stored_though_its_directory_goes_meanwhile(tmp_path: Path) -> None:
    """A purge removes directories that are empty, as a new one is."""
    place = tmp_path / ONE
    purging = subprocess.Popen(
        ["sh", "-c", 'while true; do rmdir "$0"; done', str(place)], stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            store(io.BytesIO(MODULE), str(tmp_path / KEY.path))
            (tmp_path / KEY.path).unlink()
    finally:
        purging.kill()
        purging.wait()


def test_a_directory_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store(io.BytesIO(MODULE), str(tmp_path / "none" / KEY.path))


def test_what_is_no_module_is_none(tmp_path: Path) -> None:
    for name in (f"{ONE}/{TWO}.wasm", f"{ONE}/{ONE}.wasm/file"):
        aged(tmp_path / name, 2 * HOUR).write_bytes(MODULE[:7])
    (tmp_path / "file").touch()

    assert index(str(tmp_path)) == []
    assert not remove(str(tmp_path), Key(ONE, ONE), unused_seconds=0)


def test_a_directory_that_is_missing_holds_nothing(tmp_path: Path) -> None:
    assert index(f"{tmp_path}/none") == []
