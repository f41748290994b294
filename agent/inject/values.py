"""The values document: what the mesh's chart was installed with, as far as injection reads it.

A document is laid over the chart's own defaults, as Helm does it: objects merge, null takes a
default away, everything else replaces it.

Source: status-lifecycle.md sections 11.3 and 11.6 to 11.9.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

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


class ProxyValues(NamedTuple):
    """global.proxy: the proxy's container, and what is captured."""

    image: str
    cluster_domain: str
    log_level: str
    component_log_level: str
    outlier_log_path: str
    include_ip_ranges: str
    exclude_ip_ranges: str
    include_inbound_ports: str
    exclude_inbound_ports: str
    include_outbound_ports: str
    exclude_outbound_ports: str
    #: '0' for none.
    status_port: str
    readiness_initial_delay_seconds: int
    readiness_period_seconds: int
    readiness_failure_threshold: int
    startup_probe: bool
    startup_failure_threshold: int
    resources: Object
    lifecycle: Object
    hold_application: bool
    privileged: bool
    cap_net_bind_service: str
    seccomp_profile: Object
    tracer: str


class Values(NamedTuple):
    """The values, with the chart's defaults where none are given."""

    revision: str
    hub: str
    tag: str
    variant: str
    istio_namespace: str
    ca_address: str
    ca_name: str
    pilot_cert_provider: str
    trust_bundle_name: str
    cluster_trust_bundles: bool
    crl_config_map: str
    cluster_name: str
    network: str
    mesh_id: str
    trust_domain: str
    agent_log_level: str
    log_as_json: bool
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    mount_mtls_certs: bool
    token_audience: str
    sts_port: int
    native_nftables: bool
    init_image: str
    force_apply_iptables: bool
    cni_enabled: bool
    cni_provider: str
    rewrite_probes: bool
    gateway_security_context: Object
    gateway_seccomp_profile: Object
    compliance_policy: str
    proxy: ProxyValues


class _Reader:
    """Reads members by their path; `problems` gains a line for each that cannot be used."""

    def __init__(self, document: Mapping[str, object]) -> None:
        self.document = document
        self.problems: list[str] = []

    def at(self, path: str) -> object:
        found: object = self.document
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def text(self, path: str) -> str:
        value = self.at(path)
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | int):
            return str(value)
        self._note(path, value, "text")
        return ""

    def flag(self, path: str) -> bool:
        text = self.text(path)
        if text not in TRUE and text not in FALSE:
            self._note(path, text, "true or false")
        return text in TRUE

    def number(self, path: str) -> int:
        text = self.text(path) or "0"
        if not text.isascii() or not text.isdigit() or len(text) > len(str(2**31)):
            self._note(path, text, "a whole number that is not negative")
            return 0
        return int(text)

    def members(self, path: str) -> Object:
        value = self.at(path)
        if value is None or isinstance(value, dict):
            return without_nulls(value or {})
        self._note(path, value, "an object")
        return {}

    def names(self, path: str) -> tuple[str, ...]:
        value = self.at(path)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self._note(path, value, "a list of names")
        return ()

    def _note(self, path: str, value: object, expected: str) -> None:
        self.problems.append(f"{path}={shown(value)}: expected {expected}")


def parse_values(document: Mapping[str, object]) -> tuple[Values, list[str]]:
    """Return the values that a document gives, and a line for each that cannot be used.

    Args:
        document: the values; those that it leaves out are the chart's defaults.
    """
    read = _Reader(overlay(DEFAULTS, document))
    init_image = read.text("global.proxy_init.image")
    values = Values(
        revision=read.text("revision"),
        hub=read.text("global.hub"),
        tag=read.text("global.tag"),
        variant=read.text("global.variant"),
        istio_namespace=read.text("global.istioNamespace"),
        ca_address=read.text("global.caAddress"),
        ca_name=read.text("global.caName"),
        pilot_cert_provider=read.text("global.pilotCertProvider"),
        trust_bundle_name=read.text("global.trustBundleName"),
        cluster_trust_bundles=read.flag("pilot.env.ENABLE_CLUSTER_TRUST_BUNDLE_API"),
        crl_config_map=read.text("pilot.crlConfigMapName"),
        cluster_name=read.text("global.multiCluster.clusterName"),
        network=read.text("global.network"),
        mesh_id=read.text("global.meshID"),
        trust_domain=read.text("global.trustDomain"),
        agent_log_level=read.text("global.logging.level"),
        log_as_json=read.flag("global.logAsJson"),
        image_pull_policy=read.text("global.imagePullPolicy"),
        image_pull_secrets=read.names("global.imagePullSecrets"),
        mount_mtls_certs=read.flag("global.mountMtlsCerts"),
        token_audience=read.text("global.sds.token.aud"),
        sts_port=read.number("global.sts.servicePort"),
        native_nftables=read.flag("global.nativeNftables"),
        init_image=init_image,
        force_apply_iptables=read.flag("global.proxy_init.forceApplyIptables"),
        cni_enabled=read.flag("pilot.cni.enabled"),
        cni_provider=read.text("pilot.cni.provider"),
        rewrite_probes=read.flag("sidecarInjectorWebhook.rewriteAppHTTPProbe"),
        gateway_security_context=read.members("gateways.securityContext"),
        gateway_seccomp_profile=read.members("gateways.seccompProfile"),
        compliance_policy=read.text("pilot.env.COMPLIANCE_POLICY"),
        proxy=_proxy_values(read),
    )
    return values, read.problems


def _proxy_values(read: _Reader) -> ProxyValues:
    return ProxyValues(
        image=read.text("global.proxy.image"),
        cluster_domain=read.text("global.proxy.clusterDomain"),
        log_level=read.text("global.proxy.logLevel"),
        component_log_level=read.text("global.proxy.componentLogLevel"),
        outlier_log_path=read.text("global.proxy.outlierLogPath"),
        include_ip_ranges=read.text("global.proxy.includeIPRanges"),
        exclude_ip_ranges=read.text("global.proxy.excludeIPRanges"),
        include_inbound_ports=read.text("global.proxy.includeInboundPorts"),
        exclude_inbound_ports=read.text("global.proxy.excludeInboundPorts"),
        include_outbound_ports=read.text("global.proxy.includeOutboundPorts"),
        exclude_outbound_ports=read.text("global.proxy.excludeOutboundPorts"),
        status_port=str(read.number("global.proxy.statusPort")),
        readiness_initial_delay_seconds=read.number("global.proxy.readinessInitialDelaySeconds"),
        readiness_period_seconds=read.number("global.proxy.readinessPeriodSeconds"),
        readiness_failure_threshold=read.number("global.proxy.readinessFailureThreshold"),
        startup_probe=read.flag("global.proxy.startupProbe.enabled"),
        startup_failure_threshold=read.number("global.proxy.startupProbe.failureThreshold"),
        resources=read.members("global.proxy.resources"),
        lifecycle=read.members("global.proxy.lifecycle"),
        hold_application=read.flag("global.proxy.holdApplicationUntilProxyStarts"),
        privileged=read.flag("global.proxy.privileged"),
        cap_net_bind_service=read.text("global.proxy.capNetBindService"),
        seccomp_profile=read.members("global.proxy.seccompProfile"),
        tracer=read.text("global.proxy.tracer"),
    )


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
