"""Secrets in files that change, in all the ways files do. Source: section 5.5; 11.3, T-C."""

import asyncio
import contextlib
import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest

from agent.errors import SecretError
from agent.identity.names import FileResource
from agent.identity.secret import KeyPair, Roots
from agent.identity.watch.files import Watches, directories
from agent.identity.watch.run import FileSecrets, kernel_watches
from agent.metrics import Metrics
from tests.fakes.ca import Root, write_files
from tests.fakes.control_plane import Pair
from tests.waiting import until

ROOT: Final = Root()
PAIRS: Final = [ROOT.pair(f"spiffe://td/ns/a/sa/{number}") for number in range(5)]
ROOTS: Final = [Root(str(number)) for number in range(3)]


class Bench:
    """Files that are followed, and what was told of them."""

    def __init__(
        self, *, patience: float, look: float, make_watches: Callable[[], Watches] = kernel_watches
    ) -> None:
        self.metrics = Metrics()
        self.events: asyncio.Queue[str] = asyncio.Queue()
        self.wanted = {"pair", "root", "crl", "0", "1", "2"}
        self.secrets = FileSecrets(
            debounce_seconds=0.02,
            changed=self.events.put_nowait,
            wanted=lambda: self.wanted,
            count=self.metrics.count,
            rng=lambda: 0.5,
            patience_seconds=patience,
            look_seconds=look,
            make_watches=make_watches,
        )

    async def pair(self, directory: Path, name: str = "pair") -> Pair:
        files = FileResource(f"{directory}/cert-chain.pem", f"{directory}/key.pem")
        secret = await self.secrets.get(name, files)
        assert isinstance(secret, KeyPair)
        return Pair(secret.chain, bytes(secret.key))

    async def root(self, path: Path) -> str:
        secret = await self.secrets.get("root", FileResource(str(path)))
        assert isinstance(secret, Roots)
        return secret.pem.decode()

    async def event(self) -> str:
        async with asyncio.timeout(10):
            return await self.events.get()

    async def settled(self) -> None:
        """Return once nothing is due any more, so that what was not told will not be."""
        await asyncio.sleep(0)
        await until(lambda: not self.secrets._due)  # noqa: SLF001 - nothing else tells


@contextlib.asynccontextmanager
async def following(
    *,
    patience: float = 10,
    look: float = 3600,
    make_watches: Callable[[], Watches] = kernel_watches,
) -> AsyncIterator[Bench]:
    bench = Bench(patience=patience, look=look, make_watches=make_watches)
    task = asyncio.create_task(bench.secrets.run())
    try:
        yield bench
    finally:
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with following() as made:
        yield made


def no_watches() -> Watches:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def replace(path: Path, content: bytes | str) -> None:
    """Replace a file by a rename, as careful writers do."""
    beside = path.with_name(f"{path.name}.tmp")
    beside.write_bytes(content if isinstance(content, bytes) else content.encode())
    beside.rename(path)


def replace_pair(directory: Path, pair: Pair) -> None:
    replace(directory / "cert-chain.pem", pair.certificate)
    replace(directory / "key.pem", pair.key)


def volume(directory: Path, number: int) -> None:
    """Do what the kubelet does to a volume: all files change by one rename of a link."""
    new = directory / f"..2026_{number}"
    write_files(new, PAIRS[number], ROOTS[number % 3].pem)
    link = directory / "..data_tmp"
    link.symlink_to(new.name)
    link.rename(directory / "..data")
    for name in ("cert-chain.pem", "key.pem", "root-cert.pem"):
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")
    for old in directory.glob("..2026_*"):
        if old != new:
            shutil.rmtree(old)


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


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_kubernetes_volume_is_followed_flip_by_flip(
    tmp_path: Path, bench: Bench, number: int
) -> None:
    """T-C13: the first flip and every later one, each with a pair that fits."""
    volume(tmp_path, 0)
    await bench.pair(tmp_path)
    await bench.root(tmp_path / "root-cert.pem")

    for flip in range(1, number + 1):
        volume(tmp_path, flip)
        assert {await bench.event(), await bench.event()} == {"pair", "root"}
        assert await bench.pair(tmp_path) == PAIRS[flip]
    await bench.settled()
    assert bench.events.empty()


