"""Wasm extensions in JSON's form into messages, by the strict JSON mapping of protobuf.

Source: xds-identity-dns.md section 3.1, step 5.
"""

import re
from typing import Final

from google.protobuf import json_format, struct_pb2
from google.protobuf.message import DecodeError

from agent.protobuf.classes import load_all, message_class
from agent.wasm.fetch.errors import FetchError

#: What protobuf puts before what is wrong within a field.
FIELD: Final = r"Failed to parse (\w+) field: "
UNKNOWN_FIELD: Final = r'has no field named "([^"\n]*)" at "([^"\n]*)"'


def convert_struct(type_url: str, content: bytes) -> bytes:
    """Return the message of a google.protobuf.Struct.

    Raises:
        FetchError: it has no such form; values are not quoted, there may be a secret among them.
    """
    name = type_url.rpartition("/")[2]
    made = message_class(name)
    if made is None:
        raise FetchError(f"JSON of {name}: there is no such type")
    said: object = None
    try:
        said = json_format.MessageToDict(struct_pb2.Struct.FromString(content))
        load_all(said)  # one that there is not is an unusable value
        parsed = made()
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
