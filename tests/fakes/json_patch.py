"""JSON patches as an API server applies them (RFC 6902): the judge of ours."""

import json
from typing import Any


def apply(operations: list[dict[str, Any]], document: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the document with the operations done in order; LookupError if one cannot be."""
    done = json.loads(json.dumps(document))  # no part of it stands in two places
    for operation in operations:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        target = done
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        _act(target, last, operation)
    return done


def _act(target: Any, last: str, operation: dict[str, Any]) -> None:  # noqa: ANN401 - JSON
    place = int(last) if isinstance(target, list) else last
    if operation["op"] == "add":
        _add(target, place, json.loads(json.dumps(operation["value"])))
        return
    target[place]  # both others need something to be there
    if operation["op"] == "remove":
        del target[place]
    elif operation["op"] == "replace":
        target[place] = json.loads(json.dumps(operation["value"]))
    else:
        raise ValueError(operation["op"])


def _add(target: Any, place: Any, value: object) -> None:  # noqa: ANN401 - JSON
    if not isinstance(target, list):
        target[place] = value
    elif 0 <= place <= len(target):
        target.insert(place, value)
    else:
        raise IndexError(place)
