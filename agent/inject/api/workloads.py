"""The kinds of workloads, and where each keeps its pod.

Source: status-lifecycle.md sections 11.14 and 11.17.
"""

from typing import Final, NamedTuple

from agent.inject.api.schema import TYPES
from agent.inject.api.types import Struct


class Kind(NamedTuple):
    """A kind of workload."""

    struct: Struct
    #: Fields that lead to the object with the pod's metadata, and to the one with its spec.
    metadata: tuple[str, ...]
    spec: tuple[str, ...]


def _templated(name: str) -> Kind:
    return Kind(TYPES[name], ("spec", "template", "metadata"), ("spec", "template", "spec"))


APPS: Final = ("apps/v1", "apps/v1beta2", "apps/v1beta1", "extensions/v1beta1")
BATCH: Final = ("batch/v1", "batch/v1beta1")
CONFIGS: Final = ("apps.openshift.io/v1", "v1")

#: By kind: the versions of the API that have it, and what it looks like.
KINDS: Final[dict[str, tuple[tuple[str, ...], Kind]]] = {
    "Pod": (("v1",), Kind(TYPES["Pod"], ("metadata",), ("spec",))),
    "ReplicationController": (("v1",), _templated("ReplicationController")),
    "Deployment": (APPS, _templated("Deployment")),
    "ReplicaSet": (APPS, _templated("ReplicaSet")),
    "DaemonSet": (APPS, _templated("DaemonSet")),
    "StatefulSet": (APPS, _templated("StatefulSet")),
    "Job": (BATCH, _templated("Job")),
    # Labels and annotations stand on the job's template: a quirk that is kept.
    "CronJob": (
        BATCH,
        Kind(
            TYPES["CronJob"],
            ("spec", "jobTemplate", "metadata"),
            ("spec", "jobTemplate", "spec", "template", "spec"),
        ),
    ),
    "DeploymentConfig": (CONFIGS, _templated("DeploymentConfig")),
}


def kind_of(document: object) -> Kind | None:
    """Return the kind of a workload that has a pod, None for anything else."""
    if not isinstance(document, dict):
        return None
    versions, kind = KINDS.get(str(document.get("kind")), ((), None))
    return kind if document.get("apiVersion") in versions else None


def is_list(document: object) -> bool:
    """Return whether this is a list of objects."""
    return (
        isinstance(document, dict)
        and document.get("kind") == "List"
        and document.get("apiVersion") == "v1"
    )
