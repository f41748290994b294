"""Resource files, as people write them, into resources, as a control plane serves them.

Runs in a child process only: it loads protobuf and the classes of every type that a file names.
"""

import functools
import hashlib
import importlib
import itertools
import json
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import yaml
from google.protobuf import descriptor_pool, json_format, message, message_factory

from agent.xds.discovery import Resource

TYPE_KEY: Final = "@type"
NAME_FIELDS: Final = ("name", "cluster_name")
VERSION_DIGITS: Final = 12


class FileError(ValueError):
    """What is wrong in a file: `file:line: reason`, one line."""


class Entry(NamedTuple):
    """One resource in a file."""

    line: int
    content: object  #: JSON


def convert(files: Mapping[str, bytes]) -> tuple[str, list[Resource]]:
    """Return a version for the whole set, and its resources in the order of files.

    Raises:
        FileError: the first thing that is wrong.
    """
    found: dict[tuple[str, str], str] = {}
    resources: list[Resource] = []
    for file_name, content in sorted(files.items()):
        entries = list(_entries(file_name, content))
        if not entries:
            # As a file looks for a moment while it is rewritten.
            raise FileError(f"{file_name}:1: holds no resource; remove the file if that is meant")
        for entry in entries:
            place = f"{file_name}:{entry.line}"
            resource = _resource(place, entry.content)
            key = resource.type_url, resource.name
            if key in found:
                raise FileError(f"{place}: {resource.name!r} is already in {found[key]}")
            found[key] = place
            resources.append(resource)
    return _digest(b"".join(item.version.encode() for item in resources)), resources


def _entries(file_name: str, content: bytes) -> Iterator[Entry]:
    """Yield the resources of a file: of each document, one or a list, or a list in `resources`."""
    try:
        text = content.decode()
        if file_name.endswith(".json"):
            yield from _json_entries(text)
        else:
            yield from _yaml_entries(text)
    except UnicodeDecodeError as error:
        raise FileError(f"{file_name}:1: is not UTF-8: {error.reason}") from None
    except json.JSONDecodeError as error:
        raise FileError(f"{file_name}:{error.lineno}: is not JSON: {error.msg}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise FileError(f"{file_name}:{line}: is not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise FileError(f"{file_name}:1: is not YAML: {_one_line(error)}") from None


def _json_entries(text: str) -> Iterator[Entry]:
    content: Any = json.loads(text) if text.strip() else []
    if isinstance(content, dict) and TYPE_KEY not in content:
        content = content.get("resources", content)
    # The json module does not say where a value begins.
    yield from (Entry(1, item) for item in (content if isinstance(content, list) else [content]))


def _yaml_entries(text: str) -> Iterator[Entry]:
    loader = yaml.SafeLoader(text)
    try:
        while loader.check_node():
            document = loader.get_node()
            for node in _resource_nodes(document) if document else ():
                yield Entry(node.start_mark.line + 1, loader.construct_document(node))
    finally:
        loader.dispose()


def _resource_nodes(document: yaml.Node) -> Iterator[yaml.Node]:
    node = document
    if isinstance(node, yaml.MappingNode):
        values = {key.value: value for key, value in node.value if not isinstance(key.value, list)}
        if TYPE_KEY not in values:
            node = values.get("resources", node)
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif node.tag != "tag:yaml.org,2002:null":  # an empty document
        yield node


def _resource(place: str, content: object) -> Resource:
    type_url = content.get(TYPE_KEY) if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(type_url, str):
        raise FileError(f"{place}: expected a resource with {TYPE_KEY!r}")
    try:
        _load_types(content)
        parsed = message_class(type_url)()
        fields = {key: value for key, value in content.items() if key != TYPE_KEY}
        json_format.ParseDict(fields, parsed)
    except (json_format.ParseError, TypeError, ValueError) as error:
        raise FileError(f"{place}: {_one_line(error)}") from None
    name = next((getattr(parsed, field) for field in NAME_FIELDS if hasattr(parsed, field)), "")
    if not name:
        raise FileError(f"{place}: {type_url} has no name")
    # Of the source and not of the bytes, in which the order of map entries is not defined.
    version = _digest(json.dumps(content, sort_keys=True, default=str).encode())
    return Resource(type_url, name, version, parsed.SerializeToString())


def message_class(type_url: str) -> type[message.Message]:
    """Return the generated class of a type; FileError if there is none."""
    name = type_url.rpartition("/")[2]
    load_package(name)
    try:
        descriptor = descriptor_pool.Default().FindMessageTypeByName(name)
    except KeyError:
        raise FileError(f"there is no type {type_url!r}") from None
    return message_factory.GetMessageClass(descriptor)


def _load_types(content: object) -> None:
    """Import the generated classes of every type that is named in a resource."""
    if isinstance(content, dict):
        if isinstance(content.get(TYPE_KEY), str):
            load_package(content[TYPE_KEY].rpartition("/")[2])
        for value in content.values():
            _load_types(value)
    elif isinstance(content, list):
        for value in content:
            _load_types(value)


@functools.cache
def load_package(type_name: str) -> None:
    """Import a type's whole package: which of its files has the type cannot be seen in the name."""
    parts = itertools.takewhile(str.islower, type_name.split("."))
    try:
        package = importlib.import_module(".".join(parts))
    except (ImportError, ValueError):
        raise FileError(f"there is no type {type_name!r}") from None
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.endswith("_pb2"):
            importlib.import_module(f"{package.__name__}.{module.name}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:VERSION_DIGITS]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
