"""Admission reviews: the API server's question about a pod, and the answer.

Source: status-lifecycle.md sections 11.1 and 11.5.
"""

import base64
import json
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from agent.inject.api.form import normal, shown
from agent.inject.api.schema import POD
from agent.inject.api.types import Object
from agent.inject.configuration import Configuration
from agent.inject.decision import decide, native_sidecar
from agent.inject.mesh import ProxyConfigResource
from agent.inject.owner import owner_of_pod
from agent.inject.pipeline import InjectionError, Request, inject
from agent.inject.template.pod import Settings
from agent.inject.webhook.openshift import is_openshift, proxy_ids, without_assigned_ids
from agent.inject.webhook.patch import json_patch

KIND: Final = "AdmissionReview"
VERSIONS: Final = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
#: Beyond any pod: the API server keeps none of more than 1.5 MiB. Each takes up to a kilobyte.
MOST_VALUES: Final = 100_000
#: Problems that one answer lists.
MOST_PROBLEMS: Final = 10
LONGEST_PROBLEM: Final = 500
#: What the API server takes of a warning.
LONGEST_WARNING: Final = 250
MOST_WARNINGS: Final = 10
#: Segments of the URL that name a variable otherwise than by its own name.
URL_NAMES: Final = {"cluster": "ISTIO_META_CLUSTER_ID", "net": "ISTIO_META_NETWORK"}
OLD_SEPARATOR: Final = ":ENV:"

Outcome = Literal["injected", "skipped", "failed"]


class Cluster(NamedTuple):
    """What is known of the cluster."""

    #: The kubelet's version by node; None where nobody could be asked.
    kubelets: Mapping[str, str] | None = None
    #: Annotations of namespaces where the platform assigns users, by namespace.
    namespaces: Mapping[str, Mapping[str, str]] = {}
    proxy_configs: tuple[ProxyConfigResource, ...] = ()


class Context(NamedTuple):
    """What answers go by."""

    configuration: Configuration
    settings: Settings
    native: str = "auto"
    cluster: Cluster = Cluster()


def with_cluster(context: Context, cluster: Cluster) -> Context:
    """Return the context with what is known of the cluster by now."""
    mesh = context.settings.mesh._replace(resources=cluster.proxy_configs)
    return context._replace(settings=context.settings._replace(mesh=mesh), cluster=cluster)


class Answer(NamedTuple):
    """The answer to a review."""

    document: Object
    outcome: Outcome
    #: Why it failed, or what should be known of it; for the log.
    notes: tuple[str, ...] = ()


def failure(reason: str) -> Answer:
    """Return the answer to a review that could not be answered."""
    return Answer({"response": _refusal("", [reason])}, "failed", (reason,))


def answer(body: bytes, environment: Mapping[str, str], context: Context) -> Answer:
    """Return the answer to a review, whatever it holds.

    Args:
        body: of the request.
        environment: variables that the URL sets.
        context: how to inject.
    """
    try:
        review = _parse(body)
    except InjectionError as error:
        return failure(str(error))
    uid = ""
    try:
        request = _request(review)
        uid = str(request.get("uid") or "")
        response, outcome, notes = _answer_request(request, environment, context)
    except (InjectionError, RecursionError) as error:
        notes = [*getattr(error, "problems", ["request.object: nested too deeply"])]
        response, outcome = _refusal(uid, notes), "failed"
    envelope = {name: review[name] for name in ("apiVersion", "kind")}
    return Answer({**envelope, "response": response}, outcome, tuple(notes))


def url_environment(path: str) -> dict[str, str]:
    """Return the variables that the rest of the URL sets, such as cluster/east/net/one.

    Args:
        path: what follows /inject/, percent-decoded.
    """
    if path.startswith(OLD_SEPARATOR):
        pairs = [item.partition("=") for item in path.rstrip("/").split(OLD_SEPARATOR)]
        return {name: value for name, equals, value in pairs if name and equals}
    segments = path.strip("/").split("/") if path.strip("/") else []
    return {
        URL_NAMES.get(name, name.upper()): value.replace("--slash--", "/")
        for name, value in zip(segments[::2], segments[1::2], strict=False)
    }