async def test_links_to_links_are_followed(tmp_path: Path, bench: Bench) -> None:
    """C5: the driver's link in front of the kubelet's."""
    csi, pod = tmp_path / "csi", tmp_path / "pod"
    volume(csi, 0)
    pod.mkdir()
    (pod / "tls").symlink_to("../csi")
    assert await bench.pair(pod / "tls") == PAIRS[0]

    for flip in (1, 2, 3):
        volume(csi, flip)
        assert await bench.event() == "pair"
        assert await bench.pair(pod / "tls") == PAIRS[flip]


async def test_a_link_in_the_middle_may_be_turned(tmp_path: Path, bench: Bench) -> None:
    for number in range(3):
        write_files(tmp_path / str(number), PAIRS[number])
    current = tmp_path / "current"
    current.symlink_to("0")
    await bench.pair(current)

    for number in (1, 2):
        current.unlink()
        current.symlink_to(str(number))
        assert await bench.event() == "pair"
        assert await bench.pair(current) == PAIRS[number]


async def test_the_target_of_a_link_may_be_replaced(tmp_path: Path, bench: Bench) -> None:
    """T-C11: one event for each resource that changed."""
    for number in range(3):
        write_files(tmp_path / "real" / str(number), PAIRS[number])
        (tmp_path / str(number)).symlink_to(f"real/{number}")
        await bench.pair(tmp_path / str(number), name=str(number))

    replace_pair(tmp_path / "real" / "1", PAIRS[3])
    replace_pair(tmp_path / "real" / "2", PAIRS[4])

    assert {await bench.event(), await bench.event()} == {"1", "2"}
    await bench.settled()
    assert bench.events.empty()


async def test_a_directory_that_is_made_anew_is_found(tmp_path: Path, bench: Bench) -> None:
    """T-C12: what was there stays in use meanwhile."""
    directory = tmp_path / "certs"
    write_files(directory, PAIRS[0])
    await bench.pair(directory)

    shutil.rmtree(directory)
    await until(lambda: bench.secrets._watched["pair"].failures)  # noqa: SLF001 - it was seen
    assert await bench.pair(directory) == PAIRS[0]
    write_files(directory, PAIRS[1])

    assert await bench.event() == "pair"
    assert await bench.pair(directory) == PAIRS[1]
    replace_pair(directory, PAIRS[2])
    assert await bench.event() == "pair"


async def test_a_directory_may_be_moved_away(tmp_path: Path, bench: Bench) -> None:
    write_files(tmp_path / "certs", PAIRS[0])
    write_files(tmp_path / "next", PAIRS[1])
    await bench.pair(tmp_path / "certs")

    (tmp_path / "certs").rename(tmp_path / "old")
    (tmp_path / "next").rename(tmp_path / "certs")

    assert await bench.event() == "pair"
    assert await bench.pair(tmp_path / "certs") == PAIRS[1]


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
    assert bench.secrets.crl("root", str(path)) == b""

    crls = [ROOT.revoke(1), ROOT.revoke(1, 2)]
    for crl in crls:
        replace(path, crl)
        assert await bench.event() == "root"
        assert bench.secrets.crl("root", str(path)) == crl
    path.unlink()

    assert await bench.event() == "root"
    assert bench.secrets.crl("root", str(path)) == b""


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


def test_the_directories_of_links_and_of_the_file_are_watched(tmp_path: Path) -> None:
    volume(tmp_path, 0)
    top = tmp_path / "top"
    top.mkdir()
    (top / "one").symlink_to("two")
    (top / "two").symlink_to(tmp_path)

    assert directories(f"{tmp_path}/key.pem") == {str(tmp_path), f"{tmp_path}/..2026_0"}
    assert directories(f"{top}/./one/../{tmp_path.name}/key.pem") == {
        str(top),
        str(tmp_path),
        f"{tmp_path}/..2026_0",
    }
    assert directories(f"{tmp_path}/none/at/all") == {str(tmp_path)}
    assert directories("/none") == {"/"}


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    assert directories(f"{tmp_path}/a/file") == {str(tmp_path)}


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
