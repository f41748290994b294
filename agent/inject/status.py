"""What an injected pod says about its injection, for the next one.

Source: status-lifecycle.md sections 11.10 and 11.12.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from agent.inject.api.form import normal
from agent.inject.api.schema import CONTAINER
from agent.inject.api.types import Object
from agent.inject.text import compact_json

STATUS: Final = "sidecar.istio.io/status"
OVERRIDES: Final = "proxy.istio.io/overrides"
LISTS: Final = ("initContainers", "containers", "volumes", "imagePullSecrets")
CONTAINER_LISTS: Final = ("containers", "initContainers")


class Status(NamedTuple):
    """What an earlier injection added, by list of the pod."""

    names: Mapping[str, frozenset[str]]

    def has(self, group: str, name: object) -> bool:
        """Return whether it added the member of that name to the list."""
        return name in self.names.get(group, ())


def read_status(annotations: Mapping[str, str]) -> Status | None:
    """Return the status of an injected pod, None for one that is not, or whose text is none."""
    if STATUS not in annotations:
        return None
    try:
        value = json.loads(annotations[STATUS])
        return Status({group: _names(value.get(group)) for group in LISTS})
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None


def _names(value: Iterable[object] | None) -> frozenset[str]:
    return frozenset(str(name) for name in value or ())


def write_status(template: Object, revision: str) -> str:
    """Return the status of a pod that a template was merged into.

    Args:
        template: the spec of everything that templates add.
        revision: the injector's.
    """
    value: Object = {
        group: [item.get("name") for item in template.get(group, ())] or None for group in LISTS
    }
    return compact_json({**value, "revision": revision or "default"})


def read_overrides(annotations: Mapping[str, str]) -> dict[str, list[Object]]:
    """Return the definitions that the user had of injected containers, by list.

    Raises:
        ValueError: the annotation cannot be used.
    """
    text = annotations.get(OVERRIDES)
    if text is None:
        return {group: [] for group in CONTAINER_LISTS}
    problems: list[str] = []
    try:
        value = json.loads(text)
        found = {
            group: [normal(item, CONTAINER, group, problems) for item in value.get(group) or ()]
            for group in CONTAINER_LISTS
        }
    except (ValueError, AttributeError, TypeError, RecursionError):
        problems, found = ["expected JSON as an earlier injection wrote it"], {}
    if problems:
        raise ValueError(f"annotation {OVERRIDES}: {problems[0]}; remove it to inject afresh")
    return found


def write_overrides(overrides: Mapping[str, list[Object]]) -> str:
    """Return the annotation with the user's definitions of injected containers."""
    problems: list[str] = []
    return compact_json(
        {
            group: [normal(item, CONTAINER, group, problems) for item in overrides[group]]
            for group in CONTAINER_LISTS
            if overrides.get(group)
        }
    )
