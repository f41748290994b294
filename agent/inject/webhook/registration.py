"""How the API server is told of the webhook: which pods of which namespaces it asks about.

Source: status-lifecycle.md section 11.15.
"""

import base64
from typing import Final, NamedTuple

from agent.inject.api.types import Object
from agent.inject.decision import IGNORED_NAMESPACES, INJECT

REVISION: Final = "istio.io/rev"
NAMESPACE_SWITCH: Final = "istio-injection"
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
#: The revision that pods and namespaces mean which name none.
DEFAULT: Final = "default"
ROOT_NAMESPACE: Final = "istio-system"
PATH: Final = "/inject"
PORT: Final = 443


class Registration(NamedTuple):
    """What is registered."""

    service: str
    namespace: str = ROOT_NAMESPACE
    #: '' for the default revision.
    revision: str = ""
    #: The root certificate in PEM; '' if somebody else fills it in.
    root: str = ""
    #: Pods are asked about even where nothing is labelled.
    by_default: bool = False


def registration(wanted: Registration) -> Object:
    """Return the MutatingWebhookConfiguration."""
    name = "-".join(
        (
            "istio-sidecar-injector",
            *([wanted.revision] if wanted.revision else []),
            *([wanted.namespace] if wanted.namespace != ROOT_NAMESPACE else []),
        )
    )
    hooks = _of_revision(wanted.revision or DEFAULT)
    if (wanted.revision or DEFAULT) == DEFAULT:
        hooks += _of_default_revision(by_default=wanted.by_default)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": name,
            "labels": {"app": "sidecar-injector", REVISION: wanted.revision or DEFAULT},
        },
        "webhooks": [_hook(wanted, *hook) for hook in hooks],
    }


#: Prefix of the name, conditions on the namespace, conditions on the pod.
Hook = tuple[str, list[Object], list[Object]]


def _of_revision(revision: str) -> list[Hook]:
    return [
        (
            "rev.namespace",
            [_is(REVISION, revision), _is_absent(NAMESPACE_SWITCH)],
            [_is_not(INJECT, "false")],
        ),
        (
            "rev.object",
            [_is_absent(REVISION), _is_absent(NAMESPACE_SWITCH)],
            [_is_not(INJECT, "false"), _is(REVISION, revision)],
        ),
    ]


def _of_default_revision(*, by_default: bool) -> list[Hook]:
    unlabelled = [_is_absent(NAMESPACE_SWITCH), _is_absent(REVISION)]
    hooks: list[Hook] = [
        ("namespace", [_is(NAMESPACE_SWITCH, "enabled")], [_is_not(INJECT, "false")]),
        ("object", unlabelled, [_is(INJECT, "true"), _is_absent(REVISION)]),
    ]
    if by_default:
        others = _is_not(NAMESPACE_NAME, *sorted(IGNORED_NAMESPACES))
        pods = [_is_absent(INJECT), _is_absent(REVISION)]
        hooks.append(("auto", [*unlabelled, others], pods))
    return hooks


def _hook(
    wanted: Registration, prefix: str, namespaces: list[Object], pods: list[Object]
) -> Object:
    client: Object = {
        "service": {
            "name": wanted.service,
            "namespace": wanted.namespace,
            "path": PATH,
            "port": PORT,
        }
    }
    if wanted.root:
        client["caBundle"] = base64.b64encode(wanted.root.encode()).decode()
    return {
        "name": f"{prefix}.sidecar-injector.istio.io",
        "clientConfig": client,
        "rules": [
            {
                "operations": ["CREATE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
            }
        ],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchExpressions": namespaces},
        "objectSelector": {"matchExpressions": pods},
    }


def _is(key: str, value: str) -> Object:
    return {"key": key, "operator": "In", "values": [value]}


def _is_not(key: str, *values: str) -> Object:
    return {"key": key, "operator": "NotIn", "values": list(values)}


def _is_absent(key: str) -> Object:
    return {"key": key, "operator": "DoesNotExist"}
