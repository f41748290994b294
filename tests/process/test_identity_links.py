"""Secrets behind links, and in directories that come and go. Source: section 5.5; 11.3, T-C."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.identity.watch.files import directories
from tests.fakes.ca import write_files
from tests.fakes.following import PAIRS, ROOTS, Bench, following, replace_pair
from tests.waiting import until


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with following() as made:
        yield made


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
