"""The tree is the architecture: pure files touch no world, subjects do not know each other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("agent", "bootstrap", "iptables")
EFFECT_FILES = {"__main__", "cli", "run", "log", "server", "client", "process", "files"}
WORLD = {
    "asyncio", "socket", "_socket", "grpc", "os", "posix", "subprocess", "logging", "time",
    "random", "ssl", "signal", "pyroute2", "select", "ctypes", "pathlib",
    "threading", "shutil", "tempfile",
}  # fmt: skip
SUBJECTS = {
    "cloud",
    "lifecycle",
    "xds",
    "wasm",
    "identity",
    "dns",
    "status",
    "request",
    "demo",
    "inject",
}
#: The demo is a whole pod seen from outside: it may use what it shows.
MAY_IMPORT = {"demo": SUBJECTS}


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "proto" not in path.parts:
                yield path


SOURCES = list(sources())
PURE = [path for path in SOURCES if path.stem not in EFFECT_FILES]
INITS = [path for path in SOURCES if path.name == "__init__.py"]
#: A rule that is switched off for a line, with the reason after it.
EXCUSE = re.compile(r"# (?:noqa: [A-Z0-9, ]+? --?|type: ignore\[[a-z, -]+\] +#) \S")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_module(name: str) -> bool:
    base = ROOT.joinpath(*name.split("."))
    return base.with_suffix(".py").exists() or (base / "__init__.py").exists()


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_pure_file_imports_nothing_that_touches_the_world(path: Path) -> None:
    found = set(imports(path))

    assert not {name for name in found if name.split(".")[0] in WORLD}
    ours = {name for name in found if name.split(".")[0] in PACKAGES and is_module(name)}
    assert not {name for name in ours if name.split(".")[-1] in EFFECT_FILES}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_dependencies_point_one_way(path: Path) -> None:
    parts = path.relative_to(ROOT).parts
    found = {name for name in imports(path) if name.split(".")[0] in PACKAGES}

    if parts[0] in ("iptables", "bootstrap"):
        assert {name.split(".")[0] for name in found} <= {parts[0]}
    elif len(parts) > 2 and parts[1] in SUBJECTS:
        others = SUBJECTS - {parts[1]} - MAY_IMPORT.get(parts[1], set())
        assert not {name for name in found if name.split(".")[1] in others}


@pytest.mark.parametrize("path", INITS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_file_holds_only_its_docstring(path: Path) -> None:
    body = ast.parse(path.read_text()).body

    assert len(body) == 1
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("package", [*PACKAGES, "bench", "tests"])
def test_whoever_switches_a_rule_off_says_why(package: str) -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / package).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"[^#] # (noqa|type: ignore)", line) and not EXCUSE.search(line)
    ]

    assert silent == []
