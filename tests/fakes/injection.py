"""Pods to inject, and the injection of one as the webhook and the command do it."""

import json
from collections.abc import Mapping
from typing import Any

from agent.inject.api.form import normal
from agent.inject.api.schema import TEMPLATE
from agent.inject.configuration import Configuration
from agent.inject.mesh import parse_mesh
from agent.inject.owner import Owner, owner_of_pod
from agent.inject.pipeline import Injected, Request, inject
from agent.inject.template.pod import PROXY, Settings
from agent.inject.values import parse_values

Object = dict[str, Any]


def make_pod(
    *containers: Object,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: object,
) -> Object:
    """Return a pod with an application, or with these containers."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-1",
            "labels": {"app": "web", **(labels or {})},
            "annotations": {**(annotations or {})},
        },
        "spec": {"containers": list(containers) or [{"name": "app", "image": "web:1"}], **spec},
    }


def make_settings(
    values: Mapping[str, object] | None = None, mesh: Mapping[str, object] | None = None
) -> Settings:
    """Return settings with these values and this mesh configuration over the built-in ones."""
    parsed, problems = parse_values(values or {})
    text = json.dumps(mesh) if mesh else ""
    configuration, found = parse_mesh(text, parsed, source="mesh")
    assert [*problems, *found] == []
    return Settings(parsed, configuration)


def make_request(pod: Object, *, native: bool = True, owner: Owner | None = None) -> Request:
    """Return the request to inject a pod."""
    problems: list[str] = []
    form = normal(pod, TEMPLATE, "", problems)
    assert problems == []
    namespace = form["metadata"].get("namespace", "default")
    return Request(
        form,
        owner or owner_of_pod(form["metadata"], namespace),
        namespace=namespace,
        native=native,
    )


def inject_pod(
    pod: Object,
    *,
    native: bool = True,
    values: Mapping[str, object] | None = None,
    mesh: Mapping[str, object] | None = None,
    configuration: Configuration | None = None,
    environment: Mapping[str, str] | None = None,
) -> Injected:
    """Return an injected pod."""
    request = make_request(pod, native=native)._replace(environment=environment or {})
    return inject(request, configuration or Configuration(), make_settings(values, mesh))


def container(pod: Object, name: str = PROXY) -> Object:
    """Return a container of a pod, of either list."""
    spec = pod["spec"]
    found: Object = next(
        item
        for group in ("containers", "initContainers")
        for item in spec.get(group, ())
        if item["name"] == name
    )
    return found


def names(pod: Object, group: str) -> list[str]:
    """Return the names of a list of the pod, in order."""
    return [item["name"] for item in pod["spec"].get(group, ())]


def variable(pod: Object, name: str) -> str | None:
    """Return a variable of the proxy, None if it has none of that name."""
    found = [item for item in container(pod)["env"] if item["name"] == name]
    return found[-1].get("value", "") if found else None


def annotations_of(pod: Object) -> dict[str, str]:
    """Return a pod's annotations."""
    found: dict[str, str] = pod["metadata"].get("annotations", {})
    return found
