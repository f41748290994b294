"""The kinds of workloads, and where each keeps its pod.

Source: status-lifecycle.md sections 11.14 and 11.17.
"""

from typing import Final, NamedTuple

from agent.inject.api.metadata import LABEL_SELECTOR, LIST_METADATA, METADATA
from agent.inject.api.pod import POD, TEMPLATE
from agent.inject.api.types import (
    BOOLEAN,
    BOOLEAN_ALWAYS,
    BOOLEAN_SET,
    INTEGER,
    INTEGER_SET,
    PORT,
    RAW,
    TEXT,
    TEXT_PAIRS,
    TEXT_SET,
    Items,
    Struct,
    Type,
    always,
    fields,
    status,
    texts,
)
from agent.inject.api.volumes import CLAIM

HEAD: Final[dict[str, Type]] = {"kind": TEXT, "apiVersion": TEXT, "metadata": always(METADATA)}
ROLLING_UPDATE: Final = Struct({"partition": INTEGER_SET, "maxUnavailable": PORT, "maxSurge": PORT})
STRATEGY: Final = always(Struct({"type": TEXT, "rollingUpdate": ROLLING_UPDATE}))
ROLLBACK: Final = Struct({"revision": INTEGER})


class Kind(NamedTuple):
    """A kind of workload."""

    struct: Struct
    #: Fields that lead to the object with the pod's metadata, and to the one with its spec.
    metadata: tuple[str, ...]
    spec: tuple[str, ...]


def _templated(struct: Struct) -> Kind:
    return Kind(struct, ("spec", "template", "metadata"), ("spec", "template", "spec"))


DEPLOYMENT: Final = fields(
    HEAD,
    spec=always(
        Struct(
            {
                "replicas": INTEGER_SET,
                "selector": LABEL_SELECTOR,
                "template": always(TEMPLATE),
                "strategy": STRATEGY,
                "minReadySeconds": INTEGER,
                "revisionHistoryLimit": INTEGER_SET,
                "paused": BOOLEAN,
                "rollbackTo": ROLLBACK,
                "progressDeadlineSeconds": INTEGER_SET,
            }
        )
    ),
    status=status(),
)
REPLICA_SET: Final = fields(
    HEAD,
    spec=always(
        Struct(
            {
                "replicas": INTEGER_SET,
                "minReadySeconds": INTEGER,
                "selector": LABEL_SELECTOR,
                "template": always(TEMPLATE),
            }
        )
    ),
    status=status("replicas"),
)
DAEMON_SET: Final = fields(
    HEAD,
    spec=always(
        Struct(
            {
                "selector": LABEL_SELECTOR,
                "template": always(TEMPLATE),
                "updateStrategy": STRATEGY,
                "minReadySeconds": INTEGER,
                "templateGeneration": INTEGER,
                "revisionHistoryLimit": INTEGER_SET,
            }
        )
    ),
    status=status(
        "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"
    ),
)
STATEFUL_SET: Final = fields(
    HEAD,
    spec=always(
        Struct(
            {
                "replicas": INTEGER_SET,
                "selector": LABEL_SELECTOR,
                "template": always(TEMPLATE),
                "volumeClaimTemplates": Items(CLAIM),
                "serviceName": TEXT,
                "podManagementPolicy": TEXT,
                "updateStrategy": STRATEGY,
                "revisionHistoryLimit": INTEGER_SET,
                "minReadySeconds": INTEGER,
                "persistentVolumeClaimRetentionPolicy": Struct(texts("whenDeleted", "whenScaled")),
                "ordinals": Struct({"start": INTEGER}),
            }
        )
    ),
    status=status("replicas", "availableReplicas"),
)
REPLICATION_CONTROLLER: Final = fields(
    HEAD,
    spec=always(
        Struct(
            {
                "replicas": INTEGER_SET,
                "minReadySeconds": INTEGER,
                "selector": TEXT_PAIRS,
                "template": TEMPLATE,
            }
        )
    ),
    status=status("replicas"),
)
JOB_SPEC: Final = Struct(
    {
        "parallelism": INTEGER_SET,
        "completions": INTEGER_SET,
        "activeDeadlineSeconds": INTEGER_SET,
        "podFailurePolicy": RAW,
        "successPolicy": RAW,
        "backoffLimit": INTEGER_SET,
        "backoffLimitPerIndex": INTEGER_SET,
        "maxFailedIndexes": INTEGER_SET,
        "selector": LABEL_SELECTOR,
        "manualSelector": BOOLEAN_SET,
        "template": always(TEMPLATE),
        "ttlSecondsAfterFinished": INTEGER_SET,
        "completionMode": TEXT_SET,
        "suspend": BOOLEAN_SET,
        "podReplacementPolicy": TEXT_SET,
        "managedBy": TEXT_SET,
    }
)
JOB: Final = fields(HEAD, spec=always(JOB_SPEC), status=status())
CRON_JOB: Final = fields(
    HEAD,
    spec=always(
        Struct(
            {
                "schedule": TEXT,
                "timeZone": TEXT_SET,
                "startingDeadlineSeconds": INTEGER_SET,
                "concurrencyPolicy": TEXT,
                "suspend": BOOLEAN_SET,
                "jobTemplate": always(
                    Struct({"metadata": always(METADATA), "spec": always(JOB_SPEC)})
                ),
                "successfulJobsHistoryLimit": INTEGER_SET,
                "failedJobsHistoryLimit": INTEGER_SET,
            }
        )
    ),
    status=status(),
)
#: Of OpenShift; what stands beside the pod is left as it is.
DEPLOYMENT_CONFIG: Final = fields(
    HEAD,
    spec=Struct(
        {
            "strategy": Struct(
                {"resources": always(Struct({}, is_open=True))}, "always", is_open=True
            ),
            "test": BOOLEAN_ALWAYS,
            "template": TEMPLATE,
        },
        "always",
        is_open=True,
    ),
    status=status(
        "latestVersion",
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "availableReplicas",
        "unavailableReplicas",
    ),
)
LIST: Final = fields(
    {"kind": TEXT, "apiVersion": TEXT, "metadata": always(LIST_METADATA)},
    items=Items(RAW, presence="always"),
)
APPS: Final = ("apps/v1", "apps/v1beta2", "apps/v1beta1", "extensions/v1beta1")
BATCH: Final = ("batch/v1", "batch/v1beta1")
CONFIGS: Final = ("apps.openshift.io/v1", "v1")

#: By kind: the versions of the API that have it, and what it looks like.
KINDS: Final[dict[str, tuple[tuple[str, ...], Kind]]] = {
    "Pod": (("v1",), Kind(POD, ("metadata",), ("spec",))),
    "ReplicationController": (("v1",), _templated(REPLICATION_CONTROLLER)),
    "Deployment": (APPS, _templated(DEPLOYMENT)),
    "ReplicaSet": (APPS, _templated(REPLICA_SET)),
    "DaemonSet": (APPS, _templated(DAEMON_SET)),
    "StatefulSet": (APPS, _templated(STATEFUL_SET)),
    "Job": (BATCH, _templated(JOB)),
    # Labels and annotations stand on the job's template: a quirk that is kept.
    "CronJob": (
        BATCH,
        Kind(
            CRON_JOB,
            ("spec", "jobTemplate", "metadata"),
            ("spec", "jobTemplate", "spec", "template", "spec"),
        ),
    ),
    "DeploymentConfig": (CONFIGS, _templated(DEPLOYMENT_CONFIG)),
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
