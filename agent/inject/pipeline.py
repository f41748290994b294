"""Injection: a pod in, the injected pod out.

    checks ─► template input ─► each template: render, merge ─► the user's overrides
           ─► cluster, metrics, probes, status, order

Objects are values: the incoming pod is never changed, and parts of it may be shared.

Source: status-lifecycle.md section 11.4.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from agent.inject.annotations import STATUS_PORT, check_annotations, parse_bool
from agent.inject.api.form import normal
from agent.inject.api.merge import merge
from agent.inject.api.schema import TEMPLATE
from agent.inject.api.types import Object
from agent.inject.configuration import Configuration
from agent.inject.earlier import without_injected, without_variables
from agent.inject.mesh import effective_proxy_config
from agent.inject.order import order_containers
from agent.inject.overrides import apply_overrides, follow_ids, named, user_definitions
from agent.inject.owner import Owner
from agent.inject.probes import REWRITE, rewrite_probes
from agent.inject.probes import VARIABLE as PROBERS
from agent.inject.prometheus import VARIABLE as METRICS
from agent.inject.prometheus import clear, merge_metrics, secure_port
from agent.inject.status import (
    CONTAINER_LISTS,
    OVERRIDES,
    STATUS,
    read_overrides,
    read_status,
    write_overrides,
    write_status,
)
from agent.inject.template.gateway import gateway
from agent.inject.template.grpc import grpc_agent, grpc_simple
from agent.inject.template.pod import PROXY, PROXY_ID, Settings, Template, TemplatePod
from agent.inject.template.sidecar import sidecar
from bootstrap.errors import BootstrapError

TEMPLATES: Final = "inject.istio.io/templates"
NETWORK_LABEL: Final = "topology.istio.io/network"
CLUSTER_VARIABLE: Final = "ISTIO_META_CLUSTER_ID"
NETWORK_VARIABLE: Final = "ISTIO_META_NETWORK"
BUILT_IN: Final[Mapping[str, Template]] = {
    "sidecar": sidecar,
    "gateway": gateway,
    "grpc-agent": grpc_agent,
    "grpc-simple": grpc_simple,
}


class InjectionError(Exception):
    """The pod cannot be injected; `problems` holds one line for each reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class Request(NamedTuple):
    """A pod to inject, and what is known of it."""

    #: Metadata and spec in the API's form.
    pod: Object
    owner: Owner
    namespace: str
    #: The sidecar is a restartable init container.
    native: bool = False
    #: Variables that the URL of the request sets.
    environment: Mapping[str, str] = {}
    user: int = PROXY_ID
    group: int = PROXY_ID


class Injected(NamedTuple):
    """An injected pod."""

    #: Metadata and spec, in the API's form.
    pod: Object
    warnings: list[str]


def inject(request: Request, configuration: Configuration, settings: Settings) -> Injected:
    """Return the injected pod.

    Raises:
        InjectionError: an annotation, a template or the pod itself cannot be used.
    """
    metadata, spec = request.pod["metadata"], request.pod["spec"]
    annotations: Mapping[str, str] = metadata.get("annotations", {})
    problems = [*check_annotations(annotations), *_check_names(spec)]
    try:
        proxy_config = effective_proxy_config(
            settings.mesh,
            namespace=request.namespace,
            labels=metadata.get("labels", {}),
            annotations=annotations,
        )
    except BootstrapError as error:
        raise InjectionError([*problems, *error.problems]) from None
    if problems:
        raise InjectionError(problems)
    try:
        return _inject(request, configuration, _template_pod(request, settings, proxy_config))
    except ValueError as error:
        raise InjectionError([str(error)]) from None


