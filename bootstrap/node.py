"""Who this proxy says it is: id, cluster, locality and metadata of its Envoy.

Source: bootstrap.md section 4.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from bootstrap.addresses import (
    IPV4,
    IPV6,
    canonical_ip,
    ip_mode,
    is_reachable,
    is_ready,
    split_host_port,
)
from bootstrap.config import ProxyConfig
from bootstrap.document import Document, parse_object
from bootstrap.downward import parse_downward
from bootstrap.errors import BootstrapError
from bootstrap.options import FALSE, TRUE, Options, read_options

__all__ = ["Node", "NodeInputs", "build_node", "ip_mode", "node_addresses", "parse_downward"]


META: Final = "ISTIO_META_"
METAJSON: Final = "ISTIO_METAJSON_"
EXCLUDE_ANNOTATION: Final = "traffic.sidecar.istio.io/excludeInterfaces"
LOCALITY_LABEL: Final = "istio-locality"
LOCALITY_LABELS: Final = ("topology.istio.io/locality", LOCALITY_LABEL)
#: Changes with every roll-out, so nothing may depend on it.
HASH_LABEL: Final = "pod-template-hash"
DEFAULT_CLUSTER: Final = "istio-proxy"
#: Which label names the application, first wins; the canonical order is another one.
APP_LABELS: Final = ("app", "app.kubernetes.io/name", "service.istio.io/canonical-name")
CANONICAL_LABELS: Final = tuple(reversed(APP_LABELS))

#: Typed keys that the environment sets as they are. Source: bootstrap.md section 4.4.
TEXT_KEYS: Final = (
    "ISTIO_REVISION", "NODE_NAME", "WORKLOAD_NAME", "OWNER", "INTERCEPTION_MODE", "MESH_ID",
    "CLUSTER_ID", "NETWORK", "APP_CONTAINERS", "ISTIO_PROXY_SHA", "REQUESTED_NETWORK_VIEW",
    "TLS_SERVER_CERT_CHAIN", "TLS_SERVER_KEY", "TLS_SERVER_ROOT_CERT", "TLS_CLIENT_CERT_CHAIN",
    "TLS_CLIENT_KEY", "TLS_CLIENT_ROOT_CERT", "BASE", "IDLE_TIMEOUT", "HTTP10",
    "HTTP_PROXY_PORT", "GENERATOR", "AUTO_REGISTER_GROUP", "WORKLOAD_ENTRY", "UNPRIVILEGED_POD",
    "CLOUDRUN_ADDR", "DNS_PROXY_ADDR", "ISTIO_VERSION",
)  # fmt: skip
#: Typed keys that print as "true", or only as they were given.
SWITCH_KEYS: Final = (
    "ENABLE_HBONE", "DISABLE_HBONE_SEND", "DNS_CAPTURE", "DNS_AUTO_ALLOCATE",
    "ENABLE_SELF_DISCOVERY", "INBOUND_LISTENER_EXACT_BALANCE", "OUTBOUND_LISTENER_EXACT_BALANCE",
)  # fmt: skip


class NodeInputs(NamedTuple):
    """What the node is made of."""

    #: 'sidecar', 'router', 'waypoint', 'ztunnel' or 'agentgateway'.
    proxy_type: str
    #: DNS suffix; '' is <POD_NAMESPACE>.svc.cluster.local.
    domain: str
    environ: Mapping[str, str]
    #: The pod's own one first, see node_addresses.
    addresses: Sequence[str]
    proxy_config: ProxyConfig
    #: Texts of the downward API's files, None where there is none.
    labels_text: str | None = None
    annotations_text: str | None = None
    #: The release whose data plane this agent implements.
    version: str = "unknown"
    outlier_log_path: str = ""
    sts_port: int = 0
    #: What cloud detection found: metadata, region/zone/sub_zone, labels of a virtual machine.
    platform: Mapping[str, str] = {}
    platform_locality: Mapping[str, str] = {}
    instance_labels: Mapping[str, str] = {}
    #: A healthy socket for gateway credentials exists.
    credential_socket: bool = False
    #: Identity comes from an external SDS server; the agent's own one serves only files.
    files_only_sds: bool = False
    workload_socket_file: str = "socket"


class Node(NamedTuple):
    """Envoy's node."""

    id: str
    cluster: str
    #: The non-empty ones of region, zone and sub_zone.
    locality: Mapping[str, str]
    metadata: Mapping[str, object]
    #: The keys of metadata that have a type of their own: a gRPC client gets only these.
    typed_keys: frozenset[str]
    #: Without duplicates, the pod's own one first.
    addresses: tuple[str, ...]

    def typed_metadata(self) -> dict[str, object]:
        """Return the metadata whose types are certain."""
        return {key: self.metadata[key] for key in self.typed_keys}


