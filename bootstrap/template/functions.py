"""The functions that templates may call: Go's own, `toJSON`, and what bootstraps use of Sprig's.

Arguments come in Go's order, what is piped in last. What a function cannot take makes it raise
TypeError, ValueError or LookupError, which render.py reports. `and` and `or` are render.py's.

Source: bootstrap.md section 5.1; Go's text/template/funcs.go; Sprig's documentation.
"""

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

from bootstrap.template import values
from bootstrap.template.printf import printf
from bootstrap.template.values import TextMap, is_true, kind, printed, to_json

Function = Callable[..., object]

#: As Go's `js`, but for the apostrophe: JSON does not know \'. Source: bootstrap.md section 8, 33.
SCRIPT: Final = {
    **{ord(character): f"\\u{ord(character):04X}" for character in "'<>&="},
    **{code: f"\\u{code:04X}" for code in range(32)},
    ord("\\"): "\\\\",
    ord('"'): '\\"',
}


def compare(one: object, other: object) -> int:
    """Return -1, 0 or 1; TypeError for what has no order, or is of different kinds."""
    if isinstance(one, str) and isinstance(other, str):
        return (one > other) - (one < other)
    if isinstance(one, int | float) and type(one) is type(other) is not bool:
        return (one > other) - (one < other)
    raise TypeError(f"expected two numbers or two texts, found {_both(one, other)}")


def equal(first: object, *others: object) -> bool:
    """Return whether the first value is any of the others; nil equals only nil."""
    if not others:
        raise TypeError("expected two values or more")
    return any(_equals(first, other) for other in others)


def _equals(first: object, second: object) -> bool:
    if first is None or second is None:
        return first is second
    one, other = _comparable(first), _comparable(second)
    if type(one) is not type(other):
        raise TypeError(f"expected values of one kind, found {_both(first, second)}")
    return one == other


def _comparable(value: object) -> object:
    if isinstance(value, str | int | float):
        return value
    raise TypeError(f"expected numbers, booleans or texts, found {kind(value)}")


def _both(first: object, second: object) -> str:
    return f"{kind(first)} and {kind(second)}"


def index(value: object, *keys: object) -> object:
    """Return what stands in a list or map, or in one inside it."""
    for key in keys:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key, "" if isinstance(value, TextMap) else None)
        elif isinstance(value, list) and _is_whole(key):
            value = value[_within(value, key)]
        elif isinstance(value, str) and _is_whole(key):
            value = value.encode()[_within(value.encode(), key)]
        else:
            raise TypeError(f"expected a list or a map and its index, found {_both(value, key)}")
    return value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _within(sequence: "list[object] | bytes", position: object) -> int:
    number = int(str(position))
    if not 0 <= number < len(sequence):
        raise IndexError(f"index {number} of {len(sequence)}: out of range")
    return number


