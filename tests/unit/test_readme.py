"""The README says what the program does: its tables are held to the code."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from agent.__main__ import COMMANDS
from agent.demo.scenario import START_UP, termination, traffic
from agent.proxy_flags import PROXY_FLAGS
from agent.settings import World, parse_settings
from iptables.flags import parse_flags

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
READERS = {"take", "require", "switch", "port"}


def section(title: str) -> str:
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
    listed = set(re.findall(r"`([A-Z][A-Z0-9_]*[A-Z0-9])`", section("Settings")))

    assert set(read_variables()) - listed == set()


def test_every_variable_of_our_own_is_in_the_table() -> None:
    listed = set(re.findall(r"`(AGENT_[A-Z_]+)`", section("Settings")))
    read = {
        name
        for path in (ROOT / "iptables").rglob("*.py")
        for name in re.findall(r'"(AGENT_[A-Z_]+)"', path.read_text())
    }

    assert read - listed == set()


def test_every_variable_in_the_table_is_read_somewhere() -> None:
    listed = set(re.findall(r"`([A-Z][A-Z0-9_]*[A-Z0-9])`", section("Settings")))
    sources = "".join(
        path.read_text()
        for package in ("agent", "bootstrap", "iptables")
        for path in (ROOT / package).rglob("*.py")
    )

    assert {name for name in listed if f'"{name}"' not in sources} == set()


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


def test_links_lead_to_headings() -> None:
    headings = re.findall(r"^#+ (.+)$", README, re.MULTILINE)
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings
    }
    links = set(re.findall(r"\]\(#([^)]+)\)", README))

    assert links
    assert links - anchors == set()


def test_nothing_is_left_to_fill_in() -> None:
    assert re.findall(r"@[A-Z]+@", README) == []
