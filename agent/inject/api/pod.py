"""Pods and their templates."""

from typing import Final

from agent.inject.api.container import (
    CONTAINER,
    EPHEMERAL_CONTAINER,
    PROFILE,
    RESOURCES,
    SELINUX,
    WINDOWS,
)
from agent.inject.api.metadata import LABEL_SELECTOR, METADATA, REQUIREMENT
from agent.inject.api.types import (
    BOOLEAN,
    BOOLEAN_SET,
    INTEGER,
    INTEGER_SET,
    NAME_AND_VALUE,
    QUANTITIES,
    RAW,
    TEXT,
    TEXT_PAIRS,
    TEXT_SET,
    TEXTS,
    Items,
    Struct,
    always,
    status,
    texts,
)
from agent.inject.api.volumes import REFERENCE, VOLUME

NODE_TERM: Final = Struct(
    {"matchExpressions": Items(REQUIREMENT), "matchFields": Items(REQUIREMENT)}
)
POD_TERM: Final = Struct(
    {
        "labelSelector": LABEL_SELECTOR,
        "namespaces": TEXTS,
        "topologyKey": TEXT,
        "namespaceSelector": LABEL_SELECTOR,
        "matchLabelKeys": TEXTS,
        "mismatchLabelKeys": TEXTS,
    }
)
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
POD_AFFINITY: Final = Struct(
    {
        REQUIRED: Items(POD_TERM),
        PREFERRED: Items(Struct({"weight": INTEGER, "podAffinityTerm": always(POD_TERM)})),
    }
)
AFFINITY: Final = Struct(
    {
        "nodeAffinity": Struct(
            {
                REQUIRED: Struct({"nodeSelectorTerms": Items(NODE_TERM)}),
                PREFERRED: Items(Struct({"weight": INTEGER, "preference": always(NODE_TERM)})),
            }
        ),
        "podAffinity": POD_AFFINITY,
        "podAntiAffinity": POD_AFFINITY,
    }
)
POD_SECURITY_CONTEXT: Final = Struct(
    {
        "seLinuxOptions": SELINUX,
        "windowsOptions": WINDOWS,
        "runAsUser": INTEGER_SET,
        "runAsGroup": INTEGER_SET,
        "runAsNonRoot": BOOLEAN_SET,
        "supplementalGroups": Items(INTEGER),
        "supplementalGroupsPolicy": TEXT_SET,
        "fsGroup": INTEGER_SET,
        "sysctls": Items(NAME_AND_VALUE),
        "fsGroupChangePolicy": TEXT_SET,
        "seccompProfile": PROFILE,
        "appArmorProfile": PROFILE,
        "seLinuxChangePolicy": TEXT_SET,
    }
)
TOLERATION: Final = Struct(
    {**texts("key", "operator", "value", "effect"), "tolerationSeconds": INTEGER_SET}
)
SPREAD: Final = Struct(
    {
        "maxSkew": INTEGER,
        "topologyKey": TEXT,
        "whenUnsatisfiable": TEXT,
        "labelSelector": LABEL_SELECTOR,
        "minDomains": INTEGER_SET,
        "nodeAffinityPolicy": TEXT_SET,
        "nodeTaintsPolicy": TEXT_SET,
        "matchLabelKeys": TEXTS,
    }
)
DNS_CONFIG: Final = Struct(
    {
        "nameservers": TEXTS,
        "searches": TEXTS,
        "options": Items(Struct({"name": TEXT, "value": TEXT_SET})),
    }
)
POD_SPEC: Final = Struct(
    {
        "volumes": Items(VOLUME, key="name"),
        "initContainers": Items(CONTAINER, key="name"),
        "containers": Items(CONTAINER, key="name", presence="always"),
        "ephemeralContainers": Items(EPHEMERAL_CONTAINER, key="name"),
        "restartPolicy": TEXT,
        "terminationGracePeriodSeconds": INTEGER_SET,
        "activeDeadlineSeconds": INTEGER_SET,
        "dnsPolicy": TEXT,
        "nodeSelector": TEXT_PAIRS,
        "serviceAccountName": TEXT,
        "serviceAccount": TEXT,
        "automountServiceAccountToken": BOOLEAN_SET,
        "nodeName": TEXT,
        "hostNetwork": BOOLEAN,
        "hostPID": BOOLEAN,
        "hostIPC": BOOLEAN,
        "shareProcessNamespace": BOOLEAN_SET,
        "securityContext": POD_SECURITY_CONTEXT,
        "imagePullSecrets": Items(REFERENCE, key="name"),
        "hostname": TEXT,
        "subdomain": TEXT,
        "affinity": AFFINITY,
        "schedulerName": TEXT,
        "tolerations": Items(TOLERATION),
        "hostAliases": Items(Struct({"ip": TEXT, "hostnames": TEXTS}), key="ip"),
        "priorityClassName": TEXT,
        "priority": INTEGER_SET,
        "dnsConfig": DNS_CONFIG,
        "readinessGates": Items(Struct(texts("conditionType"))),
        "runtimeClassName": TEXT_SET,
        "enableServiceLinks": BOOLEAN_SET,
        "preemptionPolicy": TEXT_SET,
        "overhead": QUANTITIES,
        "topologySpreadConstraints": Items(SPREAD, key="topologyKey"),
        "setHostnameAsFQDN": BOOLEAN_SET,
        "os": Struct(texts("name")),
        "hostUsers": BOOLEAN_SET,
        "schedulingGates": Items(REFERENCE, key="name"),
        "resourceClaims": Items(
            Struct(
                {
                    "name": TEXT,
                    "source": RAW,  # of a version of the API that is gone
                    "resourceClaimName": TEXT_SET,
                    "resourceClaimTemplateName": TEXT_SET,
                }
            ),
            key="name",
        ),
        "resources": RESOURCES,
        "hostnameOverride": TEXT_SET,
        "workloadRef": Struct(texts("name", "podGroup", "podGroupReplicaKey")),
    }
)
POD: Final = Struct(
    {
        "kind": TEXT,
        "apiVersion": TEXT,
        "metadata": always(METADATA),
        "spec": always(POD_SPEC),
        "status": status(),
    }
)
TEMPLATE: Final = Struct({"metadata": always(METADATA), "spec": always(POD_SPEC)})
