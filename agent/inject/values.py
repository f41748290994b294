"""The values document: what the mesh's chart was installed with, as far as injection reads it.

A document is laid over the chart's own defaults, as Helm does it: objects merge, null takes a
default away, everything else replaces it.

Source: status-lifecycle.md sections 11.3 and 11.6 to 11.9.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NamedTuple, NewType, get_args, get_type_hints

from agent.inject.annotations import CHECKS, MAX_PORT, TRAFFIC, Check
from agent.inject.api.form import shown
from agent.inject.api.types import Object

TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
FALSE: Final = ("0", "f", "F", "FALSE", "false", "False", "")
#: Where the Dockerfile's image is after `docker build -t mesh-agent .`.
HUB: Final = "docker.io/library"
TAG: Final = "latest"
IMAGE: Final = "mesh-agent"
DEFAULTS: Final[Mapping[str, Any]] = {
    "revision": "",
    "global": {
        "hub": HUB,
        "tag": TAG,
        "istioNamespace": "istio-system",
        "pilotCertProvider": "istiod",
        "logging": {"level": "default:info"},
        "sds": {"token": {"aud": "istio-ca"}},
        "proxy": {
            "image": IMAGE,
            "clusterDomain": "cluster.local",
            "logLevel": "warning",
            "componentLogLevel": "misc:error",
            "includeIPRanges": "*",
            "includeInboundPorts": "*",
            "statusPort": 15020,
            "readinessInitialDelaySeconds": 0,
            "readinessPeriodSeconds": 15,
            "readinessFailureThreshold": 4,
            "startupProbe": {"enabled": True, "failureThreshold": 600},
            "resources": {
                "requests": {"cpu": "100m", "memory": "128Mi"},
                "limits": {"cpu": "2000m", "memory": "1024Mi"},
            },
        },
        "proxy_init": {"image": IMAGE},
    },
    "sidecarInjectorWebhook": {"rewriteAppHTTPProbe": True},
    "pilot": {"cni": {"enabled": False, "provider": "default"}},
}

Port = NewType("Port", int)
#: Values of global.proxy that mean what an annotation of a pod does.
CHECKED_AS: Final = {
    "includeIPRanges": f"{TRAFFIC}includeOutboundIPRanges",
    "excludeIPRanges": f"{TRAFFIC}excludeOutboundIPRanges",
    "includeInboundPorts": f"{TRAFFIC}includeInboundPorts",
    "excludeInboundPorts": f"{TRAFFIC}excludeInboundPorts",
    "includeOutboundPorts": f"{TRAFFIC}includeOutboundPorts",
    "excludeOutboundPorts": f"{TRAFFIC}excludeOutboundPorts",
}


class ProxyValues(NamedTuple):
    """global.proxy: the proxy's container, and what is captured."""

    image: Annotated[str, "global.proxy.image"]
    cluster_domain: Annotated[str, "global.proxy.clusterDomain"]
    log_level: Annotated[str, "global.proxy.logLevel"]
    component_log_level: Annotated[str, "global.proxy.componentLogLevel"]
    outlier_log_path: Annotated[str, "global.proxy.outlierLogPath"]
    include_ip_ranges: Annotated[str, "global.proxy.includeIPRanges"]
    exclude_ip_ranges: Annotated[str, "global.proxy.excludeIPRanges"]
    include_inbound_ports: Annotated[str, "global.proxy.includeInboundPorts"]
    exclude_inbound_ports: Annotated[str, "global.proxy.excludeInboundPorts"]
    include_outbound_ports: Annotated[str, "global.proxy.includeOutboundPorts"]
    exclude_outbound_ports: Annotated[str, "global.proxy.excludeOutboundPorts"]
    #: 0 for none.
    status_port: Annotated[Port, "global.proxy.statusPort"]
    readiness_initial_delay_seconds: Annotated[int, "global.proxy.readinessInitialDelaySeconds"]
    readiness_period_seconds: Annotated[int, "global.proxy.readinessPeriodSeconds"]
    readiness_failure_threshold: Annotated[int, "global.proxy.readinessFailureThreshold"]
    startup_probe: Annotated[bool, "global.proxy.startupProbe.enabled"]
    startup_failure_threshold: Annotated[int, "global.proxy.startupProbe.failureThreshold"]
    resources: Annotated[Object, "global.proxy.resources"]
    lifecycle: Annotated[Object, "global.proxy.lifecycle"]
    hold_application: Annotated[bool, "global.proxy.holdApplicationUntilProxyStarts"]
    privileged: Annotated[bool, "global.proxy.privileged"]
    cap_net_bind_service: Annotated[str, "global.proxy.capNetBindService"]
    seccomp_profile: Annotated[Object, "global.proxy.seccompProfile"]
    tracer: Annotated[str, "global.proxy.tracer"]


