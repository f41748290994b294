"""The form in which the typed API writes an object.

Unknown fields, null and zeros that mean "unset" go; what is always there comes; quantities become
canonical. What the API server would refuse for its type is a problem, with its place.

Source: status-lifecycle.md section 11.17.
"""

from collections.abc import Mapping
from typing import Final

from agent.inject.api.types import Items, Object, Pairs, Scalar, Struct, Type

ABSENT: Final = object()
LONGEST_SHOWN: Final = 60
#: Beyond any manifest; aliases of YAML can stand for as many values as they like.
MOST_VALUES: Final = 500_000


def normal(value: object, struct: Struct, path: str, problems: list[str]) -> Object:
    """Return a fresh object in the API's form.

    Args:
        value: a JSON object.
        struct: its type.
        path: where it stands, '' for the whole object.
        problems: gains a line for each value of a wrong type, which is left out.
    """
    if isinstance(value, dict):
        return _struct(value, struct, path, problems)
    if value is not None:
        _refuse(value, path, "expected an object", problems)
    return _struct({}, struct, path, problems)


def count_values(value: object, seen: dict[int, int] | None = None) -> int:
    """Return how many values a tree has once aliases are written out; 0 for one without end."""
    seen = {} if seen is None else seen
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in seen:
        seen[id(value)] = 0  # inside itself
        total = 1
        for member in value.values() if isinstance(value, dict) else value:
            inside = count_values(member, seen)
            if not inside:
                return 0
            total += inside
        seen[id(value)] = total
    return seen[id(value)]


def _walk(value: object, kind: Type, path: str, problems: list[str]) -> object:
    """Return the value as it is written, ABSENT if it is not."""
    if isinstance(kind, Scalar):
        return _scalar(value, kind, path, problems)
    if isinstance(kind, Struct):
        return _optional_struct(value, kind, path, problems)
    if isinstance(kind, Items):
        return _items(value, kind, path, problems)
    if isinstance(kind, Pairs):
        return _pairs(value, kind, path, problems)
    return ABSENT if value is None else value


def _scalar(value: object, kind: Scalar, path: str, problems: list[str]) -> object:
    if value is None:
        return kind.zero if kind.presence == "always" else ABSENT
    try:
        written = kind.read(value)
    except ValueError as error:
        _refuse(value, path, str(error), problems)
        return ABSENT
    return ABSENT if kind.presence == "not zero" and written == kind.zero else written


def _optional_struct(value: object, kind: Struct, path: str, problems: list[str]) -> object:
    if isinstance(value, dict):
        return _struct(value, kind, path, problems)
    if value is not None:
        _refuse(value, path, "expected an object", problems)
    return _struct({}, kind, path, problems) if kind.presence == "always" else ABSENT


def _struct(value: Mapping[str, object], kind: Struct, path: str, problems: list[str]) -> Object:
    written: Object = {}
    for name, member in kind.fields.items():
        given = value.get(name)
        if given is None and getattr(member, "presence", "") != "always":
            continue
        result = _walk(given, member, f"{path}.{name}" if path else name, problems)
        if result is not ABSENT:
            written[name] = result
    if kind.is_open:
        written |= {
            name: member
            for name, member in value.items()
            if name not in kind.fields and member is not None
        }
    return written


def _items(value: object, kind: Items, path: str, problems: list[str]) -> object:
    if not isinstance(value, list):
        if value is not None:
            _refuse(value, path, "expected a list", problems)
        value = []
    written = [
        result
        for index, member in enumerate(value)
        if (result := _member(member, kind.member, f"{path}[{index}]", problems)) is not ABSENT
    ]
    return written if written or kind.presence == "always" else ABSENT


def _member(value: object, kind: Type, path: str, problems: list[str]) -> object:
    """Return a member of a list, which keeps its place whatever it is."""
    if isinstance(kind, Scalar):
        kind = kind._replace(presence="set")
    if value is None and not isinstance(kind, Struct):
        _refuse(value, path, "expected a value", problems)
        return ABSENT
    return _walk({} if value is None else value, kind, path, problems)


def _pairs(value: object, kind: Pairs, path: str, problems: list[str]) -> object:
    if not isinstance(value, dict):
        _refuse(value, path, "expected an object", problems)
        return ABSENT
    written = {
        str(name): result
        for name, member in value.items()
        if (result := _walk(member, kind.member, below(path, name), problems)) is not ABSENT
    }
    return written or ABSENT


def below(path: str, key: object) -> str:
    """Return the path of a key that users chose."""
    return f"{path}[{str(key)!r}]"


def shown(value: object) -> str:
    """Return a value for a message: on one line, and not too long."""
    text = f"<{type(value).__name__}>" if isinstance(value, dict | list) else repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _refuse(value: object, path: str, expected: str, problems: list[str]) -> None:
    problems.append(f"{path or 'the object'}={shown(value)}: {expected}")
