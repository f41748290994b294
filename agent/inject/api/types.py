"""How types of the Kubernetes API are described: one description serves both walks over objects.

form.py writes an object as the typed API would, merge.py merges a partial object into another.

Source: status-lifecycle.md sections 11.4 and 11.17.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from agent.inject.api.quantity import canonical

#: A JSON object.
Object = dict[str, Any]
#: When a field is written: if it is not zero; if it was set, to whatever; always.
Presence = Literal["not zero", "set", "always"]


class Scalar(NamedTuple):
    """Text, a number, a boolean or a quantity."""

    #: Returns the value as it is written; ValueError says what was expected.
    read: Callable[[object], object]
    zero: object
    presence: Presence = "not zero"


class Struct(NamedTuple):
    """An object with known fields, in the order in which the API writes them."""

    fields: Mapping[str, "Type"]
    presence: Presence = "set"
    #: Other fields are kept as they are.
    is_open: bool = False


class Items(NamedTuple):
    """A list."""

    member: "Type"
    #: The field that tells members apart in a merge; '' for a list that is replaced as a whole.
    key: str = ""
    presence: Presence = "not zero"


class Pairs(NamedTuple):
    """An object whose keys are the user's, such as labels."""

    member: "Type"


class Raw(NamedTuple):
    """Whatever stands here is kept as it is."""

    presence: Presence = "set"


Type = Scalar | Struct | Items | Pairs | Raw


def always(struct: Struct) -> Struct:
    """Return a struct that is written even where nothing of it is set."""
    return struct._replace(presence="always")


def fields(*groups: Mapping[str, Type], **more: Type) -> Struct:
    """Return a struct of all these fields, in order."""
    merged: dict[str, Type] = {}
    for group in groups:
        merged.update(group)
    return Struct({**merged, **more})


def texts(*names: str) -> dict[str, Type]:
    """Return fields of text."""
    return dict.fromkeys(names, TEXT)


def status(*counters: str) -> Struct:
    """Return the status of an object: whatever it says, and these numbers."""
    return Struct(dict.fromkeys(counters, COUNTER), "always", is_open=True)


def _read_text(value: object) -> object:
    if isinstance(value, str):
        return value
    raise ValueError("expected text; put it in quotes")


def _read_integer(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_INT:
        hint = "; remove the quotes" if isinstance(value, str) and value.isdecimal() else ""
        raise ValueError(f"expected a whole number{hint}")
    return value


def _read_boolean(value: object) -> object:
    if isinstance(value, bool):
        return value
    hint = "; remove the quotes" if value in ("true", "false") else ""
    raise ValueError(f"expected true or false{hint}")


def _read_number_or_text(value: object) -> object:
    return value if isinstance(value, str) else _read_integer(value)


def _read_quantity(value: object) -> object:
    return canonical(value)


MAX_INT: Final = 2**63 - 1
TEXT: Final = Scalar(_read_text, "")
TEXT_SET: Final = Scalar(_read_text, "", "set")
INTEGER: Final = Scalar(_read_integer, 0)
INTEGER_SET: Final = Scalar(_read_integer, 0, "set")
COUNTER: Final = Scalar(_read_integer, 0, "always")
BOOLEAN: Final = Scalar(_read_boolean, zero=False)
BOOLEAN_SET: Final = Scalar(_read_boolean, zero=False, presence="set")
BOOLEAN_ALWAYS: Final = Scalar(_read_boolean, zero=False, presence="always")
QUANTITY: Final = Scalar(_read_quantity, "0", "set")
DIVISOR: Final = Scalar(_read_quantity, "0", "always")
#: A port's number or name, and other values of either kind.
PORT: Final = Scalar(_read_number_or_text, 0, "set")
RAW: Final = Raw()
TEXTS: Final = Items(TEXT)
TEXT_PAIRS: Final = Pairs(TEXT_SET)
QUANTITIES: Final = Pairs(QUANTITY)
NAME_AND_VALUE: Final = Struct(texts("name", "value"))
