"""The directory of modules. Section 3.4, D-17."""

from pathlib import Path

from agent.wasm.cache import Key
from agent.wasm.files import exists, index, remove
from tests.fakes.wasm import MODULE

ONE, TWO = "1" * 64, "2" * 64
KEY = Key(ONE, TWO)


def test_a_module_is_found_and_removed_with_its_directory(tmp_path: Path) -> None:
    path = tmp_path / KEY.path
    path.parent.mkdir()
    path.write_bytes(MODULE)

    assert index(str(tmp_path)) == [KEY]
    assert exists(str(tmp_path), KEY)
    assert remove(str(tmp_path), KEY)
    assert list(tmp_path.iterdir()) == []
    assert not exists(str(tmp_path), KEY)
    assert remove(str(tmp_path), KEY)


def test_what_is_no_module_is_none(tmp_path: Path) -> None:
    for name in (f"{ONE}/{TWO}.wasm", f"{ONE}/{ONE}.wasm/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(MODULE[:7])
    (tmp_path / "file").touch()

    assert index(str(tmp_path)) == []
    assert not remove(str(tmp_path), Key(ONE, ONE))


def test_a_directory_that_is_missing_holds_nothing(tmp_path: Path) -> None:
    assert index(f"{tmp_path}/none") == []
