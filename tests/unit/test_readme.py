"""README and docs/ say what the program does: their tables are held to the code."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.__main__ import COMMANDS
from agent.demo.scenario import START_UP, termination, traffic
from agent.proxy_flags import PROXY_FLAGS
from agent.settings import World, parse_settings
from agent.status.routes import EXACT, PREFIXES, Endpoint
from iptables.flags import parse_flags

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SETTINGS = (ROOT / "docs" / "settings.md").read_text()
ENDPOINTS = (ROOT / "docs" / "endpoints.md").read_text()
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
READERS = {"take", "require", "switch", "port"}


def section(title: str) -> str:
    """Return a section of the README."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def read_variables() -> Iterator[str]:
    for package in ("agent", "bootstrap"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not node.args:
                    continue
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                first = node.args[0]
                if name in READERS and isinstance(first, ast.Constant):
                    yield str(first.value)


def test_every_variable_that_is_read_is_in_the_table() -> None:
    listed = set(re.findall(r"`([A-Z][A-Z0-9_]*[A-Z0-9])`", SETTINGS))

    assert set(read_variables()) - listed == set()


def test_every_variable_of_our_own_is_in_the_table() -> None:
    listed = set(re.findall(r"`(AGENT_[A-Z_]+)`", SETTINGS))
    read = {
        name
        for path in (ROOT / "iptables").rglob("*.py")
        for name in re.findall(r'"(AGENT_[A-Z_]+)"', path.read_text())
    }

    assert read - listed == set()


def test_every_variable_in_a_table_is_read_somewhere() -> None:
    text = SETTINGS + section("Settings")
    listed = set(re.findall(r"`([A-Z][A-Z0-9_]*[A-Z0-9])`", text))
    sources = "".join(
        path.read_text()
        for package in ("agent", "bootstrap", "iptables")
        for path in (ROOT / package).rglob("*.py")
    )

    assert {name for name in listed if f'"{name}"' not in sources} == set()


def test_every_endpoint_is_listed() -> None:
    paths = [path for path, endpoint in EXACT.items() if endpoint is not Endpoint.PAGE]
    names = ["/".join(path) for path in (*paths, *PREFIXES)]

    assert [name for name in names if f"`/{name}" not in ENDPOINTS] == []


def test_every_command_is_listed() -> None:
    listed = set(re.findall(r"^\| `agent ([a-z-]+)", section("Commands"), re.MULTILINE))

    assert listed == set(COMMANDS) - {"help"}


def test_the_demo_shown_is_the_demo_run() -> None:
    shown = section("Two commands")

    steps = (*START_UP, *traffic(("IPv4", "IPv6")), *termination())
    expected = [rf"^{re.escape(step.name)} +{re.escape(step.expected)} " for step in steps]
    assert [line for line in expected if not re.search(line, shown, re.MULTILINE)] == []


def test_every_package_is_in_the_tree() -> None:
    shown = section("The tree")
    packages = [path.parent for path in (ROOT / "agent").glob("*/__init__.py")]

    assert [path.name for path in packages if f"{path.name}/" not in shown] == []


def test_every_module_that_is_in_no_package_is_in_the_tree() -> None:
    shown = set(re.findall(r"\w+", section("The tree").split("lifecycle/")[0]))
    modules = {path.stem for path in (ROOT / "agent").glob("*.py")} - {"__init__"}

    assert modules - shown == set()


def test_what_is_shown_to_run_outside_a_pod_is_all_that_must_be_set() -> None:
    shown = section("In a pod").partition("**Outside a pod**")[2].split("```")[1]
    words = shlex.split(shown.replace("\\\n", ""))[2:]
    environ = dict(word.split("=", 1) for word in words if "=" in word)
    world = World(None, None, None, (("eth0", "10.0.0.5"),), cpus=2)

    settings, warnings = parse_settings(parse_flags(PROXY_FLAGS, []), environ, world)

    assert words[-2:] == ["agent", "proxy"]
    assert settings.envoy.binary == "/usr/bin/envoy"
    assert warnings == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^):]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert not anchor or anchor in anchors(target), link
        assert target.exists(), link


def test_every_page_is_linked_from_the_readme() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)", README))

    assert {f"docs/{page.name}" for page in PAGES[1:]} - linked == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_left_to_fill_in(page: Path) -> None:
    assert re.findall(r"@[A-Z]+@", page.read_text()) == []
