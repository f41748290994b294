"""The difference between two objects as a JSON patch (RFC 6902), no larger than it must be.

It is found between normal forms (form.py) and applied to the object as it came, which may lack what
the normal form fills in. So each step down looks whether the object has what would be changed, and
where it has not, the whole is added.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from agent.inject.api.types import Object

ABSENT: Final = object()
#: Beyond so many pairs lists are not compared: the new one stands in the place of the old one.
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
    if len(before) * len(after) > MOST_PAIRS:
        yield {"op": "replace", "path": path, "value": after}
        return
    at = 0
    old_keys, new_keys = [_key(item) for item in before], [_key(item) for item in after]
    matcher = SequenceMatcher(None, old_keys, new_keys, autojunk=False)
    for kind, old, old_end, new, new_end in matcher.get_opcodes():
        if kind == "equal":
            for index, item in enumerate(after[new:new_end], old):
                yield from _change(before[index], item, actual[index], f"{path}/{at}")
                at += 1
            continue
        yield from ({"op": "remove", "path": f"{path}/{at}"} for _ in range(old, old_end))
        for item in after[new:new_end]:
            yield {"op": "add", "path": f"{path}/{at}", "value": item}
            at += 1


def _key(item: object) -> object:
    """Return what tells an item from its neighbours."""
    if isinstance(item, dict):
        name = item.get("name")
        return ("name", name) if isinstance(name, str) else ("item", repr(item))
    return repr(item)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
