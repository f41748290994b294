"""Secrets in files that change. Source: section 5.5; 11.3, T-C."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.errors import SecretError
from agent.identity.watch.files import Watches
from agent.identity.watch.run import kernel_watches
from tests.fakes.ca import write_files
from tests.fakes.following import (
    PAIRS,
    ROOT,
    ROOTS,
    Bench,
    following,
    no_watches,
    replace,
    replace_pair,
)
from tests.waiting import until


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with following() as made:
        yield made


async def test_a_pair_replaced_file_by_file_is_one_change(tmp_path: Path, bench: Bench) -> None:
    """T-C4: the certificate first; until the key follows the two do not fit."""
    write_files(tmp_path, PAIRS[0])
    assert await bench.pair(tmp_path) == PAIRS[0]

    replace(tmp_path / "cert-chain.pem", PAIRS[1].certificate)
    await until(lambda: bench.secrets._watched["pair"].failures)  # noqa: SLF001 - it was seen
    replace(tmp_path / "key.pem", PAIRS[1].key)

    assert await bench.event() == "pair"
    assert await bench.pair(tmp_path) == PAIRS[1]
    await bench.settled()
    assert bench.events.empty()


async def test_a_key_alone_is_no_change(tmp_path: Path, bench: Bench) -> None:
    """T-C5."""
    write_files(tmp_path, PAIRS[0])
    await bench.pair(tmp_path)

    replace(tmp_path / "key.pem", PAIRS[0].key + b"\n")
    await until(lambda: bench.secrets._due)  # noqa: SLF001 - it was seen
    await bench.settled()

    assert bench.events.empty()
    assert (await bench.pair(tmp_path)).key == PAIRS[0].key + b"\n"


async def test_a_root_may_be_replaced_rewritten_and_removed(tmp_path: Path, bench: Bench) -> None:
    """T-C6, C6."""
    path = tmp_path / "root.pem"
    path.write_text(ROOTS[0].pem)
    assert await bench.root(path) == ROOTS[0].pem

    replace(path, ROOTS[1].pem)
    assert await bench.event() == "root"
    assert await bench.root(path) == ROOTS[1].pem

    path.unlink()
    await until(lambda: bench.secrets._watched["root"].failures)  # noqa: SLF001 - it was seen
    assert await bench.root(path) == ROOTS[1].pem
    path.write_text(ROOTS[2].pem)
    assert await bench.event() == "root"
    assert await bench.root(path) == ROOTS[2].pem

    path.write_text(ROOTS[0].pem)
    assert await bench.event() == "root"
    assert await bench.root(path) == ROOTS[0].pem
    await bench.settled()
    assert bench.events.empty()


async def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path, bench: Bench) -> None:
    """A bundle's first half would be a good bundle."""
    path = tmp_path / "root.pem"
    path.write_text(ROOTS[0].pem)
    await bench.root(path)
    path.unlink()
    with path.open("w") as file:
        file.write(ROOTS[1].pem)
        file.flush()
        (tmp_path / "other").write_text("an event in the same directory")
        await until(lambda: bench.secrets._due)  # noqa: SLF001 - it was seen
        file.write(ROOTS[2].pem)
        file.flush()

    while (pem := await bench.root(path)) != ROOTS[1].pem + ROOTS[2].pem:
        await bench.event()
        assert pem == ROOTS[0].pem


@pytest.mark.slow
async def test_missing_files_are_waited_for_and_then_named(tmp_path: Path) -> None:
    """T-C7."""
    async with following(patience=0.3) as bench:
        with pytest.raises(SecretError, match=r"cert-chain\.pem: No such file"):
            await bench.pair(tmp_path)

        assert "num_file_secret_failures_total 1" in bench.metrics.render()
        assert bench.events.empty()


async def test_what_appears_in_time_is_served(tmp_path: Path, bench: Bench) -> None:
    """The key is written, the certificate not yet."""
    (tmp_path / "key.pem").write_bytes(PAIRS[0].key)
    asking = asyncio.create_task(bench.pair(tmp_path))
    await asyncio.sleep(0)
    (tmp_path / "cert-chain.pem").write_bytes(PAIRS[0].certificate)

    assert await asking == PAIRS[0]


async def test_permissions_are_no_content(tmp_path: Path, bench: Bench) -> None:
    write_files(tmp_path, PAIRS[0])
    await bench.pair(tmp_path)

    (tmp_path / "cert-chain.pem").chmod(0o600)
    (tmp_path / "other").touch()  # an event, so that there is something to wait for
    await until(lambda: bench.secrets._due)  # noqa: SLF001 - it was seen
    await bench.settled()

    assert bench.events.empty()


