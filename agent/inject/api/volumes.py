"""Volumes of a pod, and the claims that stateful sets make of them."""

from typing import Final

from agent.inject.api.container import FIELD_REF, RESOURCE_FIELD_REF
from agent.inject.api.metadata import LABEL_SELECTOR, METADATA
from agent.inject.api.types import (
    BOOLEAN,
    BOOLEAN_SET,
    INTEGER,
    INTEGER_SET,
    QUANTITIES,
    QUANTITY,
    TEXT,
    TEXT_PAIRS,
    TEXT_SET,
    TEXTS,
    Items,
    Struct,
    Type,
    always,
    fields,
    texts,
)

REFERENCE: Final = Struct(texts("name"))
SECRET_OF: Final = Struct(texts("name", "namespace"))
KEY_TO_PATH: Final = Struct({"key": TEXT, "path": TEXT, "mode": INTEGER_SET})
DOWNWARD_FILE: Final = Struct(
    {
        "path": TEXT,
        "fieldRef": FIELD_REF,
        "resourceFieldRef": RESOURCE_FIELD_REF,
        "mode": INTEGER_SET,
    }
)
PROJECTION: Final = Struct(
    {
        "secret": Struct({"name": TEXT, "items": Items(KEY_TO_PATH), "optional": BOOLEAN_SET}),
        "downwardAPI": Struct({"items": Items(DOWNWARD_FILE)}),
        "configMap": Struct({"name": TEXT, "items": Items(KEY_TO_PATH), "optional": BOOLEAN_SET}),
        "serviceAccountToken": Struct(
            {"audience": TEXT, "expirationSeconds": INTEGER_SET, "path": TEXT}
        ),
        "clusterTrustBundle": Struct(
            {
                "name": TEXT_SET,
                "signerName": TEXT_SET,
                "labelSelector": LABEL_SELECTOR,
                "optional": BOOLEAN_SET,
                "path": TEXT,
            }
        ),
        "podCertificate": fields(
            texts("signerName", "keyType"),
            maxExpirationSeconds=INTEGER_SET,
            credentialBundlePath=TEXT,
            keyPath=TEXT,
            certificateChainPath=TEXT,
            userAnnotations=TEXT_PAIRS,
        ),
    }
)
CLAIM_SPEC: Final = Struct(
    {
        "accessModes": TEXTS,
        "selector": LABEL_SELECTOR,
        "resources": always(Struct({"limits": QUANTITIES, "requests": QUANTITIES})),
        "volumeName": TEXT,
        "storageClassName": TEXT_SET,
        "volumeMode": TEXT_SET,
        "dataSource": Struct({"apiGroup": TEXT_SET, "kind": TEXT, "name": TEXT}),
        "dataSourceRef": Struct(
            {"apiGroup": TEXT_SET, "kind": TEXT, "name": TEXT, "namespace": TEXT_SET}
        ),
        "volumeAttributesClassName": TEXT_SET,
    }
)
CLAIM: Final = Struct(
    {
        "kind": TEXT,
        "apiVersion": TEXT,
        "metadata": always(METADATA),
        "spec": always(CLAIM_SPEC),
        "status": always(Struct({"phase": TEXT, "accessModes": TEXTS, "capacity": QUANTITIES})),
    }
)
CLAIM_TEMPLATE: Final = Struct({"metadata": always(METADATA), "spec": always(CLAIM_SPEC)})
MONITORED: Final[dict[str, Type]] = {
    "user": TEXT,
    "keyring": TEXT,
    "secretRef": REFERENCE,
    "readOnly": BOOLEAN,
}
#: What a volume can be, besides its name.
SOURCES: Final[dict[str, Type]] = {
    "hostPath": Struct({"path": TEXT, "type": TEXT_SET}),
    "emptyDir": Struct({"medium": TEXT, "sizeLimit": QUANTITY}),
    "gcePersistentDisk": fields(
        texts("pdName", "fsType"),
        partition=INTEGER,
        readOnly=BOOLEAN,
    ),
    "awsElasticBlockStore": fields(
        texts("volumeID", "fsType"),
        partition=INTEGER,
        readOnly=BOOLEAN,
    ),
    "gitRepo": Struct(texts("repository", "revision", "directory")),
    "secret": Struct(
        {
            "secretName": TEXT,
            "items": Items(KEY_TO_PATH),
            "defaultMode": INTEGER_SET,
            "optional": BOOLEAN_SET,
        }
    ),
    "nfs": fields(texts("server", "path"), readOnly=BOOLEAN),
    "iscsi": Struct(
        {
            "targetPortal": TEXT,
            "iqn": TEXT,
            "lun": INTEGER,
            "iscsiInterface": TEXT,
            "fsType": TEXT,
            "readOnly": BOOLEAN,
            "portals": TEXTS,
            "chapAuthDiscovery": BOOLEAN,
            "chapAuthSession": BOOLEAN,
            "secretRef": REFERENCE,
            "initiatorName": TEXT_SET,
        }
    ),
    "glusterfs": fields(texts("endpoints", "path"), readOnly=BOOLEAN),
    "persistentVolumeClaim": Struct({"claimName": TEXT, "readOnly": BOOLEAN}),
    "rbd": Struct({"monitors": TEXTS, "image": TEXT, "fsType": TEXT, "pool": TEXT, **MONITORED}),
    "flexVolume": Struct(
        {
            "driver": TEXT,
            "fsType": TEXT,
            "secretRef": REFERENCE,
            "readOnly": BOOLEAN,
            "options": TEXT_PAIRS,
        }
    ),
    "cinder": Struct(
        {"volumeID": TEXT, "fsType": TEXT, "readOnly": BOOLEAN, "secretRef": REFERENCE}
    ),
    "cephfs": Struct(
        {
            "monitors": TEXTS,
            "path": TEXT,
            "user": TEXT,
            "secretFile": TEXT,
            "secretRef": REFERENCE,
            "readOnly": BOOLEAN,
        }
    ),
    "flocker": Struct(texts("datasetName", "datasetUUID")),
    "downwardAPI": Struct({"items": Items(DOWNWARD_FILE), "defaultMode": INTEGER_SET}),
    "fc": Struct(
        {
            "targetWWNs": TEXTS,
            "lun": INTEGER_SET,
            "fsType": TEXT,
            "readOnly": BOOLEAN,
            "wwids": TEXTS,
        }
    ),
    "azureFile": fields(texts("secretName", "shareName"), readOnly=BOOLEAN),
    "configMap": Struct(
        {
            "name": TEXT,
            "items": Items(KEY_TO_PATH),
            "defaultMode": INTEGER_SET,
            "optional": BOOLEAN_SET,
        }
    ),
    "vsphereVolume": Struct(texts("volumePath", "fsType", "storagePolicyName", "storagePolicyID")),
    "quobyte": fields(
        texts("registry", "volume"), readOnly=BOOLEAN, user=TEXT, group=TEXT, tenant=TEXT
    ),
    "azureDisk": Struct(
        {
            "diskName": TEXT,
            "diskURI": TEXT,
            "cachingMode": TEXT_SET,
            "fsType": TEXT_SET,
            "readOnly": BOOLEAN_SET,
            "kind": TEXT_SET,
        }
    ),
    "photonPersistentDisk": Struct(texts("pdID", "fsType")),
    "projected": Struct({"sources": Items(PROJECTION), "defaultMode": INTEGER_SET}),
    "portworxVolume": fields(texts("volumeID", "fsType"), readOnly=BOOLEAN),
    "scaleIO": Struct(
        {
            "gateway": TEXT,
            "system": TEXT,
            "secretRef": REFERENCE,
            "sslEnabled": BOOLEAN,
            **texts("protectionDomain", "storagePool", "storageMode", "volumeName", "fsType"),
            "readOnly": BOOLEAN,
        }
    ),
    "storageos": Struct(
        {
            **texts("volumeName", "volumeNamespace", "fsType"),
            "readOnly": BOOLEAN,
            "secretRef": REFERENCE,
        }
    ),
    "csi": Struct(
        {
            "driver": TEXT,
            "readOnly": BOOLEAN_SET,
            "fsType": TEXT_SET,
            "volumeAttributes": TEXT_PAIRS,
            "nodePublishSecretRef": REFERENCE,
        }
    ),
    "ephemeral": Struct({"volumeClaimTemplate": CLAIM_TEMPLATE}),
    "image": Struct(texts("reference", "pullPolicy")),
}
VOLUME: Final = fields(texts("name"), SOURCES)