def node_addresses(
    instance_ip: str,
    interface_addresses: Sequence[tuple[str, str]],
    *,
    excluded_interfaces: Collection[str] = (),
) -> tuple[str, ...]:
    """Return the pod's addresses, its own one first.

    Args:
        instance_ip: INSTANCE_IP; ignored unless it is an address.
        interface_addresses: interface name and address text of everything that is up and not a
            loopback interface, in the kernel's order.
        excluded_interfaces: names whose addresses do not count.

    Source: bootstrap.md section 4.2.
    """
    own = canonical_ip(instance_ip)
    # Nearly every interface has a link-local address: not worth the import that parsing costs.
    found = [
        (name, "" if address.startswith("fe80:") else canonical_ip(address))
        for name, address in interface_addresses
    ]
    usable = [(name, address) for name, address in found if address and is_reachable(address)]
    if not network_is_ready(interface_addresses) or not usable:
        usable = [("lo", IPV4.localhost), ("lo", IPV6.localhost)]
    excluded = {address for name, address in usable if name in excluded_interfaces} | {own}
    others = [address for _, address in usable if address not in excluded]
    return (own, *others) if own else tuple(others)


def network_is_ready(interface_addresses: Sequence[tuple[str, str]]) -> bool:
    """Return whether every interface has got its address; until then it is worth a retry."""
    return all(is_ready(address) for _, address in interface_addresses)


def excluded_interfaces(
    annotations: Mapping[str, str], known: Collection[str]
) -> tuple[frozenset[str], list[str]]:
    """Return the interfaces an annotation excludes, and warnings about unknown ones."""
    listed = [name.strip() for name in annotations.get(EXCLUDE_ANNOTATION, "").split(",")]
    names = frozenset(filter(None, listed))
    return names, [
        f"annotation {EXCLUDE_ANNOTATION}: expected an interface of this pod, found {name!r}"
        for name in sorted(names - set(known))
    ]


def build_node(inputs: NodeInputs) -> tuple[Node, list[str]]:
    """Return the node, and warnings about what was left out or kept as it is.

    Raises:
        BootstrapError: the control plane's address is unusable.
    """
    warnings: list[str] = []
    options, _ = read_options(inputs.environ)  # whoever uses the options reports their warnings
    untyped, given_labels = _untyped(inputs, warnings)
    labels, static_labels = _labels(inputs, given_labels, warnings)
    locality = _locality(labels) or {
        key: inputs.platform_locality[key]
        for key in ("region", "zone", "sub_zone")
        if inputs.platform_locality.get(key)
    }
    annotations: dict[str, str] = {}
    if inputs.annotations_text is not None:
        annotations, trouble = parse_downward(inputs.annotations_text, name="annotations")
        warnings += trouble
    typed = _typed(inputs, options, untyped, warnings)
    typed.update(LABELS=labels, STATIC_LABELS=static_labels, ANNOTATIONS=annotations)
    typed = {key: value for key, value in typed.items() if value}
    environ = inputs.environ
    namespace = environ.get("POD_NAMESPACE", "")
    address = inputs.addresses[0] if inputs.addresses else ""
    domain = inputs.domain or f"{namespace}.svc.cluster.local"
    node = Node(
        id=f"{inputs.proxy_type}~{address}~{environ.get('POD_NAME', '')}.{namespace}~{domain}",
        cluster=_cluster(inputs.proxy_config, typed, labels),
        locality=locality,
        metadata={**untyped, **typed},
        typed_keys=frozenset(typed),
        addresses=tuple(dict.fromkeys(inputs.addresses)),
    )
    return node, warnings


