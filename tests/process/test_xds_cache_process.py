"""The thread that keeps what Envoy accepts: when it writes, and what if the disk fails."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.xds.cache.files import FILE, Store
from agent.xds.cache.ledger import Accept, Change, Stage
from agent.xds.cache.process import GATHERED_BYTES, QUEUED_BYTES, Recorder
from agent.xds.discovery import Kind, Resource, write_response
from agent.xds.resources import CLUSTER
from tests.waiting import until

NODE = "node"
#: More than SQLite keeps in memory.
LARGE_BYTES = 4_000_000


def accepted(push: int, size: int = 10) -> list[Change]:
    resource = Resource(CLUSTER, f"c{push}", "1", b"x" * size)
    raw = write_response(Kind.DELTA, CLUSTER, version="", nonce="n", resources=[resource])
    return [Stage(push, Kind.DELTA, CLUSTER, raw), Accept(push, CLUSTER, replaces=push == 1)]


@contextlib.asynccontextmanager
async def recording(directory: Path) -> AsyncIterator[Recorder]:
    recorder = Recorder(str(directory / "kept"))
    recorder.begin(NODE)
    try:
        yield recorder
    finally:
        await recorder.close()


def names(directory: Path) -> set[str]:
    """Return the names of what is kept for good."""
    with contextlib.closing(Store(str(directory / "kept"), NODE)) as store:
        kept = store.load()
    return set(kept.snapshot.resources[CLUSTER]) if kept else set()


async def test_a_burst_is_gathered_and_written_once(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        for push in range(1, 501):
            assert recorder.record(accepted(push)) is None
            await asyncio.sleep(0)
        untouched = not (tmp_path / "kept").exists()

    assert untouched
    assert names(tmp_path) == {f"c{push}" for push in range(1, 501)}


async def test_a_large_push_is_handed_over_at_once(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        writing = recorder.record(accepted(1, LARGE_BYTES))
        assert writing is not None
        await recorder.written(writing)

        assert (tmp_path / "kept" / FILE).stat().st_size > LARGE_BYTES / 2


@pytest.mark.slow
async def test_what_came_is_kept_for_good_when_it_is_quiet(tmp_path: Path) -> None:
    journal = tmp_path / "kept" / f"{FILE}-journal"
    async with recording(tmp_path) as recorder:
        recorder.record(accepted(1))
        await until((tmp_path / "kept" / FILE).exists)
        await until(lambda: journal.exists() and not journal.stat().st_size)
        kept = await recorder.load()

    assert kept is not None
    assert kept.at > 0


async def test_what_is_under_way_counts_when_it_is_loaded(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        recorder.record(accepted(1))
        kept = await recorder.load()

    assert kept is not None
    assert kept.resources == 1


async def test_nothing_is_loaded_for_nobody(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "kept"))

    assert await recorder.load() is None
    await recorder.close()

    assert not (tmp_path / "kept").exists()


@pytest.mark.slow
async def test_what_cannot_be_written_is_said_once_and_not_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept").mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / "kept" / FILE)) as other:
        other.execute("BEGIN EXCLUSIVE")
        async with recording(tmp_path) as recorder:
            writing = recorder.record(accepted(1, GATHERED_BYTES))
            assert writing is not None
            await recorder.written(writing)

            assert recorder.record(accepted(2, GATHERED_BYTES)) is None
            assert await recorder.load() is None

    lines = [each.message for each in caplog.records if "not keeping" in each.message]
    assert len(lines) == 1
    assert "locked" in lines[0]


async def test_a_disk_that_falls_behind_is_given_up_and_what_it_has_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A push is never held for a disk: it does not matter how far the disk has got."""
    with contextlib.closing(Store(str(tmp_path / "kept"), NODE)) as store:
        store.apply(accepted(1), 1.0)
    async with recording(tmp_path) as recorder:
        for push in range(2, 5):
            recorder.record(accepted(push, QUEUED_BYTES // 2))

    assert "wait to be written" in caplog.text
    assert names(tmp_path) == {"c1"}
