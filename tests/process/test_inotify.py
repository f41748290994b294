"""The kernel's notices of changed files."""

import errno
from pathlib import Path

import pytest

from agent.inotify import files as inotify
from agent.inotify.files import Event, Inotify

EVENTS = inotify.CREATE | inotify.CLOSE_WRITE | inotify.MOVED_TO | inotify.DELETE_SELF


def test_changes_are_told_in_order(tmp_path: Path) -> None:
    watches = Inotify()
    number = watches.add(str(tmp_path), EVENTS)

    (tmp_path / "a name").write_text("x")
    (tmp_path / "a name").rename(tmp_path / "ö")
    (tmp_path / "folder").mkdir()
    events = watches.read()

    assert events == [
        Event(number, inotify.CREATE, "a name"),
        Event(number, inotify.CLOSE_WRITE, "a name"),
        Event(number, inotify.MOVED_TO, "ö"),
        Event(number, inotify.CREATE | inotify.ISDIR, "folder"),
    ]
    assert watches.read() == []
    watches.close()


def test_a_watch_ends_with_its_directory_or_when_told(tmp_path: Path) -> None:
    watches = Inotify()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = (watches.add(str(tmp_path / name), EVENTS) for name in ("one", "two"))
    assert watches.add(str(tmp_path / "one"), EVENTS) == one

    (tmp_path / "one").rmdir()
    watches.remove(two)

    gone = [event.watch for event in watches.read() if event.mask & inotify.IGNORED]
    assert gone == [one, two]
    watches.close()
    watches.close()


def test_what_cannot_be_watched_is_an_error(tmp_path: Path) -> None:
    watches = Inotify()

    with pytest.raises(FileNotFoundError, match="none"):
        watches.add(str(tmp_path / "none"), EVENTS)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory") as caught:
        watches.add(str(tmp_path / "file"), EVENTS | inotify.ONLYDIR)

    assert caught.value.errno == errno.ENOTDIR
    watches.close()