def _parse(body: bytes) -> Object:
    if sum(map(body.count, (b",", b"{", b"["))) > MOST_VALUES:
        raise InjectionError([f"could not decode body: expected at most {MOST_VALUES} values"])
    try:
        review = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        detail = "nested too deeply" if isinstance(error, RecursionError) else "expected JSON"
        raise InjectionError([f"could not decode body: {detail}"]) from None
    if not isinstance(review, dict):
        raise InjectionError([f"could not decode body: {shown(review)}: expected an {KIND}"])
    if review.get("kind") != KIND or review.get("apiVersion") not in VERSIONS:
        found = f"apiVersion={shown(review.get('apiVersion'))} kind={shown(review.get('kind'))}"
        expected = f"expected an {KIND} of {' or '.join(VERSIONS)}"
        raise InjectionError([f"could not decode body: {found}: {expected}"])
    return review


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _request(review: Object) -> Object:
    request = review.get("request")
    if not isinstance(request, dict):
        raise InjectionError([f"request={shown(request)}: expected an object"])
    return request


def _answer_request(
    request: Object, environment: Mapping[str, str], context: Context
) -> tuple[Object, Outcome, list[str]]:
    """Return the response, what became of the pod, and what should be known."""
    uid = str(request.get("uid") or "")
    if not _creates_a_pod(request):
        return {"uid": uid, "allowed": True}, "skipped", []
    raw = _pod(request)
    namespace = _namespace(request)
    problems: list[str] = []
    before = normal(raw, POD, "", problems)
    if problems:
        raise InjectionError(problems)
    metadata = before["metadata"]
    metadata.pop("managedFields", None)
    if namespace:
        metadata.setdefault("namespace", namespace)
    namespace = metadata.get("namespace", "")
    verdict = decide(before, namespace, context.configuration)
    if not verdict.inject:
        return {"uid": uid, "allowed": True}, "skipped", list(verdict.warnings)
    native, notes = native_sidecar(before, context.native, context.cluster.kubelets)
    wanted = _injection(before, namespace, context.cluster)
    injected = inject(
        wanted._replace(native=native, environment=environment),
        context.configuration,
        context.settings,
    )
    patch = json_patch(before, {**before, **injected.pod}, raw)
    warnings = [*verdict.warnings, *notes, *injected.warnings]
    encoded = base64.b64encode(json.dumps(patch, separators=(",", ":")).encode()).decode()
    response: Object = {"uid": uid, "allowed": True, "patchType": "JSONPatch", "patch": encoded}
    if warnings:
        response["warnings"] = [line[:LONGEST_WARNING] for line in warnings[:MOST_WARNINGS]]
    return response, "injected", warnings


def _creates_a_pod(request: Object) -> bool:
    """Return whether there is something to inject: no pod can be given a container later on."""
    return request.get("operation") in (None, "CREATE") and not request.get("subResource")


def _pod(request: Object) -> Object:
    raw = request.get("object")
    if not isinstance(raw, dict):
        raise InjectionError([f"request.object={shown(raw)}: expected a pod"])
    if raw.get("kind", "Pod") != "Pod" or raw.get("apiVersion", "v1") != "v1":
        found = f"apiVersion={shown(raw.get('apiVersion'))} kind={shown(raw.get('kind'))}"
        raise InjectionError([f"request.object: {found}: expected a pod; register pods alone"])
    return raw


def _namespace(request: Object) -> str:
    namespace = request.get("namespace")
    if not isinstance(namespace, str | None):
        raise InjectionError([f"request.namespace={shown(namespace)}: expected text"])
    return namespace or ""


def _injection(pod: Object, namespace: str, cluster: Cluster) -> Request:
    """Return the request to inject a pod, with the ids that the platform has for it."""
    request = Request(pod, owner_of_pod(pod["metadata"], namespace), namespace)
    found = cluster.namespaces.get(namespace, {})
    if not is_openshift(found):
        return request
    user, group = proxy_ids(found)
    spec = without_assigned_ids(pod["spec"])
    return request._replace(pod={**pod, "spec": spec}, user=user, group=group)


def _refusal(uid: str, problems: list[str]) -> Object:
    lines = [
        line if len(line) <= LONGEST_PROBLEM else f"{line[:LONGEST_PROBLEM]}..."
        for line in problems[:MOST_PROBLEMS]
    ]
    if len(problems) > MOST_PROBLEMS:
        lines.append(f"and {len(problems) - MOST_PROBLEMS} more")
    return {"uid": uid, "allowed": False, "status": {"message": "; ".join(lines)}}
