"""What templates compute with, as Go sees it: text, numbers, booleans, lists, maps and structs.

Python's None is Go's nil, list and dict are its slice and map. Source: Go's text/template/exec.go
and fmt.
"""

import json
from collections.abc import Mapping
from typing import Final

#: What Go prints for nil, alone and inside a list or map.
NO_VALUE: Final = "<no value>"
NESTED_NIL: Final = "<nil>"
NOT_FINITE: Final = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
#: Of numbers that are printed without one.
SMALLEST_EXPONENT, LARGEST_EXPONENT = -4, 5


class TextMap(dict[str, str]):
    """A map of texts: `index` finds an empty one where there is no entry, and not nil."""


class Struct:
    """Fixed fields; one that it does not have is the template's mistake."""

    def __init__(self, name: str, fields: Mapping[str, object], document: object) -> None:
        """Remember them.

        Args:
            name: of its type, for messages.
            fields: by their names in Go, in lower case.
            document: the same as JSON data.
        """
        self.name = name
        self.fields = fields
        self.document = document


def field(value: object, name: str) -> object:
    """Return a field of a struct or an entry of a map, nil where there is no entry.

    Raises:
        ValueError: a struct has no such field, and other values have none at all.
    """
    if value is None:
        return None
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, Struct):
        if name.lower() not in value.fields:
            raise ValueError(f"{value.name} has no field {name}")
        return value.fields[name.lower()]
    raise ValueError(f"field {name} of {kind(value)}: expected a map or a struct")


def is_true(value: object) -> bool:
    """Return whether a value counts as true: neither empty nor zero nor nil."""
    return isinstance(value, Struct) or bool(value)


def kind(value: object) -> str:
    """Return what kind of value this is, for messages and for `eq`."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "a boolean"
    names = {int: "a whole number", float: "a number", str: "text", list: "a list"}
    for python, name in names.items():
        if isinstance(value, python):
            return name
    return value.name if isinstance(value, Struct) else "a map"


def printed(value: object) -> str:
    """Return a value as Go prints it."""
    return NO_VALUE if value is None else _printed(value)


def _printed(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, list):
        return f"[{' '.join(map(_printed, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_printed(key)}:{_printed(value[key])}" for key in sorted(value))
        return f"map[{' '.join(pairs)}]"
    if isinstance(value, Struct):
        return to_json(value)
    return NESTED_NIL if value is None else str(value)


def number_text(number: float) -> str:
    """Return a float in the fewest digits that tell it apart, large and small ones as 1e+06."""
    shortest = repr(number)
    if shortest in NOT_FINITE:
        return NOT_FINITE[shortest]
    digits = shortest.partition("e")[0].replace(".", "").strip("-0")
    scientific = f"{number:.{max(len(digits) - 1, 0)}e}"
    if SMALLEST_EXPONENT <= int(scientific.partition("e")[2]) <= LARGEST_EXPONENT:
        return shortest.removesuffix(".0")
    return scientific


def to_json(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON with sorted keys; ValueError where JSON has no such number."""
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":") if indent is None else (",", ": "),
        indent=indent,
        ensure_ascii=False,
        allow_nan=False,
        default=_document,
    )


def _document(value: object) -> object:
    if isinstance(value, Struct):
        return value.document
    raise ValueError(f"expected what JSON can hold, found {kind(value)}")