def _inject(request: Request, configuration: Configuration, pod: TemplatePod) -> Injected:
    incoming = request.pod
    annotations = incoming["metadata"].get("annotations", {})
    status = read_status(annotations)
    stored = read_overrides(annotations)
    template, merged = _merge_templates(request, configuration, pod)
    spec, added = merged["spec"], template.get("spec", {})
    overrides = user_definitions(added, incoming["spec"], stored, status)
    apply_overrides(spec, overrides)
    follow_ids(spec, overrides, transparent=pod.interception_mode == "TPROXY")
    metadata = merged.setdefault("metadata", {})
    if overrides and STATUS not in annotations:
        metadata.setdefault("annotations", {})[OVERRIDES] = write_overrides(overrides)
    warnings = _finish(request, configuration, pod, merged, added)
    problems: list[str] = []
    written = normal(merged, TEMPLATE, "", problems)
    if problems:
        raise InjectionError(problems)
    return Injected(written, warnings)


def _finish(
    request: Request, configuration: Configuration, pod: TemplatePod, merged: Object, added: Object
) -> list[str]:
    """Add what depends on the merged pod, in place; return warnings."""
    metadata, spec = merged["metadata"], merged["spec"]
    annotations: dict[str, str] = dict(metadata.get("annotations", {}))
    mesh_port = pod.mesh.status_port
    port = int(annotations.get(STATUS_PORT, "").strip() or mesh_port)
    proxy = next(
        (found for group in CONTAINER_LISTS if (found := named(spec.get(group, []), PROXY))), None
    )
    location = _location(request, pod)
    again = STATUS in request.pod["metadata"].get("annotations", {})
    if proxy is not None:
        _set_location(proxy, location, again=again)
    annotations, warnings = merge_metrics(
        annotations, proxy, status_port=port, enabled=pod.mesh.prometheus_merge
    )
    if proxy is not None:
        annotations |= secure_port(annotations, proxy)
        asked = parse_bool(annotations.get(REWRITE, ""))
        if pod.values.rewrite_probes if asked is None else asked:
            warnings += rewrite_probes(
                spec, proxy, status_port=port, mesh_status_port=mesh_port, again=again
            )
    annotations[STATUS] = write_status(added, pod.settings.revision)
    annotations |= configuration.injected_annotations
    metadata["annotations"] = annotations
    if network := location.get(NETWORK_VARIABLE):
        metadata["labels"] = {**metadata.get("labels", {}), NETWORK_LABEL: network}
    order_containers(spec, native=request.native, holds_application=pod.holds_application)
    return warnings


def _check_names(spec: Object) -> list[str]:
    """Return a line for each container without a name of its own: probes go by it."""
    seen: set[str] = set()
    problems = []
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group, ())):
            name = container.get("name", "")
            where = f"spec.{group}[{index}].name={name!r}"
            if name in seen:
                problems.append(f"{where}: expected a name of its own; rename one of the two")
            elif not name:
                problems.append(f"{where}: expected a name")
            seen.add(name or where)
    return problems


def _template_pod(
    request: Request, settings: Settings, proxy_config: Mapping[str, object]
) -> TemplatePod:
    """Return the pod as templates see it. Source: status-lifecycle.md section 11.4, step 3."""
    metadata, spec = request.pod["metadata"], request.pod["spec"]
    labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
    status = read_status(annotations)
    seen = clear(annotations, settings.mesh.status_port) if status else dict(annotations)
    if status:
        seen.pop(STATUS, None)
    return TemplatePod(
        labels=labels,
        annotations=seen,
        spec=without_injected(spec, status, read_overrides(annotations)),
        owner=request.owner,
        proxy_config=proxy_config,
        settings=settings,
        native=request.native,
        user=request.user,
        group=request.group,
    )


def _merge_templates(
    request: Request, configuration: Configuration, pod: TemplatePod
) -> tuple[Object, Object]:
    """Return everything that the templates add, and the pod with it."""
    template: Object = {}
    merged: Object = {name: request.pod[name] for name in ("metadata", "spec")}
    if STATUS in merged["metadata"].get("annotations", {}):
        merged["spec"] = without_variables(merged["spec"], _location(request, pod))
    for name in selected_templates(pod.annotations, configuration):
        rendered = _render(name, configuration, pod)
        if _has_native_proxy(template, pod):  # what a further template says of it, too (D25)
            rendered = _with_native_proxy(rendered)
        template = merge(template, rendered, TEMPLATE)
        if _has_native_proxy(template, pod):
            merged = _with_native_proxy(merged)
        merged = merge(merged, rendered, TEMPLATE)
    return template, copy.deepcopy(_with_one_proxy(merged, template, request))


