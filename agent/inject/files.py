"""The files that the injector is configured by: mesh configuration, values, its own.

Each may be the plain document, or the ConfigMap that a cluster keeps it in.
"""

from pathlib import Path
from typing import Any, Final, NamedTuple

from agent.errors import SettingsError
from agent.inject.configuration import Configuration, parse_configuration
from agent.inject.mesh import parse_mesh
from agent.inject.template.pod import Settings
from agent.inject.values import overlay, parse_values
from bootstrap.document import parse

LARGEST_BYTES: Final = 16 << 20
MESH_KEY: Final = "mesh"
VALUES_KEY: Final = "values"
CONFIGURATION_KEY: Final = "config"


class Sources(NamedTuple):
    """Where the configuration comes from; '' for built-in values."""

    mesh: str = ""
    values: str = ""
    configuration: str = ""
    revision: str = ""
    #: An image for both containers, '' for that of the values.
    image: str = ""


class Loaded(NamedTuple):
    """The configuration of an injector."""

    configuration: Configuration
    settings: Settings
    warnings: tuple[str, ...]


def read_text(path: str) -> str:
    """Return the text of a file.

    Raises:
        SettingsError: it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
        if len(data) > LARGEST_BYTES:
            raise SettingsError([f"{path}: expected at most {LARGEST_BYTES >> 20} MiB"])
        return data.decode()
    except OSError as error:
        raise SettingsError([f"cannot read {path}: {(error.strerror or '').lower()}"]) from error
    except UnicodeDecodeError as error:
        raise SettingsError([f"{path}: expected UTF-8: byte {error.start} is none"]) from error


def load(sources: Sources) -> Loaded:
    """Return the configuration that the files hold.

    Raises:
        SettingsError: with every problem.
    """
    problems: list[str] = []
    given = _document(sources.values, VALUES_KEY, problems)
    if sources.revision:
        given = {"revision": sources.revision, **given}  # '' is an answer too
    if sources.image:
        image = {"image": sources.image}
        given = overlay(given, {"global": {"proxy": image, "proxy_init": image}})
    values, found = parse_values(given)
    problems += [f"{sources.values}: {problem}" for problem in found]
    text = _text(sources.mesh, MESH_KEY, problems)
    mesh, found = parse_mesh(text, values, source=sources.mesh or "mesh configuration")
    problems += found if sources.mesh else []  # without a text it is made of the values
    document = _document(sources.configuration, CONFIGURATION_KEY, problems)
    configuration, found, warnings = parse_configuration(document, source=sources.configuration)
    problems += found
    if problems:
        raise SettingsError(problems)
    revision = sources.revision or values.revision
    return Loaded(configuration, Settings(values, mesh, revision), tuple(warnings))


def _text(path: str, key: str, problems: list[str]) -> str:
    """Return the text of a file, or what a ConfigMap in it holds under the key."""
    if not path:
        return ""
    text = read_text(path)
    try:
        document: Any = parse(text)
    except ValueError as error:
        problems.append(f"{path}: {error}")
        return ""
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return text
    data = document.get("data")
    inner = data.get(key) if isinstance(data, dict) else None
    if isinstance(inner, str):
        return inner
    problems.append(f"{path}: data.{key}: expected the text of the document")
    return ""


def _document(path: str, key: str, problems: list[str]) -> dict[str, Any]:
    try:
        document = parse(_text(path, key, problems))
    except ValueError as error:
        problems.append(f"{path}: {error}")
        return {}
    if document is None:
        return {}
    if not isinstance(document, dict):
        problems.append(f"{path}: expected an object, found {type(document).__name__}")
        return {}
    return document
