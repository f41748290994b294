"""JSON values as Go's decoder takes them: keys in any case, null for absent, types exact."""

from collections.abc import Mapping
from typing import Any, Final

MAX_INT32: Final = 2**31 - 1


class DecodeError(ValueError):
    """A value has another type than the one that belongs there."""


def as_object(value: Any, what: str) -> Mapping[str, Any]:  # noqa: ANN401 -- JSON enters
    """Return an object, an empty one for null."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DecodeError(f"{what}: expected an object, found {value!r}")
    return value


def as_list(value: Any, what: str) -> list[Any]:  # noqa: ANN401 -- JSON enters
    """Return a list, an empty one for null."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise DecodeError(f"{what}: expected a list, found {value!r}")
    return value


def get_value(values: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 -- JSON enters
    """Return a value by its key, whatever the key's case; the last of several wins."""
    found = None
    for key, value in values.items():
        if key.lower() == name.lower():
            found = value
    return found


def get_text(values: Mapping[str, Any], name: str) -> str:
    """Return a string, the empty one for null and absent."""
    value = get_value(values, name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DecodeError(f"{name}: expected a string, found {value!r}")
    return value


def get_integer(values: Mapping[str, Any], name: str) -> int:
    """Return a number of 32 bits, 0 for null and absent."""
    value = get_value(values, name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_INT32:
        raise DecodeError(f"{name}: expected a 32-bit integer, found {value!r}")
    return value
