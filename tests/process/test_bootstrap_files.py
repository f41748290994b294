"""Files and the gate, with a child process in Envoy's place."""

import os
import selectors
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.errors import BootstrapError
from bootstrap.files import (
    Gate,
    make_gate,
    read_file,
    read_mesh_config,
    read_pod_file,
    read_text,
    write_atomic,
)
from tests.waiting import block_until

#: Stands at the gate like Envoy: says when it is about to open the file, then repeats it.
READER = "import sys; print('here', flush=True); sys.stdout.write(open(sys.argv[1]).read())"
#: Opens the file, says so, and dies without having read it.
DESERTER = "import sys; f = open(sys.argv[1]); print('in', flush=True); sys.stdin.read()"
NOBODY = 65534


def is_root() -> bool:
    return os.geteuid() == 0


def names(path: Path) -> list[str]:
    return [each.name for each in path.parent.iterdir()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "proxy" / "envoy-rev.json"


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for child in started:
        child.kill()
        child.communicate()


def start(children: list[subprocess.Popen[str]], code: str, path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    children.append(child)
    return child


def await_envoy(gate: Gate, child: subprocess.Popen[str]) -> None:
    """Open the gate once the child is at it; between its word and open() are microseconds."""
    assert child.stdout
    assert child.stdout.readline() == "here\n"
    while not gate.open():
        assert child.poll() is None


def write_all(gate: Gate) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(gate.fileno(), selectors.EVENT_WRITE)
        while not gate.write():
            assert selector.select(timeout=10)


def test_whoever_waits_at_the_gate_of_a_killed_agent_is_let_go(
    path: Path, children: list[subprocess.Popen[str]]
) -> None:
    make_gate(str(path), "old")
    child = start(children, READER, path)
    assert child.stdout
    assert child.stdout.readline() == "here\n"
    state = Path(f"/proc/{child.pid}/stat")
    block_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "S")

    gate = make_gate(str(path), "new")

    assert child.communicate(timeout=10)[0] == ""
    gate.remove()


def test_envoy_waits_until_the_gate_opens(
    path: Path, children: list[subprocess.Popen[str]]
) -> None:
    text = "{}é" + "x" * 300_000
    gate = make_gate(str(path), text)
    child = start(children, READER, path)

    await_envoy(gate, child)
    write_all(gate)

    assert child.communicate(timeout=10)[0] == text
    assert path.read_text() == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(path) == [path.name]


def test_a_gate_that_nobody_stands_at_stays_shut(path: Path) -> None:
    gate = make_gate(str(path), "{}")

    assert not gate.open()
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_an_envoy_that_dies_before_it_has_read_all_is_an_error(
    path: Path, children: list[subprocess.Popen[str]]
) -> None:
    gate = make_gate(str(path), "x" * 300_000)
    child = start(children, DESERTER, path)
    while not gate.open():
        assert child.poll() is None
    assert not gate.write()  # a pipe takes less, and nobody is kept waiting for more

    child.communicate(timeout=10)

    with pytest.raises(BootstrapError, match="Envoy died before it had read all"):
        gate.write()


def test_removing_a_shut_gate_lets_envoy_go_with_an_empty_file(
    path: Path, children: list[subprocess.Popen[str]]
) -> None:
    gate = make_gate(str(path), "{}")
    child = start(children, READER, path)
    assert child.stdout
    assert child.stdout.readline() == "here\n"
    while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert child.poll() is None  # not asleep in open() yet

    gate.remove()

    assert child.communicate(timeout=10)[0] == ""
    assert child.returncode == 0
    assert names(path) == []


def test_removing_an_open_gate_lets_envoy_go_as_well(
    path: Path, children: list[subprocess.Popen[str]]
) -> None:
    gate = make_gate(str(path), "{}")
    child = start(children, READER, path)
    await_envoy(gate, child)

    gate.remove()

    assert child.communicate(timeout=10)[0] == ""
    assert names(path) == []


def test_removing_a_gate_at_which_nobody_stands_leaves_nothing(path: Path) -> None:
    gate = make_gate(str(path), "{}")

    gate.remove()
    gate.remove()

    assert names(path) == []


def test_removing_a_gate_that_is_done_removes_the_plain_file(
    path: Path, children: list[subprocess.Popen[str]]
) -> None:
    gate = make_gate(str(path), "{}")
    await_envoy(gate, start(children, READER, path))
    write_all(gate)

    gate.remove()

    assert names(path) == []


def test_a_gate_replaces_what_was_there(path: Path) -> None:
    write_atomic(str(path), "old")

    make_gate(str(path), "new")

    assert stat.S_ISFIFO(path.stat().st_mode)


def test_the_directory_is_the_agents_own(path: Path) -> None:
    make_gate(str(path), "{}")

    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_gate_where_a_directory_stands_is_an_error(path: Path) -> None:
    path.mkdir(parents=True)

    with pytest.raises(BootstrapError, match=r"envoy-rev\.json: cannot be written by uid"):
        make_gate(str(path), "{}")

    assert names(path) == [path.name]


def test_an_unusable_directory_is_named_with_uid_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = f"{tmp_path}/file/envoy-rev.json"

    with pytest.raises(BootstrapError) as caught:
        make_gate(path, "{}")

    (line,) = caught.value.problems
    assert line.startswith(f"{path}: cannot be written by uid {os.geteuid()}: ")
    assert line.endswith(
        f"; mount a writable volume at {tmp_path}/file, or set configPath to a writable place"
    )


def test_the_remedy_names_the_setting_that_the_path_is_from(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()

    for path in (f"{tmp_path}/file/grpc.json", f"{tmp_path}/directory"):
        with pytest.raises(BootstrapError, match="or set GRPC_XDS_BOOTSTRAP to a writable place"):
            write_atomic(path, "{}", named_by="GRPC_XDS_BOOTSTRAP")


def test_a_gate_that_was_taken_away_is_an_error(path: Path) -> None:
    gate = make_gate(str(path), "{}")
    path.unlink()

    with pytest.raises(BootstrapError, match="cannot be written"):
        gate.open()


def test_a_directory_taken_away_is_an_error(
    path: Path, children: list[subprocess.Popen[str]]
) -> None:
    gate = make_gate(str(path), "{}")
    await_envoy(gate, start(children, READER, path))
    for each in path.parent.iterdir():
        each.unlink()

    with pytest.raises(BootstrapError, match="cannot be written"):
        gate.write()


@pytest.mark.skipif(not is_root(), reason="only root gives files away")
def test_the_files_belong_to_the_user_envoy_runs_as(path: Path) -> None:
    make_gate(str(path), "{}", owner=(NOBODY, NOBODY))

    made = [path.parent, *path.parent.iterdir()]
    assert {(each.stat().st_uid, each.stat().st_gid) for each in made} == {(NOBODY, NOBODY)}


@pytest.mark.skipif(not is_root(), reason="as above")
def test_a_directory_that_is_there_keeps_its_owner(path: Path) -> None:
    path.parent.mkdir(parents=True)

    write_atomic(str(path), "{}", owner=(NOBODY, NOBODY))

    assert (path.parent.stat().st_uid, path.stat().st_uid) == (os.getuid(), NOBODY)


def test_a_file_is_written_whole_or_not_at_all(path: Path) -> None:
    write_atomic(str(path), "one", mode=0o644)
    write_atomic(str(path), "two", mode=0o644)

    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert names(path) == [path.name]


def test_a_file_that_cannot_be_replaced_is_an_error(path: Path) -> None:
    path.mkdir(parents=True)

    with pytest.raises(BootstrapError, match="cannot be written"):
        write_atomic(str(path), "text")

    assert names(path) == [path.name]


def test_a_missing_mesh_configuration_is_none(tmp_path: Path) -> None:
    (tmp_path / "mesh").write_text("a: é")

    assert read_mesh_config(f"{tmp_path}/mesh") == "a: é"
    assert read_mesh_config(f"{tmp_path}/none") is None
    assert read_mesh_config(f"{tmp_path}/mesh/none") is None


def test_an_unreadable_mesh_configuration_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match="expected a readable mesh configuration file"):
        read_mesh_config(str(tmp_path))


def test_only_a_file_of_a_reasonable_size_is_read(tmp_path: Path) -> None:
    """A pipe would have the start wait, a device never end."""
    pipe, large, bound = tmp_path / "pipe", tmp_path / "large", tmp_path / "socket"
    os.mkfifo(pipe)
    large.touch()
    os.truncate(large, 1 << 40)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(bound))
        for path, problem in (
            (pipe, "Not a regular file"),
            (Path("/dev/zero"), "Not a regular file"),
            (tmp_path, "Not a regular file"),
            (bound, "No such device or address"),
            (large, "Has more than 16777216 bytes"),
        ):
            with pytest.raises(BootstrapError, match=f"{path}: expected .*: {problem}"):
                read_mesh_config(str(path))
            for read in (read_file, read_text):
                with pytest.raises(OSError, match=problem):
                    read(str(path))


def test_pod_files_never_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "labels").write_bytes(b'a="\xff"')

    assert read_pod_file(f"{tmp_path}/labels") == ('a="\ufffd"', [])
    assert read_pod_file(f"{tmp_path}/none") == (None, [])
    text, (warning,) = read_pod_file(str(tmp_path))
    assert text is None
    assert warning.startswith(f"{tmp_path}: expected a readable file: ")


def test_what_a_killed_agent_left_half_written_goes_away(path: Path) -> None:
    path.parent.mkdir(parents=True)
    leftover = path.with_name(f"{path.name}.4711.tmp")
    other = path.with_name("XDS")
    for each in (leftover, other):
        each.touch()

    gate = make_gate(str(path), "{}")

    assert leftover.name not in names(path)
    assert other.name in names(path)
    gate.remove()


def test_another_text_may_take_the_first_ones_place(
    path: Path, children: list[subprocess.Popen[str]]
) -> None:
    gate = make_gate(str(path), "first")
    child = start(children, READER, path)

    gate.replace("second")

    await_envoy(gate, child)
    write_all(gate)
    assert child.communicate()[0] == "second"
    assert path.read_text() == "second"
    gate.remove()
