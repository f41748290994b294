"""The mesh configuration, as far as injection reads it, and the proxy's effective configuration.

Source: status-lifecycle.md sections 11.3 and 11.9; bootstrap.md section 3.3.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from agent.inject.api.types import Object
from agent.inject.text import compact_json
from agent.inject.values import Values
from bootstrap.config import CONFIG_ANNOTATION, DEFAULTS
from bootstrap.decode import decode_fields
from bootstrap.document import Document, parse
from bootstrap.errors import BootstrapError
from bootstrap.merge import merge, overlay_onto
from bootstrap.schema import CLUSTER_NAME, PROXY_CONFIG

TRUST_DOMAIN: Final = "cluster.local"
#: Fields that PROXY_CONFIG leaves out at any value that users cannot tell from the default.
MAPS: Final = ("proxyMetadata", "runtimeValues")
ENRICHED: Final = "OTEL_SEMANTIC_CONVENTIONS"


class ProxyConfigResource(NamedTuple):
    """A ProxyConfig resource of the cluster."""

    namespace: str
    #: Labels of the pods that it is for; empty: all of its namespace.
    match_labels: Mapping[str, str]
    #: Its fields as those of a proxy configuration.
    overlay: Document


class Mesh(NamedTuple):
    """The mesh configuration."""

    #: Built-in values and the mesh's own `defaultConfig` over them, zeros left out.
    default_config: Mapping[str, object]
    trust_domain: str
    root_namespace: str
    proxy_listen_port: int
    proxy_inbound_listen_port: int
    prometheus_merge: bool
    #: Inbound traffic that no listener wants goes to localhost.
    inbound_localhost: bool
    #: A tracing provider asks for OpenTelemetry's own names of services.
    otel_enrichment: bool
    resources: Sequence[ProxyConfigResource] = ()

    @property
    def status_port(self) -> int:
        """Return the port of the agent's status server; 0 for none."""
        return cast("int", self.default_config.get("statusPort", 0))


def parse_mesh(text: str, values: Values, *, source: str) -> tuple[Mesh, list[str]]:
    """Return the mesh configuration, and a line for each problem.

    Args:
        text: YAML; '' for what the chart would write with the values.
        values: say where the control plane is if the text is empty.
        source: how messages call the text.
    """
    if not text.strip():
        text = json.dumps({"defaultConfig": {"discoveryAddress": discovery_address(values)}})
    config, problems = merge(
        DEFAULTS, {source: text}, mesh_config=source, service_cluster="istio-proxy", warnings=[]
    )
    try:
        document = parse(text)
    except ValueError:  # merging has said so
        document = None
    document = document if isinstance(document, dict) else {}
    read = _Members(document, source, problems)
    mesh = Mesh(
        default_config=config,
        trust_domain=read.text("trustDomain", TRUST_DOMAIN),
        root_namespace=read.text("rootNamespace", values.istio_namespace),
        proxy_listen_port=read.tcp_port("proxyListenPort", 15001),
        proxy_inbound_listen_port=read.tcp_port("proxyInboundListenPort", 15006),
        prometheus_merge=document.get("enablePrometheusMerge") is not False,
        inbound_localhost=_mode(document) in ("LOCALHOST", 1),
        otel_enrichment=any(_is_enriched(item) for item in read.items("extensionProviders")),
    )
    return mesh, problems


class _Members:
    """Reads members of the mesh configuration."""

    def __init__(self, document: Mapping[str, Any], source: str, problems: list[str]) -> None:
        self.document = document
        self.source = source
        self.problems = problems

    def text(self, name: str, default: str) -> str:
        value = self.document.get(name)
        if value is None or isinstance(value, str):
            return value or default
        self._note(name, value, "text; put it in quotes")
        return default

    def tcp_port(self, name: str, default: int) -> int:
        value = self.document.get(name, default)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_PORT:
            return value
        self._note(name, value, f"a port in 1..{MAX_PORT}")
        return default

    def items(self, name: str) -> list[object]:
        value = self.document.get(name)
        return value if isinstance(value, list) else []

    def _note(self, name: str, value: object, expected: str) -> None:
        self.problems.append(f"{self.source}: {name}={value!r}: expected {expected}")


def _mode(document: Mapping[str, Any]) -> object:
    policy = document.get("inboundTrafficPolicy")
    return policy.get("mode") if isinstance(policy, dict) else None


def _is_enriched(provider: object) -> bool:
    tracing = provider.get("opentelemetry") if isinstance(provider, dict) else None
    return isinstance(tracing, dict) and tracing.get("serviceAttributeEnrichment") == ENRICHED


def discovery_address(values: Values) -> str:
    """Return where the chart says that the control plane is."""
    revision = f"-{values.revision}" if values.revision else ""
    return f"istiod{revision}.{values.istio_namespace}.svc:15012"


def effective_proxy_config(
    mesh: Mesh, *, namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Document:
    """Return the configuration of a pod's proxy as canonical proto JSON, zeros left out.

    Low to high: the mesh's, ProxyConfig resources of the root namespace, of the pod's namespace,
    the pod's annotation, resources that select the pod.

    Raises:
        BootstrapError: the annotation cannot be used.
    """
    document = dict(mesh.default_config)
    for place in (mesh.root_namespace, namespace):
        for resource in mesh.resources:
            if resource.namespace == place and not resource.match_labels:
                overlay_onto(document, resource.overlay)
        if mesh.root_namespace == namespace:
            break
    text = annotations.get(CONFIG_ANNOTATION, "")
    if text.strip() not in ("", "{}"):
        document = _annotated(document, text)
    for resource in mesh.resources:
        if resource.namespace == namespace and _selects(resource.match_labels, labels):
            overlay_onto(document, resource.overlay)
    return document


def _annotated(document: Document, text: str) -> Document:
    merged, problems = merge(
        document,
        {f"annotation {CONFIG_ANNOTATION}": text},
        mesh_config="",
        service_cluster="istio-proxy",
        warnings=[],
    )
    if problems:
        raise BootstrapError(problems)
    return merged


def _selects(match_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return bool(match_labels) and match_labels.items() <= labels.items()


def proxy_config_json(document: Mapping[str, object]) -> str:
    """Return PROXY_CONFIG: one line of JSON without what is the default anyway.

    Source: status-lifecycle.md section 11.9.
    """
    written: Object = {}
    for name in PROXY_CONFIG:
        value = document.get(name)
        if value is None or value == DEFAULTS.get(name):
            continue
        if name in MAPS and isinstance(value, dict):
            value = dict(sorted(value.items()))
        written[name] = value
    return compact_json(written) + "\n"


def decode_resource(document: Mapping[str, Any]) -> ProxyConfigResource | None:
    """Return a ProxyConfig resource of the cluster, None for one that cannot be used."""
    metadata, spec = document.get("metadata"), document.get("spec")
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return None
    problems: list[str] = []
    renamed = {
        {"environmentVariables": "proxyMetadata"}.get(name, name): spec[name]
        for name in ("concurrency", "environmentVariables", "image")
        if spec.get(name) is not None
    }
    overlay = decode_fields(renamed, PROXY_CONFIG, (CLUSTER_NAME,), "spec", problems)
    selector = spec.get("selector")
    labels = selector.get("matchLabels") if isinstance(selector, dict) else None
    if problems or not isinstance(labels, dict | None):
        return None
    return ProxyConfigResource(str(metadata.get("namespace", "")), labels or {}, overlay)


MAX_PORT: Final = 65535