@pytest.mark.slow
async def test_a_bad_file_leaves_the_last_good_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C9."""
    async with following(patience=0.2) as bench:
        write_files(tmp_path, PAIRS[0])
        await bench.pair(tmp_path)

        replace(tmp_path / "cert-chain.pem", b"nonsense")
        await until(bench.secrets.problems)

        assert await bench.pair(tmp_path) == PAIRS[0]
        assert "expected a certificate" in bench.secrets.problems()["pair"]
        assert "num_file_secret_failures_total 1" in bench.metrics.render()
        assert "keeping previous content resource=pair" in caplog.text
        assert bench.events.empty()

        replace_pair(tmp_path, PAIRS[1])
        assert await bench.event() == "pair"
        assert bench.secrets.problems() == {}


async def test_a_look_finds_what_no_event_told(tmp_path: Path) -> None:
    """C5: on some file systems, and with too many watches, there are none."""
    async with following(look=0.05) as bench:
        write_files(tmp_path, PAIRS[0])
        await bench.pair(tmp_path)
        for watch in list(bench.secrets._watches._users):  # type: ignore[union-attr]  # noqa: SLF001 - the kernel's part
            bench.secrets._watches._inotify.remove(watch)  # type: ignore[union-attr]  # noqa: SLF001 - as above
        await until(lambda: not bench.secrets._watches._users)  # type: ignore[union-attr]  # noqa: SLF001 - as above

        replace_pair(tmp_path, PAIRS[1])

        assert await bench.event() == "pair"


async def test_a_change_that_was_not_told_yet_is_found_by_asking(tmp_path: Path) -> None:
    bench = Bench(patience=1, look=3600, make_watches=no_watches)  # and nobody follows
    write_files(tmp_path, PAIRS[0])
    await bench.pair(tmp_path)

    replace_pair(tmp_path, PAIRS[1])

    assert await bench.pair(tmp_path) == PAIRS[1]


async def test_a_change_between_reading_and_watching_is_found(tmp_path: Path) -> None:
    def late_watches() -> Watches:
        replace_pair(tmp_path, PAIRS[1])
        return kernel_watches()

    write_files(tmp_path, PAIRS[0])
    async with following(make_watches=late_watches) as bench:
        assert await bench.pair(tmp_path) == PAIRS[0]

        assert await bench.event() == "pair"


async def test_what_nobody_wants_is_forgotten(tmp_path: Path) -> None:
    async with following(look=0.02) as bench:
        write_files(tmp_path, PAIRS[0])
        await bench.pair(tmp_path)
        assert bench.secrets.content("pair")

        bench.wanted.clear()

        await until(lambda: bench.secrets.content("pair") is None)
        await until(lambda: not bench.secrets._watches._users)  # type: ignore[union-attr]  # noqa: SLF001 - its watches too


async def test_a_crl_comes_changes_and_goes(tmp_path: Path, bench: Bench) -> None:
    path = tmp_path / "ca-crl.pem"
    assert await bench.secrets.crl("root", str(path)) == b""

    crls = [ROOT.revoke(1), ROOT.revoke(1, 2)]
    for crl in crls:
        replace(path, crl)
        assert await bench.event() == "root"
        assert await bench.secrets.crl("root", str(path)) == crl
    path.unlink()

    assert await bench.event() == "root"
    assert await bench.secrets.crl("root", str(path)) == b""


@pytest.mark.slow
async def test_a_crl_that_is_none_takes_the_roots_with_it(tmp_path: Path) -> None:
    """As with Envoy itself: else the revoked would be trusted; unless there was a good one."""
    path = tmp_path / "ca-crl.pem"
    path.write_text("nonsense")
    async with following(patience=0.1) as bench:
        with pytest.raises(SecretError, match=r"ca-crl\.pem: expected a CRL in PEM"):
            await bench.secrets.crl("root", str(path))
        crl = ROOT.revoke(1)
        replace(path, crl)
        assert await bench.secrets.crl("root", str(path)) == crl

        path.write_text("nonsense")
        await until(lambda: "root" in bench.secrets.problems())

        assert await bench.secrets.crl("root", str(path)) == crl


async def test_relative_paths_stay_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    """R-16."""
    write_files(tmp_path / "certs", PAIRS[0])
    monkeypatch.chdir(tmp_path)
    await bench.pair(Path("certs"))
    monkeypatch.chdir("/")

    replace_pair(tmp_path / "certs", PAIRS[1])

    assert await bench.event() == "pair"


async def test_without_watches_the_looks_remain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel's limits count for all pods of a user together."""

    async with following(look=0.05, make_watches=no_watches) as bench:
        write_files(tmp_path, PAIRS[0])
        await bench.pair(tmp_path)
        replace_pair(tmp_path, PAIRS[1])

        assert await bench.event() == "pair"
        assert "num_file_watcher_failures_total" in bench.metrics.render()
    assert caplog.text.count("files are not watched") == 1
