"""What is kept of the cluster's objects.

Source: status-lifecycle.md sections 11.3, 11.5 and 11.16.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from agent.inject.api.types import Object
from agent.inject.mesh import decode_resource

OPENSHIFT: Final = "openshift.io/"


class Collection(NamedTuple):
    """A kind of objects that is followed."""

    name: str
    path: str
    #: Returns what is kept of an object, None for nothing.
    keep: Callable[[Mapping[str, Any]], Any]


class Event(NamedTuple):
    """A change that a watch tells of."""

    kind: str  #: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
    item: Object


def kubelet_version(node: Mapping[str, Any]) -> str:
    """Return the version of a node's kubelet; '' where it tells none, which counts as too old."""
    status = node.get("status")
    info = status.get("nodeInfo") if isinstance(status, dict) else None
    version = info.get("kubeletVersion") if isinstance(info, dict) else None
    return version if isinstance(version, str) else ""


def platform_annotations(namespace: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the annotations by which the platform assigns users, None without any."""
    annotations = (namespace.get("metadata") or {}).get("annotations") or {}
    return {
        name: value for name, value in annotations.items() if name.startswith(OPENSHIFT)
    } or None


def key_of(item: Mapping[str, Any]) -> str:
    """Return what tells an object from others of its kind."""
    metadata = item.get("metadata") or {}
    namespace, name = metadata.get("namespace"), metadata.get("name", "")
    return f"{namespace}/{name}" if namespace else str(name)


def version_of(item: Mapping[str, Any]) -> str:
    """Return the version from which a watch may go on."""
    return str((item.get("metadata") or {}).get("resourceVersion", ""))


NODES: Final = Collection("nodes", "/api/v1/nodes", kubelet_version)
NAMESPACES: Final = Collection("namespaces", "/api/v1/namespaces", platform_annotations)
PROXY_CONFIGS: Final = Collection(
    "proxyconfigs", "/apis/networking.istio.io/v1beta1/proxyconfigs", decode_resource
)
COLLECTIONS: Final = (NODES, NAMESPACES, PROXY_CONFIGS)
