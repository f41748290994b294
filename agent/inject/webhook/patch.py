"""The difference between two objects as a JSON patch (RFC 6902), no larger than it must be.

It is found between normal forms (form.py) and applied to the object as it came, which may lack what
the normal form fills in. So each step down looks whether the object has what would be changed, and
where it has not, the whole is added.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agent.inject.api.types import Object

ABSENT: Final = object()
#: Beyond so many pairs, lists are compared by their beginnings and ends alone.
MOST_PAIRS: Final = 40_000


def json_patch(before: Object, after: Object, actual: Mapping[str, Any]) -> list[Object]:
    """Return the operations that make `after` of an object.

    Args:
        before: the object's normal form.
        after: what it is to become, in normal form too.
        actual: the object as it came: what the patch will be applied to.
    """
    return list(_objects(before, after, actual, ""))


def _change(before: object, after: object, actual: object, path: str) -> Iterator[Object]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict) and isinstance(actual, dict):
        yield from _objects(before, after, actual, path)
    elif (
        isinstance(before, list)
        and isinstance(after, list)
        and isinstance(actual, list)
        and len(before) == len(actual)
    ):
        yield from _lists(before, after, actual, path)
    else:
        yield {"op": "replace", "path": path, "value": after}


def _objects(
    before: Mapping[str, object],
    after: Mapping[str, object],
    actual: Mapping[str, object],
    path: str,
) -> Iterator[Object]:
    for name in before:
        if name not in after and name in actual:
            yield {"op": "remove", "path": f"{path}/{_escaped(name)}"}
    for name, value in after.items():
        below = f"{path}/{_escaped(name)}"
        if name not in before or (name not in actual and before[name] != value):
            yield {"op": "add", "path": below, "value": value}
        else:
            yield from _change(before[name], value, actual.get(name, ABSENT), below)


def _lists(
    before: Sequence[object], after: Sequence[object], actual: Sequence[object], path: str
) -> Iterator[Object]:
    """Yield operations in the order in which they are applied: indexes count what is there then."""
    at = 0
    for old, new in _aligned([_key(item) for item in before], [_key(item) for item in after]):
        if new is None:
            yield {"op": "remove", "path": f"{path}/{at}"}
            continue
        if old is None:
            yield {"op": "add", "path": f"{path}/{at}", "value": after[new]}
        else:
            yield from _change(before[old], after[new], actual[old], f"{path}/{at}")
        at += 1


def _key(item: object) -> object:
    """Return what tells an item from its neighbours."""
    if isinstance(item, dict):
        name = item.get("name")
        return ("name", name) if isinstance(name, str) else ("item", repr(item))
    return ("value", repr(item))


def _aligned(
    old: Sequence[object], new: Sequence[object]
) -> Iterator[tuple[int | None, int | None]]:
    """Yield pairs of indexes that stand for each other, None for what only one side has."""
    start, shorter = 0, min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    tail = 0
    while tail < shorter - start and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    yield from ((index, index) for index in range(start))
    old_end, new_end = len(old) - tail, len(new) - tail
    for left, right in _common(old[start:old_end], new[start:new_end]):
        yield None if left is None else left + start, None if right is None else right + start
    yield from ((old_end + index, new_end + index) for index in range(tail))


def _common(
    old: Sequence[object], new: Sequence[object]
) -> Iterator[tuple[int | None, int | None]]:
    """Yield the pairs of a longest common subsequence, and what is in none."""
    lengths = _lengths(old, new) if len(old) * len(new) <= MOST_PAIRS else None
    left = right = 0
    while lengths and left < len(old) and right < len(new):
        if old[left] == new[right]:
            yield left, right
            left, right = left + 1, right + 1
        elif lengths[left + 1][right] >= lengths[left][right + 1]:
            yield left, None
            left += 1
        else:
            yield None, right
            right += 1
    yield from ((index, None) for index in range(left, len(old)))
    yield from ((None, index) for index in range(right, len(new)))


def _lengths(old: Sequence[object], new: Sequence[object]) -> list[list[int]]:
    """Return how long the common subsequence of the rests from each pair of indexes is."""
    lengths = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for left in reversed(range(len(old))):
        for right in reversed(range(len(new))):
            lengths[left][right] = (
                lengths[left + 1][right + 1] + 1
                if old[left] == new[right]
                else max(lengths[left + 1][right], lengths[left][right + 1])
            )
    return lengths


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
