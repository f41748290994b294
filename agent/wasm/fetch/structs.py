"""Wasm extensions in JSON's form into messages, by the strict JSON mapping of protobuf.

Source: xds-identity-dns.md section 3.1, step 5.
"""

import functools
import importlib
import itertools
import pkgutil
import re
from typing import Final

from google.protobuf import descriptor_pool, json_format, message_factory, struct_pb2
from google.protobuf.message import DecodeError

from agent.wasm.fetch.errors import FetchError

TYPE_KEY: Final = "@type"
#: Where Envoy's types, and those in them, live. A configuration must not choose what else is run.
TYPE_ROOTS: Final = ("cel", "envoy", "google", "udpa", "validate", "xds")
#: What protobuf puts before what is wrong within a field.
FIELD: Final = r"Failed to parse (\w+) field: "
UNKNOWN_FIELD: Final = r'has no field named "([^"\n]*)" at "([^"\n]*)"'


def convert_struct(type_url: str, content: bytes) -> bytes:
    """Return the message of a google.protobuf.Struct.

    Raises:
        FetchError: it has no such form; values are not quoted, there may be a secret among them.
    """
    name = type_url.rpartition("/")[2]
    said: object = None
    try:
        said = json_format.MessageToDict(struct_pb2.Struct.FromString(content))
        _load_types(said)
        _load_package(name)
        descriptor = descriptor_pool.Default().FindMessageTypeByName(name)
        parsed = message_factory.GetMessageClass(descriptor)()
        json_format.ParseDict(said, parsed)
    except (DecodeError, json_format.Error) as error:
        raise FetchError(f"JSON of {name}: {_problem(str(error), said)}") from None
    except Exception as error:  # noqa: BLE001 - protobuf raises anything where a value is of no type of JSON's
        raise FetchError(f"JSON of {name}: cannot be read: {type(error).__name__}") from None
    return parsed.SerializeToString()


def _problem(text: str, said: object) -> str:
    """Return what is wrong, in words of protobuf that are not a value."""
    # A text in an object's place is taken for the names of its fields.
    if (unknown := re.search(UNKNOWN_FIELD, text)) and unknown[1] in _names(said):
        return f"no field named {unknown[1]!r} in {unknown[2]}"
    path = []
    while field := re.match(FIELD, text):
        path.append(field[1])
        text = text[field.end() :]
    return f"unusable value in {'.'.join(path)}" if path else "unusable value"


def _names(content: object) -> set[str]:
    """Return the names of all fields."""
    if isinstance(content, dict):
        return set(content).union(*map(_names, content.values()))
    return set().union(*map(_names, content)) if isinstance(content, list) else set()


def _load_types(content: object) -> None:
    """Import the classes of every type that is named."""
    if isinstance(content, dict):
        if isinstance(content.get(TYPE_KEY), str):
            _load_package(content[TYPE_KEY].rpartition("/")[2])
        for value in content.values():
            _load_types(value)
    elif isinstance(content, list):
        for value in content:
            _load_types(value)


@functools.cache
def _load_package(type_name: str) -> None:
    """Import a type's whole package: which of its files has the type cannot be seen in the name."""
    parts = list(itertools.takewhile(str.islower, type_name.split(".")))
    if not parts or parts[0] not in TYPE_ROOTS:
        return  # whoever looks for the type will not find it
    try:
        package = importlib.import_module(".".join(parts))
    except ImportError:
        return
    for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
        if module.name.endswith("_pb2"):
            importlib.import_module(f"{package.__name__}.{module.name}")
