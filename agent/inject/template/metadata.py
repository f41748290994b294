"""Labels and annotations of an injected pod.

Source: status-lifecycle.md section 11.6.
"""

import json
from typing import Final

from agent.inject.annotations import INTERCEPTION_MODE, TRAFFIC, VIRTUAL_INTERFACES
from agent.inject.template.capture import excluded_inbound_ports, is_given, traffic
from agent.inject.template.pod import TemplatePod

TLS_MODE: Final = "security.istio.io/tlsMode"
CANONICAL_NAME: Final = "service.istio.io/canonical-name"
CANONICAL_REVISION: Final = "service.istio.io/canonical-revision"
TUNNEL: Final = "networking.istio.io/tunnel"
REVISION: Final = "istio.io/rev"
DEFAULT_CONTAINERS: Final = (
    "kubectl.kubernetes.io/default-container",
    "kubectl.kubernetes.io/default-logs-container",
)
MULTUS: Final = "k8s.v1.cni.cncf.io/networks"
MULTUS_NETWORK: Final = "default/istio-cni"
LONGEST_LABEL: Final = 63


def canonical_labels(pod: TemplatePod, *, as_label: bool = False) -> dict[str, str]:
    """Return the service and revision that telemetry counts the pod to.

    Args:
        pod: whose.
        as_label: make the name one that a label may have.
    """
    name = _first(pod, CANONICAL_NAME, "app.kubernetes.io/name", "app") or pod.owner.name
    if as_label:
        name = name[:LONGEST_LABEL].strip("-_.")
    revision = _first(pod, CANONICAL_REVISION, "app.kubernetes.io/version", "version")
    return {CANONICAL_NAME: name, CANONICAL_REVISION: revision or "latest"}


def sidecar_labels(pod: TemplatePod) -> dict[str, str]:
    """Return the labels of a pod with a sidecar."""
    labels = {TLS_MODE: pod.labels.get(TLS_MODE) or "istio", **canonical_labels(pod, as_label=True)}
    if dict(pod.proxy_metadata).get("ISTIO_META_ENABLE_HBONE") == "true":
        labels[TUNNEL] = pod.labels.get(TUNNEL) or "http"
    return labels


def common_annotations(pod: TemplatePod) -> dict[str, str]:
    """Return the annotations that every template with a proxy adds."""
    found = {REVISION: pod.settings.revision or "default"}
    if pod.applications:
        found |= {
            name: pod.applications[0] for name in DEFAULT_CONTAINERS if name not in pod.annotations
        }
    return found


def capture_annotations(pod: TemplatePod) -> dict[str, str]:
    """Return what the CNI plugin reads in the place of the init container's arguments."""
    found = {
        INTERCEPTION_MODE: pod.interception_mode,
        f"{TRAFFIC}includeInboundPorts": traffic(pod, "includeInboundPorts"),
        f"{TRAFFIC}excludeInboundPorts": excluded_inbound_ports(pod),
    }
    for name in ("includeOutboundIPRanges", "excludeOutboundIPRanges"):
        if value := traffic(pod, name):
            found[f"{TRAFFIC}{name}"] = value
    for name in ("includeOutboundPorts", "excludeOutboundPorts"):
        if is_given(pod, name):
            found[f"{TRAFFIC}{name}"] = traffic(pod, name)
    for name in (
        f"{TRAFFIC}kubevirtInterfaces",
        f"{TRAFFIC}excludeInterfaces",
        VIRTUAL_INTERFACES,
    ):
        if value := pod.annotation(name, ""):
            found[name] = value
    if pod.values.cni_provider == "multus":
        found[MULTUS] = with_network(pod.annotations.get(MULTUS, ""))
    return found


def with_network(networks: str) -> str:
    """Return a pod's further networks with the mesh's own: a comma list, or a JSON list."""
    if not networks.strip():
        return MULTUS_NETWORK
    if networks.lstrip().startswith("["):
        return _with_json_network(networks)
    if MULTUS_NETWORK in map(str.strip, networks.split(",")):
        return networks
    return f"{networks}, {MULTUS_NETWORK}"


def _with_json_network(networks: str) -> str:
    try:
        items = json.loads(networks)
    except (ValueError, RecursionError):
        return networks  # nobody can add to what nobody can read
    if any(isinstance(item, dict) and item.get("name") == MULTUS_NETWORK for item in items):
        return networks
    head, _, tail = networks.rpartition("]")
    comma = ", " if items else ""
    return f'{head}{comma}{{"name": "{MULTUS_NETWORK}"}}]{tail}'


def _first(pod: TemplatePod, *names: str) -> str:
    return next((pod.labels[name] for name in names if pod.labels.get(name)), "")
