"""The pod as it was before an earlier injection, so that injecting again comes to the same.

Source: status-lifecycle.md sections 11.4, step 3, and 14, D23.
"""

from collections.abc import Collection, Mapping

from agent.inject.api.types import Object
from agent.inject.status import CONTAINER_LISTS, Status
from agent.inject.template.pod import PROXY


def without_injected(
    spec: Object, status: Status | None, stored: Mapping[str, list[Object]]
) -> Object:
    """Return the spec as it was before an earlier injection.

    The user's definition of the proxy is the last container: where it stood at first is not known
    any more, and templates must see the same each time (D23).
    """
    before = dict(spec)
    proxies: list[Object] = []
    for group in CONTAINER_LISTS:
        own = {item.get("name"): item for item in stored[group]}
        found: list[Object] = []
        for item in spec.get(group, ()):
            definition = own.pop(item.get("name"), None)
            if not (status and status.has(group, item.get("name"))):
                definition = item
            found += [definition] if definition else []
        found += own.values()
        before[group] = [item for item in found if item.get("name") != PROXY]
        proxies += [item for item in found if item.get("name") == PROXY]
    before["containers"] += proxies[:1]
    return before


def without_variables(spec: Object, variables: Collection[str]) -> Object:
    """Return the spec with the proxy's variables as its template had them: these come last."""
    groups = {group: spec[group] for group in CONTAINER_LISTS if group in spec}
    return spec | {
        group: [_without(item, variables) if item.get("name") == PROXY else item for item in items]
        for group, items in groups.items()
    }


def _without(container: Object, variables: Collection[str]) -> Object:
    environment = container.get("env", ())
    kept = [item for item in environment if item.get("name") not in variables]
    return {**container, "env": kept}