def length(value: object) -> int:
    """Return how many bytes, elements or entries there are."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, list | dict):
        return len(value)
    raise TypeError(f"expected text, a list or a map, found {kind(value)}")


def print_all(*arguments: object) -> str:
    """Return the values printed, with a space between two that are no text."""
    text = ""
    for before, value in pairwise((None, *arguments)):
        apart = text and not isinstance(before, str) and not isinstance(value, str)
        text += (" " if apart else "") + _shown(value)
    return text


def _shown(value: object) -> str:
    return values.NESTED_NIL if value is None else printed(value)


def reference_json(value: object) -> str:
    """Return the value as JSON, nil as an empty object."""
    return "{}" if value is None else to_json(value)


def parsed_json(text: str) -> object:
    """Return the data of JSON text."""
    data: object = json.loads(text)
    return data


def default(fallback: object, *given: object) -> object:
    """Return the given value, or the fallback where it is empty."""
    return given[0] if given and is_true(given[0]) else fallback


def coalesce(*given: object) -> object:
    """Return the first value that is not empty, nil without one."""
    return next(filter(is_true, given), None)


def ternary(yes: object, no: object, condition: object) -> object:
    """Return one of two values."""
    return yes if condition is True else no


def text_of(value: object) -> str:
    """Return the value as text; nil is none."""
    return "" if value is None else printed(value)


def quote(*given: object) -> str:
    """Return the values in double quotes, escaped as JSON does."""
    return " ".join(to_json(text_of(value)) for value in given if value is not None)


def join(separator: str, listed: object) -> str:
    """Return the elements of a list as one text."""
    elements = listed if isinstance(listed, list) else [listed]
    return separator.join(text_of(element) for element in elements if element is not None)


def split(separator: str, text: str) -> list[str]:
    """Return the parts of a text; without a separator its characters."""
    return text.split(separator) if separator else list(text)


def indent(spaces: int, text: str) -> str:
    """Return the text with every line moved to the right."""
    pad = " " * _spaces(spaces)
    return pad + text.replace("\n", f"\n{pad}")


def _spaces(number: int) -> int:
    if not 0 <= number <= 1000:  # noqa: PLR2004 - more than any document needs
        raise ValueError("expected a number of spaces in 0..1000")
    return number


def whole(value: object) -> int:
    """Return the whole number that a value stands for, 0 where it is none."""
    try:
        return int(float(value)) if isinstance(value, float) else int(str(value), 10)
    except (ValueError, OverflowError):
        return int(value is True)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {kind(value)}")
    return value


def _map(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"expected a map, found {kind(value)}")
    return value


def _texts(function: Callable[..., object]) -> Function:
    """Return a function that takes texts only."""

    def checked(*arguments: object) -> object:
        for argument in arguments:
            if not isinstance(argument, str):
                raise TypeError(f"expected text, found {kind(argument)}")
        return function(*arguments)

    return checked


#: Go's own.
BUILT_IN: Final[Mapping[str, Function]] = {
    "not": lambda value: not is_true(value),
    "eq": equal,
    "ne": lambda one, other: not equal(one, other),
    "lt": lambda one, other: compare(one, other) < 0,
    "le": lambda one, other: compare(one, other) <= 0,
    "gt": lambda one, other: compare(one, other) > 0,
    "ge": lambda one, other: compare(one, other) >= 0,
    "index": index,
    "len": length,
    "print": print_all,
    "println": lambda *given: " ".join(map(_shown, given)) + "\n",
    "printf": printf,
    "js": lambda *given: print_all(*given).translate(SCRIPT),
}
#: The reference's own.
REFERENCE: Final[Mapping[str, Function]] = {"toJSON": reference_json}
#: Of Sprig's many those that shape text, choose, and read the pod's JSON and lists.
SPRIG: Final[Mapping[str, Function]] = {
    "toJson": to_json,
    "toRawJson": to_json,
    "toPrettyJson": lambda value: to_json(value, indent=2),
    "fromJson": _texts(parsed_json),
    "default": default,
    "coalesce": coalesce,
    "ternary": ternary,
    "empty": lambda value: not is_true(value),
    "hasKey": lambda each, key: key in _map(each),
    "first": lambda listed: next(iter(_list(listed)), None),
    "last": lambda listed: next(reversed(_list(listed)), None),
    "list": lambda *given: [*given],
    "join": join,
    "splitList": _texts(split),
    "toString": text_of,
    "quote": quote,
    "upper": _texts(str.upper),
    "lower": _texts(str.lower),
    "trim": _texts(str.strip),
    "trimPrefix": _texts(lambda prefix, text: text.removeprefix(prefix)),
    "trimSuffix": _texts(lambda suffix, text: text.removesuffix(suffix)),
    "hasPrefix": _texts(lambda prefix, text: text.startswith(prefix)),
    "hasSuffix": _texts(lambda suffix, text: text.endswith(suffix)),
    "contains": _texts(lambda part, text: part in text),
    "replace": _texts(lambda old, new, text: text.replace(old, new)),
    "indent": indent,
    "nindent": lambda spaces, text: f"\n{indent(spaces, text)}",
    "int": whole,
    "add": lambda *numbers: sum(map(whole, numbers)),
    "sub": lambda one, other: whole(one) - whole(other),
}
FUNCTIONS: Final[Mapping[str, Function]] = {**BUILT_IN, **REFERENCE, **SPRIG}


def functions(environ: Mapping[str, str]) -> Mapping[str, Function]:
    """Return the functions by name.

    Args:
        environ: the agent's environment, for `env`.
    """
    return {**FUNCTIONS, "env": _texts(lambda name: environ.get(name, ""))}