def selected_templates(annotations: Mapping[str, str], configuration: Configuration) -> list[str]:
    """Return the names of the templates that a pod asks for, or the default ones."""
    asked = [name for item in annotations.get(TEMPLATES, "").split(",") if (name := item.strip())]
    names = asked or configuration.default_templates
    return [real for name in names for real in configuration.aliases.get(name, (name,))]


def _render(name: str, configuration: Configuration, pod: TemplatePod) -> Object:
    if name in configuration.templates:
        text = configuration.templates[name]
        if text is None:
            raise ValueError(f"template {name!r} has actions in '{{{{', which are not run")
        problems: list[str] = []
        normal(text, TEMPLATE, "", problems)
        if problems:
            raise ValueError(f"template {name!r}: {problems[0]}")
        return text
    if name not in BUILT_IN:
        known = ", ".join(sorted({*BUILT_IN, *configuration.templates, *configuration.aliases}))
        raise ValueError(f"annotation {TEMPLATES}: no template {name!r}; expected one of {known}")
    return BUILT_IN[name](pod)


def _has_native_proxy(template: Object, pod: TemplatePod) -> bool:
    before = template.get("spec", {}).get("initContainers", [])
    return pod.native and named(before, PROXY) is not None


def _with_native_proxy(pod: Object) -> Object:
    """Return a pod, or a part of one, with its words on the proxy among the init containers."""
    spec = pod.get("spec") or {}
    proxy = named(spec.get("containers") or [], PROXY)
    if proxy is None:
        return pod
    others = [item for item in spec["containers"] if item is not proxy]
    before = [*(spec.get("initContainers") or []), proxy]
    return {**pod, "spec": {**spec, "containers": others, "initContainers": before}}


def _with_one_proxy(merged: Object, template: Object, request: Request) -> Object:
    """Return the pod without the proxy that it had as a native sidecar, if it is none any more.

    Raises:
        ValueError: the user's own definition stands where the template has no proxy.
    """
    spec, added = merged["spec"], template.get("spec", {})
    stale = named(spec.get("initContainers", []), PROXY)
    if stale is None or named(added.get("containers", []), PROXY) is None:
        return merged
    status = read_status(request.pod["metadata"].get("annotations", {}))
    if status is None or not status.has("initContainers", PROXY):
        raise ValueError(
            f"spec.initContainers has {PROXY}: expected it under containers, where it is injected"
        )
    kept = [item for item in spec["initContainers"] if item is not stale]
    return {**merged, "spec": {**spec, "initContainers": kept}}


def _location(request: Request, pod: TemplatePod) -> dict[str, str]:
    """Return the variables that say where the pod is, of labels, URL and values."""
    given = request.environment
    cluster = given.get(CLUSTER_VARIABLE) or pod.values.cluster_name
    network = pod.labels.get(NETWORK_LABEL) or given.get(NETWORK_VARIABLE) or pod.values.network
    named = {CLUSTER_VARIABLE: cluster, NETWORK_VARIABLE: network}
    return {**given, **{name: value for name, value in named.items() if value}}


def _set_location(proxy: Object, variables: Mapping[str, str], *, again: bool) -> None:
    """Put the variables behind the others, but before those that an earlier injection put there."""
    last = (METRICS, PROBERS) if again else ()
    others = [item for item in proxy.get("env", ()) if item.get("name") not in variables]
    behind = [item for item in others if item.get("name") in last]
    added = [{"name": name, "value": value} for name, value in sorted(variables.items())]
    proxy["env"] = [item for item in others if item not in behind] + added + behind
