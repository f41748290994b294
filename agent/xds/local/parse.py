"""The text of resource files into JSON values, each with its place.

A file may hold anything; whatever a parser raises is an error in the file.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

from agent.protobuf.classes import TYPE_KEY

#: Of a file, its aliases written out: a dozen lines of them can stand for billions.
MAX_VALUES: Final = 1_000_000
TOO_DEEP: Final = "is nested too deeply"


class FileError(ValueError):
    """What is wrong in a file: `file:line: reason`, one line."""


class Entry(NamedTuple):
    """One resource in a file."""

    line: int
    content: object  #: JSON


def entries(file_name: str, content: bytes) -> Iterator[Entry]:
    """Yield the resources of a file: of each document, one or a list, or a list in `resources`.

    Raises:
        FileError: the text cannot be read.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{file_name}:1: is not UTF-8: {error.reason}") from None
    if file_name.endswith(".json"):
        yield from _json_entries(file_name, text)
    else:
        yield from _yaml_entries(file_name, text)


def describe(error: Exception) -> str:
    """Return what an error says in one line, and its kind where it may say little."""
    if isinstance(error, RecursionError):
        return TOO_DEEP
    text = " ".join(str(error).split())
    if not text or isinstance(error, LookupError | AttributeError):
        return f"{type(error).__name__} {text}".strip()
    return text


def _json_entries(file_name: str, text: str) -> Iterator[Entry]:
    try:
        content: Any = json.loads(text) if text.strip() else []
    except json.JSONDecodeError as error:
        raise FileError(f"{file_name}:{error.lineno}: is not JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:  # the latter: a number of thousands of digits
        raise FileError(f"{file_name}:1: is not JSON: {describe(error)}") from None
    if isinstance(content, dict) and TYPE_KEY not in content:
        content = content.get("resources", content)
    # The json module does not say where a value begins.
    yield from (Entry(1, item) for item in (content if isinstance(content, list) else [content]))


def _yaml_entries(file_name: str, text: str) -> Iterator[Entry]:
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:
        raise _yaml_error(file_name, 1, error) from None
    line = 0  # of the resource; none while a document is read
    values = 0
    try:
        while loader.check_node():
            for node in _resource_nodes(loader.get_node()):
                line = node.start_mark.line + 1
                values += _weigh(node, {})
                if values > MAX_VALUES:
                    raise ValueError(f"holds more than {MAX_VALUES} values, aliases written out")  # noqa: TRY301 - told with its place below
                yield Entry(line, loader.construct_document(node))
            line = 0
    except Exception as error:  # noqa: BLE001 - PyYAML lets through what Python's own types raise
        raise _yaml_error(file_name, line or loader.line + 1, error) from None
    finally:
        loader.dispose()


def _yaml_error(file_name: str, line: int, error: Exception) -> FileError:
    if isinstance(error, yaml.MarkedYAMLError):
        line = error.problem_mark.line + 1 if error.problem_mark else line
        return FileError(f"{file_name}:{line}: is not YAML: {error.problem}")
    if isinstance(error, yaml.YAMLError):
        return FileError(f"{file_name}:{line}: is not YAML: {' '.join(str(error).split())}")
    return FileError(f"{file_name}:{line}: {describe(error)}")


def _resource_nodes(document: yaml.Node | None) -> Iterator[yaml.Node]:
    node = document
    if isinstance(node, yaml.MappingNode):
        values = {key.value: value for key, value in node.value if not isinstance(key.value, list)}
        if TYPE_KEY not in values:
            node = values.get("resources", node)
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif node is not None and node.tag != "tag:yaml.org,2002:null":  # an empty document
        yield node


def _weigh(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node stands for when its aliases are written out.

    Args:
        node: a tree whose branches may be one and the same.
        known: of nodes by identity, 0 while one is being weighed.

    Raises:
        ValueError: a node is within itself.
    """
    weight = known.get(id(node))
    if weight == 0:
        raise ValueError("an alias stands for what it is in")
    if weight is None:
        known[id(node)] = 0
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        if isinstance(node, yaml.MappingNode):
            children = (each for pair in node.value for each in pair)
        weight = known[id(node)] = 1 + sum(_weigh(child, known) for child in children)
    return weight
