"""README and docs/ say what the program does: their tables are held to the code."""

import ast
import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from agent.__main__ import COMMANDS
from agent.demo.scenario import START_UP, termination, traffic
from agent.metrics import PREFIX
from agent.proxy_flags import PROXY_FLAGS
from agent.settings import World, parse_settings
from agent.status.routes import EXACT, PREFIXES, Endpoint
from iptables.flags import parse_duration, parse_flags

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SETTINGS = (ROOT / "docs" / "settings.md").read_text()
ENDPOINTS = (ROOT / "docs" / "endpoints.md").read_text()
DEVELOPMENT = (ROOT / "docs" / "development.md").read_text()
INJECTION = (ROOT / "docs" / "injection.md").read_text()
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
READERS = {"take", "require", "switch", "port"}
#: Variables whose default in the code stands for something that only a word can say.
MEANT = {
    "CA_ADDR": "istiod",
    "DNS_PROXY_ADDR": "localhost:15053",
    "ISTIO_CPU_LIMIT": "the cgroup's",
    "ISTIO_META_INTERCEPTION_MODE": "REDIRECT",
    "PEER_METADATA_DISCOVERY": "as `ENABLE_HBONE`",
    "POD_NAMESPACE": "required",
}


def section(title: str) -> str:
    """Return a section of the README."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def constants(tree: ast.Module) -> dict[str, object]:
    """Return the module's names that stand for a literal."""
    return {
        node.target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }


def called(node: ast.expr) -> str:
    """Return the last name of what an expression calls, if it does."""
    function = getattr(node, "func", None)
    return str(getattr(function, "attr", getattr(function, "id", "")))


def literal(node: ast.expr | None, named: Mapping[str, object]) -> object:
    """Return the value of an expression that is a literal, or the name of one; else None."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return named.get(name)
    return None


@cache
def readings() -> list[tuple[str, object]]:
    """Return each variable that is read with its default, None where that is no literal."""
    found: list[tuple[str, object]] = []
    for package in ("agent", "bootstrap"):
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text())
            named = constants(tree)
            for node in ast.walk(tree):
                if not isinstance(node, ast.Call) or not node.args:
                    continue
                first, *others = node.args
                if called(node) in READERS and isinstance(first, ast.Constant):
                    given = [word.value for word in node.keywords if word.arg == "default"]
                    default = literal((given or others)[-1], named)
                    found.append((str(first.value), default))
    return found


def shown_defaults() -> dict[str, str]:
    """Return what the table says by variable; a row may have several, with a default for each."""
    shown: dict[str, str] = {}
    for names, default in re.findall(r"^\| (`[^|]+`) \| ([^|]*?) ?\| ", SETTINGS, re.MULTILINE):
        variables = re.findall(r"`([^`]+)`", names)
        defaults = default.split(", ") if ", " in default else [default] * len(variables)
        shown |= dict(zip(variables, defaults, strict=True))
    return shown


def is_shown(default: object, shown: str) -> bool:
    """Return whether the table says a default as the code has it, in any unit."""
    match default:
        case bool():
            return shown == str(default).lower()
        case str():
            return shown.strip("\N{EN DASH}") == default
        case int() if shown.startswith("0") and shown != "0":
            return int(shown, 8) == default  # a file's mode
        case int():
            return int(shown) == default
        case float() if shown[-1:].isalpha():
            return parse_duration(shown) == default
    return float(shown.rstrip("%")) == default


def test_every_default_is_that_of_the_code() -> None:
    shown = shown_defaults()
    given = {
        name: default for name, default in readings() if default is not None and name not in MEANT
    }

    assert len(given) > 50
    assert {
        name: (default, shown[name])
        for name, default in given.items()
        if not is_shown(default, shown[name])
    } == {}
    assert {name: shown[name] for name in MEANT} == MEANT


def test_every_variable_that_is_read_is_in_the_table() -> None:
    listed = set(re.findall(r"`([A-Z][A-Z0-9_]*[A-Z0-9])`", SETTINGS))

    assert {name for name, _ in readings()} - listed == set()


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


@cache
def metrics() -> set[str]:
    """Return every metric that a module describes."""
    found: set[str] = set()
    for path in (ROOT / "agent").rglob("*.py"):
        tree = ast.parse(path.read_text())
        named = constants(tree)
        for node in ast.walk(tree):
            keys: list[ast.expr | None] = []
            match node:
                case ast.Dict():
                    pairs = zip(node.keys, node.values, strict=True)
                    keys = [key for key, value in pairs if called(value) == "Family"]
                case ast.Call(func=ast.Attribute(attr="describe"), args=[key, _]):
                    keys = [key]
            for each in keys:
                name = literal(each, named)
                if isinstance(name, str):
                    found.add(name)
    return found


def test_every_metric_is_listed_and_no_other() -> None:
    described = metrics()
    shown = ENDPOINTS.partition("## Metrics")[2].partition("\n## ")[0]
    rows = "".join(re.findall(r"^\| (`.*?) \|", shown, re.MULTILINE))
    listed = set(re.findall(r"`([a-z_]+)`", rows + INJECTION))
    groups = tuple(re.findall(r"`([a-z]+_)…`", rows))

    assert {name for name in described - listed if not name.startswith(groups)} == set()
    assert set(re.findall(r"`([a-z_]+)`", rows)) - described == set()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_a_metric_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(rf"{PREFIX}(\w+)", page.read_text()))

    assert named - metrics() == set()


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


def test_every_file_to_change_is_there() -> None:
    table = DEVELOPMENT.partition("## Where to change what")[2].partition("\n## ")[0]
    for place in re.findall(r"\| ([^|]*) \|$", table, re.MULTILINE):
        paths = re.findall(r"`([a-z_/]+(?:/|\.py|\.js))`", place)
        near = [ROOT, *(parent for path in paths for parent in (ROOT / path, (ROOT / path).parent))]
        assert [path for path in paths if not any((where / path).exists() for where in near)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_left_to_fill_in(page: Path) -> None:
    assert re.findall(r"@[A-Z]+@", page.read_text()) == []
