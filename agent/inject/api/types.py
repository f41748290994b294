"""How types of the Kubernetes API are described: one description serves both walks over objects.

form.py writes an object as the typed API would, merge.py merges a partial object into another.

Source: status-lifecycle.md sections 11.4 and 11.17.
"""

import re
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
    #: Fields of which an object has one.
    alternatives: frozenset[str] = frozenset()


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


def parse_types(text: str) -> dict[str, Struct]:
    """Return the types of a table by their names.

    An entry is `Name = field field ...`, on indented lines too; `#` begins a line of comment.

        name             text, which is left out when it is empty
        name:kind        an int, a bool, a quantity, a port (number or name), any, or a type
                         further up
        name:kind[]      a list; name:kind[key] one that is merged by a field of its members
        name:{kind}      an object whose keys are the user's
        name? name:int?  left out only where it is not set, not when it is zero as well
        name! name:int!  always there
        |name:kind       one of the fields, all with this mark, of which an object has just one
        +Name            all fields of a type
        ...              all other fields, as they are

    Raises:
        ValueError: a word is none of these.
    """
    known: dict[str, Struct] = {}
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    for entry in re.split(r"\n(?! )", "\n".join(lines)):
        name, equals, *words = entry.split()
        if equals != "=":
            raise ValueError(f"entry {entry!r}: expected Name = field field ...")
        fields: dict[str, Type] = {}
        alternatives: set[str] = set()
        for word in (word for word in words if word != OTHERS):
            found = known[word[1:]].fields if word[0] == "+" else _field(word.lstrip("|"), known)
            fields |= found
            alternatives |= found.keys() if word[0] == "|" else set()
        known[name] = Struct(fields, is_open=OTHERS in words, alternatives=frozenset(alternatives))
    return known


def _field(word: str, known: Mapping[str, Struct]) -> dict[str, Type]:
    found = FIELD.fullmatch(word)
    kinds: dict[str, Type] = {**SCALARS, **known, "any": Raw()}
    name, pairs, kind, key, mark = found.groups() if found else ("", "", "", "", "")
    member = kinds.get(pairs or kind or "text")
    if not name or member is None:
        raise ValueError(f"field {word!r}: expected a word such as name, name:int? or name:Type[]")
    if pairs:
        return {name: Pairs(_with_presence(member, "set"))}
    if key is not None:
        return {name: Items(member, key, "always" if mark == "!" else "not zero")}
    usual: Presence = "set" if isinstance(member, Struct) else "not zero"
    return {name: _with_presence(member, PRESENCES.get(mark, usual))}


def _with_presence(kind: Type, presence: Presence) -> Type:
    return kind._replace(presence=presence) if isinstance(kind, Scalar | Struct) else kind


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


MAX_INT: Final = 2**63 - 1
TEXT: Final = Scalar(_read_text, "")
SCALARS: Final = {
    "text": TEXT,
    "int": Scalar(_read_integer, 0),
    "bool": Scalar(_read_boolean, zero=False),
    "quantity": Scalar(canonical, "0"),
    "port": Scalar(_read_number_or_text, 0),
}
FIELD: Final = re.compile(r"(\w+)(?::(?:\{(\w+)\}|(\w+)(?:\[(\w*)\])?))?([?!]?)")
PRESENCES: Final[Mapping[str, Presence]] = {"?": "set", "!": "always"}
OTHERS: Final = "..."
