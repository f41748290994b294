"""The environment of the proxy's container: who the pod is, and how its agent is configured.

The order is the one in which injected pods have the variables.

Source: status-lifecycle.md sections 11.9 and 11.16.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from agent.inject.api.types import Object
from agent.inject.mesh import discovery_address, proxy_config_json
from agent.inject.template.pod import PROXY, TemplatePod
from agent.inject.text import compact_json

#: Name, and a value: text, or an object with where it comes from. None: there is no such variable.
Variable = tuple[str, str | Object | None]

BOOTSTRAP_OVERRIDE: Final = "sidecar.istio.io/bootstrapOverride"
OVERRIDE_FILE: Final = "/etc/istio/custom-bootstrap/custom_bootstrap.json"
WORKLOAD_NAME: Final = "service.istio.io/workload-name"
DATADOG: Final = "apm.datadoghq.com/env"
OTEL: Final = "resource.opentelemetry.io/"
FIPS: Final = "fips-140-3"
DEFAULT_CLUSTER: Final = "Kubernetes"
FIELDS: Final = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "INSTANCE_IP": "status.podIP",
    "SERVICE_ACCOUNT": "spec.serviceAccountName",
    "HOST_IP": "status.hostIP",
}
CPU_LIMIT: Final[Variable] = (
    "ISTIO_CPU_LIMIT",
    {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1"}},
)
MEMORY_LIMIT: Final[Variable] = (
    "GOMEMLIMIT",
    {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1"}},
)


def field(path: str) -> Object:
    """Return a value that is a field of the pod."""
    return {"fieldRef": {"fieldPath": path}}


def render(variables: Iterable[Variable]) -> list[Object]:
    """Return the variables as a container has them."""
    return [
        {"name": name, "value": value}
        if isinstance(value, str)
        else {"name": name, "valueFrom": value}
        for name, value in variables
        if value is not None
    ]


def sidecar_environment(pod: TemplatePod) -> list[Object]:
    """Return the environment of a sidecar."""
    legacy = "true" if pod.mesh.inbound_localhost else None
    return render(
        [
            ("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", legacy),
            *_identity(pod),
            CPU_LIMIT,
            *_configuration(pod),
            _applications(pod),
            MEMORY_LIMIT,
            *_compliance(pod),
            *_cluster(pod),
            ("ISTIO_META_INTERCEPTION_MODE", pod.interception_mode),
            _network(pod),
            ("ISTIO_META_WORKLOAD_NAME", pod.labels.get(WORKLOAD_NAME) or pod.owner.name or None),
            *_owner(pod),
            *_mesh(pod),
            *_datadog(pod),
            ("OTEL_RESOURCE_ATTRIBUTES", _otel_attributes(pod)),
            *pod.proxy_metadata,
        ]
    )


def gateway_environment(pod: TemplatePod) -> list[Object]:
    """Return the environment of a gateway."""
    return render(
        [
            *_identity(pod),
            CPU_LIMIT,
            *_configuration(pod),
            MEMORY_LIMIT,
            *_compliance(pod),
            _applications(pod),
            *_cluster(pod),
            ("ISTIO_META_INTERCEPTION_MODE", pod.configured_mode),
            _network(pod),
            ("ISTIO_META_WORKLOAD_NAME", pod.owner.name or None),
            *_owner(pod),
            *_mesh(pod),
            *pod.proxy_metadata,
        ]
    )


def grpc_environment(pod: TemplatePod) -> list[Object]:
    """Return the environment of an agent without Envoy."""
    legacy = "true" if pod.mesh.inbound_localhost else None
    return render(
        [
            ("ISTIO_META_GENERATOR", "grpc"),
            ("OUTPUT_CERTS", "/var/lib/istio/data"),
            ("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", legacy),
            *_identity(pod),
            *_configuration(pod),
            _applications(pod),
            *_cluster(pod),
            _network(pod),
            ("ISTIO_META_WORKLOAD_NAME", pod.owner.name or None),
            *_owner(pod, with_override=False),
            *_mesh(pod),
            *pod.proxy_metadata,
            ("ISTIO_META_DNS_CAPTURE", "false"),
            ("DISABLE_ENVOY", "true"),
        ]
    )


def _identity(pod: TemplatePod) -> list[Variable]:
    values = pod.values
    return [
        ("PILOT_CERT_PROVIDER", values.pilot_cert_provider),
        ("CA_ADDR", values.ca_address or discovery_address(values)),
        *((name, field(path)) for name, path in FIELDS.items()),
    ]


def _configuration(pod: TemplatePod) -> list[Variable]:
    return [
        ("PROXY_CONFIG", proxy_config_json(pod.proxy_config)),
        ("ISTIO_META_POD_PORTS", pod_ports(pod.spec.get("containers", ()))),
    ]


def pod_ports(containers: Iterable[Object]) -> str:
    """Return the ports that the containers declare, one on a line, as a JSON list."""
    ports = [port for container in containers for port in container.get("ports", ())]
    commas = ["", *[","] * len(ports)]
    lines = [f"    {comma}{compact_json(port)}" for comma, port in zip(commas, ports, strict=False)]
    return "\n".join(("[", *lines, "]"))


def _applications(pod: TemplatePod) -> Variable:
    return ("ISTIO_META_APP_CONTAINERS", ",".join(pod.applications))


def _compliance(pod: TemplatePod) -> list[Variable]:
    policy = pod.values.compliance_policy
    return [
        ("COMPLIANCE_POLICY", policy or None),
        ("GODEBUG", "fips140=only" if policy == FIPS else None),
    ]


def _cluster(pod: TemplatePod) -> list[Variable]:
    return [
        ("ISTIO_META_CLUSTER_ID", pod.values.cluster_name or DEFAULT_CLUSTER),
        ("ISTIO_META_NODE_NAME", field("spec.nodeName")),
    ]


def _network(pod: TemplatePod) -> Variable:
    return ("ISTIO_META_NETWORK", pod.values.network or None)


def _owner(pod: TemplatePod, *, with_override: bool = True) -> list[Variable]:
    owner = pod.owner
    kind = f"{owner.kind.lower()}s"
    place = f"kubernetes://apis/{owner.api_version}/namespaces/{owner.namespace or 'default'}"
    overridden = with_override and BOOTSTRAP_OVERRIDE in pod.annotations
    return [
        (
            "ISTIO_META_OWNER",
            f"{place}/{kind}/{owner.name}" if owner.name and owner.api_version else None,
        ),
        ("ISTIO_BOOTSTRAP_OVERRIDE", OVERRIDE_FILE if overridden else None),
    ]


def _mesh(pod: TemplatePod) -> list[Variable]:
    domain = pod.mesh.trust_domain or pod.values.trust_domain
    return [
        ("ISTIO_META_MESH_ID", pod.values.mesh_id or domain or None),
        ("TRUST_DOMAIN", domain or None),
    ]


def _datadog(pod: TemplatePod) -> list[Variable]:
    """Return the variables of the tracer's own annotation, a JSON object."""
    if pod.values.proxy.tracer != "datadog" or DATADOG not in pod.annotations:
        return []
    return [(name, _plain(value)) for name, value in sorted(json_annotation(pod, DATADOG).items())]


