"""The sidecar's user reaches what it needs, whatever lies above it, and nobody else notices."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.demo import files
from agent.demo.commands import ISTIO_PROXY
from agent.demo.process import Namespace, namespace
from agent.demo.run import clear

pytestmark = pytest.mark.root

PYTHON = (sys.executable, "-I", "-S")


@pytest.fixture
def inside() -> Iterator[Namespace]:
    with namespace(mounts=True) as made:
        yield made


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """Return a directory, below two that others may not enter, with a copy of our package."""
    path = tmp_path / "outer" / "inner" / "clone"
    shutil.copytree(Path(files.__file__).parents[1], path / "agent")
    for directory in (tmp_path, path, path / "agent", path / "agent" / "demo"):
        directory.chmod(0o755)
    (path.parent / "secret").write_text("secret")
    (tmp_path / "outer").chmod(0o700)
    (tmp_path / "outer" / "inner").chmod(0o700)
    return path


def reach(inside: Namespace, *paths: Path) -> str:
    """Run the program; return its complaint."""
    words = [*PYTHON, files.__file__, "1337", *map(str, paths)]
    return inside.run(words).stderr.strip()


def read(inside: Namespace, path: Path) -> str:
    """Return what the sidecar's user reads."""
    return inside.run(["cat", str(path)], credentials=ISTIO_PROXY).stdout


def test_a_package_under_closed_directories_is_reached(inside: Namespace, closed: Path) -> None:
    source = closed / "agent" / "errors.py"
    before = read(inside, source)

    complaint = reach(inside, closed)

    assert (before, complaint) == ("", "")
    assert read(inside, source) == source.read_text()


def test_a_program_of_it_runs(inside: Namespace, closed: Path) -> None:
    client = closed / "agent" / "demo" / "client.py"

    reach(inside, closed / "agent", *map(Path, files.own_paths()))

    done = inside.run([*PYTHON, str(client), "http://127.0.0.1:9/"], credentials=ISTIO_PROXY)
    assert "ConnectionRefusedError" in done.stdout


def test_what_lies_beside_it_stays_out_of_reach(inside: Namespace, closed: Path) -> None:
    reach(inside, closed)

    assert read(inside, closed.parent / "secret") == ""


def mounts(text: str, place: Path) -> list[str]:
    """Return the lines of mounts at a place, above and below it; others come and go elsewhere."""
    lines = {line: Path(line.split(" ")[1]) for line in text.splitlines()}
    return [
        line
        for line, point in lines.items()
        if place.is_relative_to(point) or point.is_relative_to(place)
    ]


def test_nobody_outside_sees_a_mount_or_another_mode(inside: Namespace, closed: Path) -> None:
    before = mounts(Path("/proc/self/mounts").read_text(), closed)

    reach(inside, closed)

    assert mounts(Path("/proc/self/mounts").read_text(), closed) == before
    assert (closed.parent / "secret").read_text() == "secret"
    assert closed.parent.stat().st_mode & 0o777 == 0o700


def test_a_single_file_is_reached(inside: Namespace, closed: Path) -> None:
    source = closed / "agent" / "errors.py"

    assert reach(inside, source) == ""

    assert read(inside, source) == source.read_text()
    assert read(inside, closed / "agent" / "reader.py") == ""


def test_a_link_to_a_closed_place_works(inside: Namespace, closed: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(closed)

    assert reach(inside, link / "agent") == ""

    assert read(inside, link / "agent" / "errors.py").startswith('"""')


def test_a_link_in_a_closed_place_works(inside: Namespace, closed: Path) -> None:
    link = closed.parent / "link"
    link.symlink_to("clone")

    assert reach(inside, link) == ""

    assert read(inside, link / "agent" / "errors.py").startswith('"""')


def test_two_places_below_one_closed_directory_are_reached(inside: Namespace, closed: Path) -> None:
    other = closed.parent / "other"
    other.mkdir(mode=0o755)

    assert reach(inside, closed, other) == ""


def test_what_is_open_is_left_alone(inside: Namespace) -> None:
    place = Path("/usr/bin")
    before = mounts(inside.run(["cat", "/proc/self/mounts"]).stdout, place)

    assert reach(inside, place, place / "env") == ""

    assert mounts(inside.run(["cat", "/proc/self/mounts"]).stdout, place) == before


def test_what_is_needed_and_closed_itself_is_named_once(inside: Namespace, closed: Path) -> None:
    package = closed / "agent"
    package.chmod(0o700)

    complaint = reach(inside, package, package / "errors.py")

    assert complaint == (f"uid 1337 cannot read files of the demo; run: chmod -R o+rX {package}")


def test_a_container_root_is_readable_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        files.make_root(tmp_path / "pod", volumes=["etc/x"], texts={"etc/y/z": "text"}, uid=1337)
    finally:
        os.umask(before)

    assert (tmp_path / "pod/etc/y/z").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "pod/etc/y").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "pod/etc/x").stat().st_uid == 1337
    assert (tmp_path / "pod/etc").stat().st_uid == 0


def test_a_directory_in_use_is_not_abandoned() -> None:
    directory = files.new_directory()
    try:
        assert directory not in files.abandoned()
    finally:
        files.remove(directory)


def test_what_a_killed_demo_left_is_found_and_removed() -> None:
    make = "from agent.demo import files; print(files.new_directory())"
    done = subprocess.run([sys.executable, "-c", make], capture_output=True, text=True, check=True)
    directory = Path(done.stdout.strip())
    with subprocess.Popen(["sleep", "60"], cwd=directory) as survivor:
        assert directory in files.abandoned()
        assert files.users(directory) == [survivor.pid]

        clear(directory)

        assert survivor.wait() == -9
    assert not directory.exists()


@pytest.mark.parametrize("name", ["mesh-agent-my-backup-2026", "mesh-agent-1-2-abcdefgh"])
def test_a_directory_that_is_not_ours_is_left_alone(name: str) -> None:
    directory = Path(tempfile.gettempdir()) / name
    directory.mkdir()
    try:
        if name.endswith("abcdefgh"):
            os.chown(directory, 1337, 1337)  # named like one of ours, by somebody else

        assert directory not in files.abandoned()
    finally:
        directory.rmdir()
