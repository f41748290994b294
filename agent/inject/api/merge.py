"""Strategic merge: a partial object laid over a whole one, lists matched by their keys.

Source: status-lifecycle.md section 11.4; Kubernetes' strategic merge patch.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from agent.inject.api.types import Items, Object, Pairs, Struct, Type

DIRECTIVE: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
DELETE_FROM: Final = "$deleteFromPrimitiveList/"


def merge(original: Mapping[str, object], patch: Mapping[str, object], kind: Type) -> Object:
    """Return the original with the patch merged in; neither is changed, parts are shared.

    null deletes a member; `$patch: replace` puts the patch in the place of everything,
    `$patch: delete` deletes; `$retainKeys` names the members that stay. Of alternatives, such as
    the handlers of a probe, the patch's takes the place of any other: the API takes one alone.
    """
    directive = patch.get(DIRECTIVE)
    if directive == "delete":
        return {}
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != DIRECTIVE}
    retained = patch.get(RETAIN_KEYS)
    others = _other_alternatives(patch, kind)
    merged: Object = {
        name: value
        for name, value in original.items()
        if name not in others and (not isinstance(retained, list) or name in retained)
    }
    for name, value in patch.items():
        if name.startswith("$"):
            _delete_from(merged, name, value)
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = _member(merged.get(name), value, _kind_of(name, kind))
    return merged


def _other_alternatives(patch: Mapping[str, object], kind: Type) -> frozenset[str]:
    """Return the members that what the patch has stands in the place of."""
    alternatives = kind.alternatives if isinstance(kind, Struct) else frozenset()
    given = {name for name in alternatives if patch.get(name) is not None}
    return alternatives - given if given else frozenset()


def _delete_from(merged: Object, name: str, value: object) -> None:
    if not name.startswith(DELETE_FROM):
        return
    target = name.removeprefix(DELETE_FROM)
    if isinstance(value, list) and isinstance(merged.get(target), list):
        merged[target] = [item for item in merged[target] if item not in value]


def _kind_of(name: str, kind: Type) -> Type | None:
    if isinstance(kind, Struct):
        return kind.fields.get(name)
    return kind.member if isinstance(kind, Pairs) else None


def _member(original: object, patch: object, kind: Type | None) -> object:
    if isinstance(patch, dict) and isinstance(kind, Struct | Pairs):
        return merge(original if isinstance(original, dict) else {}, patch, kind)
    if isinstance(patch, list) and isinstance(kind, Items) and kind.key:
        return merge_items(original if isinstance(original, list) else [], patch, kind)
    return patch


def merge_items(original: Sequence[object], patch: Sequence[object], kind: Items) -> list[object]:
    """Return a list merged by its key.

    The patch's items keep the patch's order, those of the original alone keep theirs. Where both
    could be next it is the patch's, unless both were there before and in the other order.
    """
    if any(_directive(item) == "replace" for item in patch):
        return [item for item in patch if _directive(item) != "replace"]
    deleted = {_key(item, kind) for item in patch if _directive(item) == "delete"}
    before = [item for item in original if _key(item, kind) not in deleted]
    patched = _one_for_each_key([item for item in patch if _directive(item) != "delete"], kind)
    positions: dict[object, int] = {}
    for index, item in enumerate(before):
        if (key := _key(item, kind)) is not None:
            positions.setdefault(key, index)
    places = [
        positions.get(key) if (key := _key(item, kind)) is not None else None for item in patched
    ]
    taken = {place for place in places if place is not None}
    alone = [index for index in range(len(before)) if index not in taken]
    result: list[object] = []
    for item, place in zip(patched, places, strict=True):
        while alone and place is not None and alone[0] < place:
            result.append(before[alone.pop(0)])
        result.append(_member(None if place is None else before[place], item, kind.member))
    return result + [before[index] for index in alone]


def _one_for_each_key(items: Sequence[object], kind: Items) -> list[object]:
    """Return the items, those of one key merged into the first of them."""
    found: list[object] = []
    places: dict[object, int] = {}
    for item in items:
        key = _key(item, kind)
        if key is not None and key in places:
            found[places[key]] = _member(found[places[key]], item, kind.member)
            continue
        if key is not None:
            places[key] = len(found)
        found.append(item)
    return found


def _key(item: object, kind: Items) -> object:
    """Return what tells the item from others, None if nothing does."""
    key = item.get(kind.key) if isinstance(item, dict) else None
    return key if isinstance(key, str | int) else None


def _directive(item: object) -> object:
    return item.get(DIRECTIVE) if isinstance(item, dict) else None