def _untyped(inputs: NodeInputs, warnings: list[str]) -> tuple[Document, Document]:
    """Return the metadata that users and the injection gave, and the labels among it."""
    environ = inputs.environ
    untyped: Document = {
        name.removeprefix(META): value
        for values in (inputs.proxy_config.proxy_metadata, environ)
        for name, value in values.items()
        if name.startswith(META)
    }
    labels: Document = {}
    for name in environ:
        if name.startswith(METAJSON):
            members = _members(name, environ[name], warnings)
            untyped.update(members)
            labels = members if name == f"{METAJSON}LABELS" else labels
    if environ.get("DNS_PROXY_ADDR"):
        untyped["DNS_PROXY_ADDR"] = environ["DNS_PROXY_ADDR"]
    if inputs.credential_socket:
        untyped["credential"] = "true"
    if inputs.files_only_sds:
        untyped["file-credential"] = "true"
    return untyped, labels


def _members(name: str, text: str, warnings: list[str]) -> Document:
    try:
        return parse_object(text)
    except ValueError as error:
        warnings.append(f"{name}: {error}; it is ignored")
        return {}


def _labels(
    inputs: NodeInputs, given: Document, warnings: list[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return all labels and the static ones; without a labels file both are one."""
    static: dict[str, str] = {}
    for key, value in given.items():
        if isinstance(value, str):
            static[key] = value
        else:
            warnings.append(f"{METAJSON}LABELS: label {key!r} is no text; it is ignored")
    if "KUBERNETES_SERVICE_HOST" not in inputs.environ:
        static.update(inputs.instance_labels)
    labels = static
    if inputs.labels_text is not None:
        from_file, trouble = parse_downward(inputs.labels_text, name="labels")
        warnings += trouble
        labels = {**static, **from_file}
    labels.pop(HASH_LABEL, None)
    return labels, static


def _locality(labels: dict[str, str]) -> dict[str, str]:
    """Return the locality the labels name, and write it to them the way istiod reads it."""
    text = next((labels[name] for name in LOCALITY_LABELS if labels.get(name)), "")
    if not text:
        return {}
    if "/" not in text:
        text = text.replace(".", "/")  # a label value may not hold a slash
    labels[LOCALITY_LABEL] = text
    parts = zip(("region", "zone", "sub_zone"), text.split("/"), strict=False)
    return {name: part for name, part in parts if part}


def _typed(
    inputs: NodeInputs, options: Options, untyped: Document, warnings: list[str]
) -> Document:
    """Return the keys with a type of their own; what does not fit its type stays untyped."""
    typed: Document = {}
    for key in TEXT_KEYS:
        value = untyped.get(key, "")
        if isinstance(value, str):
            typed[key] = value
        else:
            typed[key] = ""
            warnings.append(f"metadata {key}: expected text; it is passed on as it is")
    for key in SWITCH_KEYS:
        if _is_on(key, untyped.get(key, "false"), warnings):
            typed[key] = "true"
    typed["POD_PORTS"] = _pod_ports(untyped.get("POD_PORTS"), warnings)
    environ, config = inputs.environ, inputs.proxy_config
    discovery = options.peer_metadata_discovery
    has_discovery = "ENABLE_HBONE" in typed if discovery is None else discovery
    ports = {
        "ENVOY_STATUS_PORT": options.status_port,
        "ENVOY_PROMETHEUS_PORT": options.prometheus_port,
        "ENVOY_SECURE_METRICS_PORT": options.secure_metrics_port,
        "ENVOY_SECURE_MERGED_METRICS_PORT": options.secure_merged_metrics_port,
    }
    typed.update({key: port for key, port in ports.items() if port})
    typed.update(
        PROXY_CONFIG=config.document,
        ISTIO_VERSION=typed["ISTIO_VERSION"] or inputs.version,
        INSTANCE_IPS=",".join(dict.fromkeys(inputs.addresses)),
        NAME=environ.get("POD_NAME"),
        NAMESPACE=environ.get("POD_NAMESPACE"),
        SERVICE_ACCOUNT=environ.get("SERVICE_ACCOUNT"),
        METADATA_DISCOVERY="true" if has_discovery else "false",
        EXIT_ON_ZERO_ACTIVE_CONNECTIONS=options.exit_on_zero_active_connections and "true",
        ENVOY_SKIP_DEPRECATED_LOGS=options.skip_deprecated_logs and "true",
        STS_PORT=inputs.sts_port and str(inputs.sts_port),
        PILOT_SAN=_pilot_san(config),
        OUTLIER_LOG_PATH=inputs.outlier_log_path,
        WORKLOAD_IDENTITY_SOCKET_FILE=inputs.workload_socket_file,
        PLATFORM_METADATA=dict(inputs.platform),
    )
    return {key: value for key, value in typed.items() if value}


def _is_on(key: str, value: object, warnings: list[str]) -> bool:
    text = str(value).lower() if isinstance(value, bool) else value
    if text not in TRUE and text not in FALSE:
        warnings.append(
            f"metadata {key}={value!r}: expected 'true' or 'false'; it is passed on as it is"
        )
    return text in TRUE


def _pod_ports(value: object, warnings: list[str]) -> str:
    """Return the container ports as the control plane reads them, '' where they are unusable."""
    if value is None:
        return ""
    try:
        ports = json.loads(value) if isinstance(value, str) else None
        compact = [_pod_port(port) for port in ports] if isinstance(ports, list) else None
    except (ValueError, RecursionError):
        compact = None
    if compact is None:
        warnings.append(
            'metadata POD_PORTS: expected JSON such as [{"containerPort":80}];'
            " it is passed on as it is"
        )
    return json.dumps(compact, separators=(",", ":")) if compact else ""


def _pod_port(port: object) -> Document:
    members = port if isinstance(port, dict) else {}
    name, protocol = members.get("name", ""), members.get("protocol", "")
    number = members.get("containerPort")
    if not isinstance(name, str) or not isinstance(protocol, str) or type(number) is not int:
        raise ValueError("expected containerPort, and text as name and protocol")
    return {
        **({"name": name} if name else {}),
        "containerPort": number,
        "protocol": protocol,
    }


def _pilot_san(config: ProxyConfig) -> list[str]:
    """Return the names that the control plane's certificates must hold; none without TLS.

    Source: bootstrap.md section 4.4 and section 8, defect 38.
    """
    if not config.control_plane_tls:
        return []
    addresses = [part.strip() for part in config.discovery_address.split(",") if part.strip()]
    try:
        hosts = [split_host_port(address)[0] for address in addresses or [""]]
    except ValueError as error:
        problem = f"discoveryAddress={config.discovery_address!r}: {error}"
        raise BootstrapError([problem]) from None
    names = ("istiod.istio-system.svc" if host == "localhost" else host for host in hosts)
    return list(dict.fromkeys(names))


def _cluster(config: ProxyConfig, typed: Document, labels: Mapping[str, str]) -> str:
    """Return node.cluster, which names this workload in traces. Source: section 4.6."""
    scheme = config.tracing_service_name
    if config.service_cluster or not scheme.startswith("CANONICAL"):
        return _default_cluster(config.service_cluster, typed, labels)
    workload = typed.get("WORKLOAD_NAME") or DEFAULT_CLUSTER
    name = _first(CANONICAL_LABELS, labels) or str(workload)
    namespace = typed.get("NAMESPACE")
    if scheme == "CANONICAL_NAME_AND_NAMESPACE" and namespace:
        return f"{name}.{namespace}"
    return _default_cluster(name, typed, labels)


def _default_cluster(name: str, typed: Document, labels: Mapping[str, str]) -> str:
    if name and name != DEFAULT_CLUSTER:
        return name
    namespace = typed.get("NAMESPACE", "")
    workload = _first(APP_LABELS, labels) or typed.get("WORKLOAD_NAME")
    if not workload and not namespace:
        return DEFAULT_CLUSTER
    return f"{workload or DEFAULT_CLUSTER}.{namespace}"


def _first(names: Sequence[str], labels: Mapping[str, str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")