class Values(NamedTuple):
    """The values, with the chart's defaults where none are given; each with its path."""

    revision: Annotated[str, "revision"]
    hub: Annotated[str, "global.hub"]
    tag: Annotated[str, "global.tag"]
    variant: Annotated[str, "global.variant"]
    istio_namespace: Annotated[str, "global.istioNamespace"]
    ca_address: Annotated[str, "global.caAddress"]
    ca_name: Annotated[str, "global.caName"]
    pilot_cert_provider: Annotated[str, "global.pilotCertProvider"]
    trust_bundle_name: Annotated[str, "global.trustBundleName"]
    cluster_trust_bundles: Annotated[bool, "pilot.env.ENABLE_CLUSTER_TRUST_BUNDLE_API"]
    crl_config_map: Annotated[str, "pilot.crlConfigMapName"]
    cluster_name: Annotated[str, "global.multiCluster.clusterName"]
    network: Annotated[str, "global.network"]
    mesh_id: Annotated[str, "global.meshID"]
    trust_domain: Annotated[str, "global.trustDomain"]
    agent_log_level: Annotated[str, "global.logging.level"]
    log_as_json: Annotated[bool, "global.logAsJson"]
    image_pull_policy: Annotated[str, "global.imagePullPolicy"]
    image_pull_secrets: Annotated[tuple[str, ...], "global.imagePullSecrets"]
    mount_mtls_certs: Annotated[bool, "global.mountMtlsCerts"]
    token_audience: Annotated[str, "global.sds.token.aud"]
    sts_port: Annotated[int, "global.sts.servicePort"]
    native_nftables: Annotated[bool, "global.nativeNftables"]
    init_image: Annotated[str, "global.proxy_init.image"]
    force_apply_iptables: Annotated[bool, "global.proxy_init.forceApplyIptables"]
    cni_enabled: Annotated[bool, "pilot.cni.enabled"]
    cni_provider: Annotated[str, "pilot.cni.provider"]
    rewrite_probes: Annotated[bool, "sidecarInjectorWebhook.rewriteAppHTTPProbe"]
    gateway_security_context: Annotated[Object, "gateways.securityContext"]
    gateway_seccomp_profile: Annotated[Object, "gateways.seccompProfile"]
    compliance_policy: Annotated[str, "pilot.env.COMPLIANCE_POLICY"]
    proxy: ProxyValues


class _Reader:
    """Reads members by their path; `problems` gains a line for each that cannot be used."""

    def __init__(self, document: Mapping[str, object]) -> None:
        self.document = document
        self.problems: list[str] = []
        self.by_type: dict[Any, Callable[[str], object]] = {
            str: self.text,
            bool: self.flag,
            int: self.number,
            Port: self.port,
            Object: self.members,
            tuple[str, ...]: self.names,
        }

    def all_of(self, values: Any) -> Any:  # noqa: ANN401 - a class, and one of it
        """Return the values of a class, each from the path that its type is annotated with."""
        found = {}
        for name, hint in get_type_hints(values, include_extras=True).items():
            kind, *path = get_args(hint) or (hint,)
            found[name] = self.by_type[kind](*path) if path else self.all_of(kind)
        return values(**found)

    def at(self, path: str) -> object:
        found: object = self.document
        above = ""
        for name in path.split("."):
            if not isinstance(found, dict | None):
                self.note(above, found, "an object")
            found = found.get(name) if isinstance(found, dict) else None
            above = f"{above}.{name}" if above else name
        return found

    def check(self, path: str, check: Check) -> None:
        text = self.text(path)
        try:
            check(text.replace(" ", ""))
        except ValueError as error:
            self.problems.append(f"{path}={shown(text)}: {error}")

    def text(self, path: str) -> str:
        value = self.at(path)
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | int):
            return str(value)
        self.note(path, value, "text")
        return ""

    def flag(self, path: str) -> bool:
        text = self.text(path)
        if text not in TRUE and text not in FALSE:
            self.note(path, text, "true or false")
        return text in TRUE

    def number(self, path: str) -> int:
        text = self.text(path) or "0"
        if not text.isascii() or not text.isdigit() or len(text) > len(str(2**31)):
            self.note(path, text, "a whole number that is not negative")
            return 0
        return int(text)

    def port(self, path: str) -> int:
        number = self.number(path)
        if number > MAX_PORT:
            self.note(path, number, f"a port in 0..{MAX_PORT}")
        return number

    def members(self, path: str) -> Object:
        value = self.at(path)
        if value is None or isinstance(value, dict):
            return without_nulls(value or {})
        self.note(path, value, "an object")
        return {}

    def names(self, path: str) -> tuple[str, ...]:
        value = self.at(path)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.note(path, value, "a list of names")
        return ()

    def note(self, path: str, value: object, expected: str) -> None:
        self.problems.append(f"{path}={shown(value)}: expected {expected}")


def parse_values(document: Mapping[str, object]) -> tuple[Values, list[str]]:
    """Return the values that a document gives, and a line for each that cannot be used.

    Args:
        document: the values; those that it leaves out are the chart's defaults.
    """
    read = _Reader(overlay(DEFAULTS, document))
    values: Values = read.all_of(Values)
    for path, annotation in CHECKED_AS.items():
        read.check(f"global.proxy.{path}", CHECKS[annotation])
    if not values.istio_namespace:
        read.note("global.istioNamespace", "", "the namespace of the control plane")
    return values, list(dict.fromkeys(read.problems))


def overlay(lower: Mapping[str, object], upper: Mapping[str, object]) -> Object:
    """Return the upper document over the lower one: objects merge, null deletes."""
    merged: Object = dict(lower)
    for name, value in upper.items():
        below = merged.get(name)
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(below, dict):
            merged[name] = overlay(below, value)
        else:
            merged[name] = value
    return merged


def without_nulls(document: Mapping[str, object]) -> Object:
    """Return the object without null members, and without objects that are empty for that."""
    kept: Object = {}
    for name, value in document.items():
        if isinstance(value, dict):
            if inner := without_nulls(value):
                kept[name] = inner
            elif not value:
                kept[name] = {}
        elif value is not None:
            kept[name] = value
    return kept
