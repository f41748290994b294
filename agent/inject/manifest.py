"""Manifests: whatever kind of workload in, the same with an injected pod out.

Source: status-lifecycle.md sections 11.14 and 11.17.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from agent.inject.api.form import normal
from agent.inject.api.schema import LIST
from agent.inject.api.types import Object
from agent.inject.api.workloads import KINDS, Kind, is_list, kind_of
from agent.inject.configuration import Configuration
from agent.inject.decision import decide, native_sidecar
from agent.inject.owner import Owner, owner_of_pod
from agent.inject.pipeline import InjectionError, Request, inject
from agent.inject.template.pod import Settings

#: Lists in lists; no tool writes them.
DEEPEST_LIST: Final = 8


class Context(NamedTuple):
    """What is the same for every manifest."""

    configuration: Configuration
    settings: Settings
    #: Of objects that name none.
    namespace: str = ""
    #: auto, true or false.
    native: str = "auto"
    #: Kubelet versions by node, None where nobody could be asked.
    kubelets: Mapping[str, str] | None = None


class Result(NamedTuple):
    """What became of a document."""

    #: The object before injection, in the API's form; None for one that is not handled.
    before: Object | None
    #: The same after it.
    after: Object | None
    warnings: tuple[str, ...] = ()


def inject_document(document: Any, context: Context, depth: int = 0) -> Result:  # noqa: ANN401 - YAML
    """Return a document before and after injection.

    Raises:
        InjectionError: the object, or an annotation of it, cannot be used.
    """
    if is_list(document):
        return _inject_list(document, context, depth)
    kind = kind_of(document)
    if kind is None:
        return Result(None, None, _version_warning(document, context))
    problems: list[str] = []
    before = normal(document, kind.struct, "", problems)
    name = describe(before, context)
    if not isinstance(_at(before, kind.spec), dict):
        problems.append(f"{'.'.join(kind.spec[:-1])}: expected a pod template")
    if problems:
        raise InjectionError([f"{name}: {problem}" for problem in problems])
    return _inject_workload(before, kind, name, context)


def describe(document: Mapping[str, Any], context: Context) -> str:
    """Return how messages call an object, such as 'Deployment prod/web'."""
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = metadata.get("name") or metadata.get("generateName") or "without a name"
    namespace = metadata.get("namespace") or context.namespace
    return f"{document.get('kind')} {f'{namespace}/' if namespace else ''}{name}"


def _inject_list(document: Mapping[str, Any], context: Context, depth: int) -> Result:
    problems: list[str] = []
    before = normal(document, LIST, "", problems)
    if depth > DEEPEST_LIST:
        problems.append(f"items: expected at most {DEEPEST_LIST} lists in each other")
    results: list[Result] = []
    for item in () if problems else before["items"]:
        try:
            results.append(inject_document(item, context, depth + 1))
        except InjectionError as error:
            problems += error.problems
    if problems:
        raise InjectionError(problems)
    pairs = list(zip(before["items"], results, strict=True))
    warnings = [warning for result in results for warning in result.warnings]
    return Result(
        {**before, "items": [result.before or item for item, result in pairs]},
        {**before, "items": [result.after or item for item, result in pairs]},
        tuple(warnings),
    )


def _inject_workload(before: Object, kind: Kind, name: str, context: Context) -> Result:
    metadata, spec = _at(before, kind.metadata) or {}, _at(before, kind.spec)
    own = before["metadata"]
    namespace = own.get("namespace") or metadata.get("namespace") or context.namespace
    pod = {"metadata": metadata, "spec": spec}
    # Selectors and the policy are the webhook's: whoever runs the command wants the pod.
    verdict = decide(pod, namespace, Configuration())
    warnings = [f"{name}: {warning}" for warning in verdict.warnings]
    if not verdict.inject:
        kind_name, _, full_name = name.partition(" ")
        skipped = f'===> Skipping injection because {kind_name} "{full_name}" {verdict.reason}'
        return Result(before, before, (*warnings, skipped))
    native, notes = native_sidecar(pod, context.native, context.kubelets)
    request = Request(pod, _owner(before, metadata, namespace), namespace, native=native)
    configuration = context.configuration._replace(injected_annotations={})
    try:
        injected = inject(request, configuration, context.settings)
    except InjectionError as error:
        raise InjectionError(
            [f"{name}: {_located(problem, kind)}" for problem in error.problems]
        ) from None
    warnings += [f"{name}: {_located(note, kind)}" for note in (*notes, *injected.warnings)]
    after = _replaced(before, kind.metadata, injected.pod["metadata"])
    return Result(before, _replaced(after, kind.spec, injected.pod["spec"]), tuple(warnings))


def _owner(document: Object, metadata: Object, namespace: str) -> Owner:
    if document["kind"] == "Pod":
        return owner_of_pod(metadata, namespace)
    name = document["metadata"].get("name", "")
    return Owner(name, namespace, document["kind"], document["apiVersion"])


def _located(problem: str, kind: Kind) -> str:
    """Return a line about a pod as one about the object that the pod stands in."""
    prefix = "".join(f"{part}." for part in kind.spec[:-1])
    return f"{prefix}{problem}" if problem.startswith("spec.") else problem


def _version_warning(document: object, context: Context) -> tuple[str, ...]:
    """Return what to say of something that looks like a workload and is none."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(kind, str) or kind not in KINDS:
        return ()
    version, versions = document.get("apiVersion"), KINDS[kind][0]
    if isinstance(version, str) and version.partition("/")[0] not in _groups(versions):
        return ()  # another project's kind of that name
    name = describe(document, context)
    return (f"{name}: apiVersion={version!r}: expected {versions[0]}; it passes unchanged",)


def _groups(versions: Sequence[str]) -> set[str]:
    return {version.partition("/")[0] for version in versions}


def _at(document: Object, path: Sequence[str]) -> Any:  # noqa: ANN401 - the API's objects
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _replaced(document: Object, path: Sequence[str], value: Object) -> Object:
    """Return the document with another value at a path."""
    head, *rest = path
    return {**document, head: _replaced(document[head], rest, value) if rest else value}
