"""Resource files, as people write them, into resources, as a control plane serves them.

Runs in a child process only: it loads protobuf and the classes of every type that a file names.
"""

import functools
import hashlib
import importlib
import itertools
import json
import pkgutil
from collections.abc import Callable, Mapping
from typing import Final

from google.protobuf import descriptor_pool, json_format, message, message_factory

from agent.xds.discovery import Resource
from agent.xds.local.parse import TYPE_KEY, FileError, describe, entries

NAME_FIELDS: Final = ("name", "cluster_name")
VERSION_DIGITS: Final = 12
#: Where Envoy's types, and those in them, live. A file must not choose what else is imported.
TYPE_ROOTS: Final = ("cel", "envoy", "google", "opencensus", "opentelemetry", "udpa", "xds")


def convert(
    files: Mapping[str, bytes], begin: Callable[[str], None] = lambda _: None
) -> tuple[str, list[Resource]]:
    """Return a version for the whole set, and its resources in the order of files.

    Args:
        files: their content by name.
        begin: told of each file before it is read.

    Raises:
        FileError: the first thing that is wrong.
    """
    found: dict[tuple[str, str], str] = {}
    resources: list[Resource] = []
    for file_name, content in sorted(files.items()):
        begin(file_name)
        found_here = list(entries(file_name, content))
        if not found_here:
            # As a file looks for a moment while it is rewritten.
            raise FileError(f"{file_name}:1: holds no resource; remove the file if that is meant")
        for entry in found_here:
            place = f"{file_name}:{entry.line}"
            resource = _resource(place, entry.content)
            key = resource.type_url, resource.name
            if key in found:
                raise FileError(f"{place}: {resource.name!r} is already in {found[key]}")
            found[key] = place
            resources.append(resource)
    return _digest(b"".join(item.version.encode() for item in resources)), resources


def _resource(place: str, content: object) -> Resource:
    type_url = content.get(TYPE_KEY) if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(type_url, str):
        raise FileError(f"{place}: expected a resource with {TYPE_KEY!r}")
    try:
        return _converted(type_url, content)
    except Exception as error:  # noqa: BLE001 - protobuf raises anything where a value is of no type of JSON's
        raise FileError(f"{place}: {describe(error)}") from None


def _converted(type_url: str, content: dict[str, object]) -> Resource:
    _load_types(content)
    parsed = message_class(type_url)()
    fields = {key: value for key, value in content.items() if key != TYPE_KEY}
    json_format.ParseDict(fields, parsed)
    names = (getattr(parsed, field, "") for field in NAME_FIELDS)
    name = next((name for name in names if isinstance(name, str) and name), "")
    if not name:
        raise ValueError(f"{type_url} has no name")
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
    parts = list(itertools.takewhile(str.islower, type_name.split(".")))
    if not parts or parts[0] not in TYPE_ROOTS:
        raise FileError(f"there is no type {type_name!r}")
    try:
        package = importlib.import_module(".".join(parts))
    except ImportError:
        raise FileError(f"there is no type {type_name!r}") from None
    for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
        if module.name.endswith("_pb2"):
            importlib.import_module(f"{package.__name__}.{module.name}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:VERSION_DIGITS]
