"""What users say of containers that are injected: it wins over the template.

Source: status-lifecycle.md sections 11.10 and 14, D23.
"""

from collections.abc import Mapping
from typing import Final

from agent.inject.api.merge import merge
from agent.inject.api.schema import CONTAINER
from agent.inject.api.types import Object
from agent.inject.status import CONTAINER_LISTS, Status
from agent.inject.template.capture import INIT, VALIDATION
from agent.inject.template.pod import PROXY

#: An image that the injector is to fill in.
AUTO: Final = "auto"
IDS: Final = ("runAsUser", "runAsGroup")


def user_definitions(
    template: Object, pod: Object, stored: Mapping[str, list[Object]], status: Status | None
) -> dict[str, list[Object]]:
    """Return what the user says of each container of the template, by the template's list.

    Args:
        template: the spec of everything that templates add.
        pod: the incoming pod's spec.
        stored: what an earlier injection kept of the user's definitions.
        status: what that injection added; its containers are not the user's.
    """
    found: dict[str, list[Object]] = {}
    for group in CONTAINER_LISTS:
        for container in template.get(group, ()):
            name = container.get("name")
            definition = named(stored[group], name)
            if definition is None and not (status and status.has(group, name)):
                definition = _own(pod, group, name)
            if definition is not None:
                found.setdefault(group, []).append(_without_auto(definition))
    return found


def apply_overrides(spec: Object, overrides: Mapping[str, list[Object]]) -> None:
    """Merge the user's definitions over the containers of a spec, in place."""
    for group, definitions in overrides.items():
        for definition in definitions:
            container = named(spec.get(group, []), definition["name"])
            if container is not None:
                merged = merge(container, definition, CONTAINER)
                container.clear()
                container.update(merged)


def follow_ids(spec: Object, overrides: Mapping[str, list[Object]], *, transparent: bool) -> None:
    """Have capture know the user and group that the user's proxy runs with, in place.

    Args:
        spec: of the merged pod.
        overrides: the user's definitions.
        transparent: the pod is captured with TPROXY, for which the proxy must be root.
    """
    definition = next(
        (found for group in CONTAINER_LISTS if (found := named(overrides.get(group, []), PROXY))),
        {},
    )
    ids = {name: definition.get("securityContext", {}).get(name) for name in IDS}
    ids = {name: value for name, value in ids.items() if value is not None}
    if not ids:
        return
    before = spec.get("initContainers", [])
    validation = named(before, VALIDATION)
    if validation is not None and not transparent:
        validation.setdefault("securityContext", {}).update(ids)
    if user := ids.get("runAsUser"):
        _set_proxy_user(named(before, INIT) or validation, user)
    if transparent:
        for group in CONTAINER_LISTS:
            if proxy := named(spec.get(group, []), PROXY):
                proxy.setdefault("securityContext", {})["runAsUser"] = 0


def named(containers: list[Object], name: object) -> Object | None:
    """Return the container of that name."""
    return next((item for item in containers if item.get("name") == name), None)


def _set_proxy_user(container: Object | None, user: int) -> None:
    """Replace the value of -u, which exempts the proxy's own connections."""
    if container is None:
        return
    arguments: list[str] = container.get("args", [])
    if "-u" in arguments[:-1]:
        at = arguments.index("-u") + 1
        container["args"] = [*arguments[:at], str(user), *arguments[at + 1 :]]


def _own(pod: Object, group: str, name: object) -> Object | None:
    """Return the pod's own definition; one of an init container may stand in either list."""
    found = named(pod.get(group, []), name)
    if found is None and group == "initContainers":
        found = named(pod.get("containers", []), name)
    return found


def _without_auto(definition: Object) -> Object:
    if definition.get("image") != AUTO:
        return definition
    return {name: value for name, value in definition.items() if name != "image"}
