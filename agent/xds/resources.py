"""The resource types of xDS, and where a response of each goes.

Source: xds-identity-dns.md sections 2.7 and 7.2.
"""

import enum
from collections.abc import Collection
from typing import Final

PREFIX: Final = "type.googleapis.com/"
CLUSTER: Final = f"{PREFIX}envoy.config.cluster.v3.Cluster"
ENDPOINT: Final = f"{PREFIX}envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER: Final = f"{PREFIX}envoy.config.listener.v3.Listener"
ROUTE: Final = f"{PREFIX}envoy.config.route.v3.RouteConfiguration"
EXTENSION: Final = f"{PREFIX}envoy.config.core.v3.TypedExtensionConfig"
SECRET: Final = f"{PREFIX}envoy.extensions.transport_sockets.tls.v3.Secret"
NAME_TABLE: Final = f"{PREFIX}istio.networking.nds.v1.NameTable"
PROXY_CONFIG: Final = f"{PREFIX}istio.mesh.v1alpha1.ProxyConfig"
WORKLOAD: Final = f"{PREFIX}istio.workload.Workload"
#: What the agent says of the application; nobody answers. Section 2.8.
HEALTH: Final = f"{PREFIX}istio.v1.HealthInformation"
ENVOY_PREFIX: Final = f"{PREFIX}envoy."
#: As istioctl and istiod's metrics call them.
ABBREVIATIONS: Final = {
    CLUSTER: "cds",
    ENDPOINT: "eds",
    LISTENER: "lds",
    ROUTE: "rds",
    EXTENSION: "ecds",
    SECRET: "sds",
    NAME_TABLE: "nds",
    PROXY_CONFIG: "pcds",
}

#: Make before break: what is referred to is sent before what refers to it.
PUSH_ORDER: Final = (CLUSTER, ENDPOINT, LISTENER, ROUTE, EXTENSION, SECRET)


class Destination(enum.Enum):
    """Who a response is for."""

    ENVOY = "envoy"
    AGENT = "agent"
    NOBODY = "nobody"


def destination(type_url: str, consumed: Collection[str]) -> Destination:
    """Return who gets a response of this type; `consumed` are the types with a handler."""
    if type_url in consumed:
        return Destination.AGENT
    if type_url.startswith(ENVOY_PREFIX) or type_url == WORKLOAD:
        return Destination.ENVOY
    return Destination.NOBODY


def short_name(type_url: str) -> str:
    """Return the last part of a type URL, for people: `Listener`."""
    return type_url.rpartition(".")[2]


def abbreviation(type_url: str) -> str:
    """Return what a type is called in metrics and for people: `cds`, else its short name."""
    return ABBREVIATIONS.get(type_url) or short_name(type_url)
