"""Resource files, as people write them, into resources, as a control plane serves them.

Runs in a child process only: it loads protobuf and the classes of every type that a file names.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Final

from google.protobuf import json_format

from agent.protobuf.classes import TYPE_KEY, load_all, message_class
from agent.xds.discovery import Resource
from agent.xds.local.parse import FileError, describe, entries

NAME_FIELDS: Final = ("name", "cluster_name")
VERSION_DIGITS: Final = 12


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
    if unknown := load_all(content):
        raise FileError(f"there is no type {unknown!r}")
    made = message_class(type_url)
    if made is None:
        raise FileError(f"there is no type {type_url!r}")
    parsed = made()
    fields = {key: value for key, value in content.items() if key != TYPE_KEY}
    json_format.ParseDict(fields, parsed)
    names = (getattr(parsed, field, "") for field in NAME_FIELDS)
    name = next((name for name in names if isinstance(name, str) and name), "")
    if not name:
        raise ValueError(f"{type_url} has no name")
    # Of the source and not of the bytes, in which the order of map entries is not defined.
    version = _digest(json.dumps(content, sort_keys=True, default=str).encode())
    return Resource(type_url, name, version, parsed.SerializeToString())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:VERSION_DIGITS]