def json_annotation(pod: TemplatePod, name: str) -> dict[str, Any]:
    """Return the JSON object that an annotation holds, an empty one if there is none.

    Raises:
        ValueError: it holds something else.
    """
    try:
        value = json.loads(pod.annotations.get(name) or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"annotation {name}: expected a JSON object")  # noqa: TRY004 - the user's text
    return value


def _plain(value: object) -> str:
    return value if isinstance(value, str) else compact_json(value)


def _otel_attributes(pod: TemplatePod) -> str | None:
    """Return the service as OpenTelemetry names it, where a provider asks for that."""
    if not pod.mesh.otel_enrichment:
        return None
    attributes = {
        "service.namespace": pod.annotations.get(f"{OTEL}service.namespace") or pod.owner.namespace,
        "service.version": _otel_version(pod),
        "service.instance.id": pod.annotations.get(f"{OTEL}service.instance.id") or _instance(pod),
    }
    return ",".join(f"{name}={value}" for name, value in attributes.items() if value)


def _instance(pod: TemplatePod) -> str:
    first = next(iter(pod.applications), PROXY)
    return ".".join(filter(None, (pod.owner.namespace, "$(POD_NAME)", first)))


def _otel_version(pod: TemplatePod) -> str:
    given = pod.annotations.get(f"{OTEL}service.version") or pod.labels.get(
        "app.kubernetes.io/version"
    )
    containers = [item for item in pod.spec.get("containers", ()) if item.get("name") != PROXY]
    if given or len(containers) != 1:
        return given or ""
    image, _, digest = str(containers[0].get("image", "")).partition("@")
    tag = image.rpartition("/")[2].partition(":")[2]
    return "@".join(filter(None, (tag, digest)))
