"""Metadata of objects, and selectors of labels."""

from typing import Final

from agent.inject.api.types import (
    BOOLEAN_SET,
    INTEGER,
    INTEGER_SET,
    RAW,
    TEXT,
    TEXT_PAIRS,
    TEXTS,
    Items,
    Struct,
    texts,
)

OWNER_REFERENCE: Final = Struct(
    {
        **texts("apiVersion", "kind", "name", "uid"),
        "controller": BOOLEAN_SET,
        "blockOwnerDeletion": BOOLEAN_SET,
    }
)
METADATA: Final = Struct(
    {
        **texts("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"),
        "generation": INTEGER,
        "creationTimestamp": TEXT,
        "deletionTimestamp": TEXT,
        "deletionGracePeriodSeconds": INTEGER_SET,
        "labels": TEXT_PAIRS,
        "annotations": TEXT_PAIRS,
        "ownerReferences": Items(OWNER_REFERENCE, key="uid"),
        "finalizers": TEXTS,
        "managedFields": Items(RAW),
    }
)
LIST_METADATA: Final = Struct(
    {**texts("selfLink", "resourceVersion", "continue"), "remainingItemCount": INTEGER_SET}
)
REQUIREMENT: Final = Struct({"key": TEXT, "operator": TEXT, "values": TEXTS})
LABEL_SELECTOR: Final = Struct({"matchLabels": TEXT_PAIRS, "matchExpressions": Items(REQUIREMENT)})
