"""Who a pod belongs to: the name and kind of its workload.

Source: status-lifecycle.md section 11.6.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agent.inject.api.types import Object

CRON_JOB_RUN: Final = re.compile(r"(.+)-\d{8,10}")


class Owner(NamedTuple):
    """A workload, or a pod without one."""

    name: str
    namespace: str
    kind: str = "Pod"
    api_version: str = "v1"


def owner_of_pod(metadata: Object, namespace: str) -> Owner:
    """Return the workload that a pod was made by, as far as its metadata tells.

    Args:
        metadata: of the pod.
        namespace: the pod's, '' if it is not known.
    """
    reference = _controller(metadata.get("ownerReferences"))
    if not metadata.get("generateName") or reference is None:
        return Owner(str(metadata.get("name", "")), namespace)
    labels = metadata.get("labels") or {}
    name, kind = str(reference.get("name", "")), str(reference.get("kind", ""))
    version = str(reference.get("apiVersion", ""))
    match kind:
        case "ReplicaSet":
            return _of_replica_set(Owner(name, namespace, kind, version), labels)
        case "ReplicationController" if labels.get("deploymentconfig"):
            return Owner(labels["deploymentconfig"], namespace, "DeploymentConfig", version)
        case "Job" if found := CRON_JOB_RUN.fullmatch(name):
            return Owner(found[1], namespace, "CronJob", "batch/v1")
    return Owner(name, namespace, kind, version)


def _of_replica_set(owner: Owner, labels: Mapping[str, str]) -> Owner:
    suffix = f"-{labels.get('pod-template-hash')}"
    if "pod-template-hash" in labels and owner.name.endswith(suffix):
        return owner._replace(name=owner.name.removesuffix(suffix), kind="Deployment")
    suffix = f"-{labels.get('rollouts-pod-template-hash')}"
    if "rollouts-pod-template-hash" in labels:
        name = owner.name.removesuffix(suffix)
        return owner._replace(name=name, kind="Rollout", api_version="v1alpha1")
    return owner


def _controller(references: Any) -> Object | None:  # noqa: ANN401 - the API's objects
    return next((item for item in references or () if item.get("controller")), None)
