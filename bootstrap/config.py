"""The proxy's configuration: built-in values, mesh file, PROXY_CONFIG and annotations in one.

Later sources win field by field: a field present in one replaces what lower ones said, messages
and lists included; only `proxyMetadata` merges by key and some of `proxyHeaders` are inherited.

Source: bootstrap.md section 3.
"""

import posixpath
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from bootstrap.document import Document
from bootstrap.durations import SECOND, parse_duration
from bootstrap.errors import BootstrapError

#: Where the image keeps the reference's template, which this package stands in for.
DEFAULT_TEMPLATE: Final = "./var/lib/istio/envoy/envoy_bootstrap_tmpl.json"
CONFIG_ANNOTATION: Final = "proxy.istio.io/config"
DISCOVERY_ANNOTATION: Final = "sidecar.istio.io/discoveryAddress"
STATUS_ANNOTATION: Final = "status.sidecar.istio.io/port"

#: Source: bootstrap.md section 3.2.
DEFAULTS: Final[Mapping[str, object]] = {
    "configPath": "./etc/istio/proxy",
    "binaryPath": "/usr/local/bin/envoy",
    "serviceCluster": "istio-proxy",
    "drainDuration": "45s",
    "terminationDrainDuration": "5s",
    "proxyAdminPort": 15000,
    "controlPlaneAuthPolicy": "MUTUAL_TLS",
    "discoveryAddress": "istiod.istio-system.svc:15012",
    "statNameLength": 189,
    "statusPort": 15020,
}


class ProxyConfig(NamedTuple):
    """The effective configuration of this pod's proxy."""

    #: Directory of generated files; relative to the working directory, not cleaned.
    config_path: str
    binary_path: str
    #: '' where tracing_service_name is set, and the other way round.
    service_cluster: str
    tracing_service_name: str
    drain_duration_seconds: float
    termination_drain_duration_seconds: float
    #: Host and port of the control plane.
    discovery_address: str
    proxy_admin_port: int
    #: 0: the status server is off.
    status_port: int
    control_plane_tls: bool
    #: Envoy's workers: None lets Envoy decide, 0 means one for each CPU.
    concurrency: int | None
    #: Envoy's whole configuration, used as it is; '' to generate one.
    custom_config_file: str
    bootstrap_template_path: str
    #: As configured: its host may be a name, which Envoy does not take (client.py).
    statsd_udp_address: str
    file_flush_interval_seconds: float | None
    file_flush_min_size_kb: int
    proxy_metadata: Mapping[str, str]
    #: How the application of a virtual machine is checked; None where it is not.
    readiness_probe: Mapping[str, Any] | None
    #: All of it as canonical proto JSON: metadata PROXY_CONFIG, and the less used fields.
    document: Mapping[str, object]


class Sources(NamedTuple):
    """Where the configuration comes from, lowest first."""

    #: Text of the mesh configuration file, None where there is none.
    mesh_config: str | None
    #: Text of PROXY_CONFIG.
    environment: str
    #: The pod's annotations.
    annotations: Mapping[str, str]
    #: --concurrency; 0 is not given.
    concurrency_flag: int = 0
    #: ISTIO_CPU_LIMIT, whole cores; 0 is none.
    cpu_limit: int = 0
    #: --serviceCluster
    service_cluster_flag: str = "istio-proxy"
    #: --templateFile
    template_flag: str = ""
    #: Named in messages.
    mesh_config_path: str = "./etc/istio/config/mesh"
    #: CPUs of the machine, for a warning; 0 is unknown.
    machine_cpus: int = 0


def resolve_proxy_config(sources: Sources) -> tuple[ProxyConfig, list[str]]:
    """Return the effective configuration, and warnings.

    Raises:
        BootstrapError: with every problem: its source, the value and what was expected.
    """
    warnings: list[str] = []
    document = _merged(sources, warnings)
    _apply_concurrency(document, sources, warnings)
    if sources.template_flag and not document.get("customConfigFile"):
        document["proxyBootstrapTemplatePath"] = sources.template_flag
    _apply_annotations(document, sources.annotations, warnings)
    return from_document(document), warnings


def from_document(document: Mapping[str, object]) -> ProxyConfig:
    """Return the configuration that canonical proto JSON stands for, taken as valid."""
    text = cast("Mapping[str, str]", document)
    number = cast("Mapping[str, int]", document)
    flush = text.get("fileFlushInterval")
    return ProxyConfig(
        config_path=text.get("configPath", ""),
        binary_path=text.get("binaryPath", ""),
        service_cluster=text.get("serviceCluster", ""),
        tracing_service_name=text.get("tracingServiceName", ""),
        drain_duration_seconds=_seconds(text.get("drainDuration", "0")),
        termination_drain_duration_seconds=_seconds(text.get("terminationDrainDuration", "0")),
        discovery_address=text.get("discoveryAddress", ""),
        proxy_admin_port=number.get("proxyAdminPort", 0),
        status_port=number.get("statusPort", 0),
        control_plane_tls=text.get("controlPlaneAuthPolicy") == "MUTUAL_TLS",
        concurrency=number.get("concurrency"),
        custom_config_file=text.get("customConfigFile", ""),
        bootstrap_template_path=text.get("proxyBootstrapTemplatePath", ""),
        statsd_udp_address=text.get("statsdUdpAddress", ""),
        file_flush_interval_seconds=None if flush is None else _seconds(flush),
        file_flush_min_size_kb=number.get("fileFlushMinSizeKb", 0),
        proxy_metadata=cast("Mapping[str, str]", document.get("proxyMetadata", {})),
        readiness_probe=cast("Mapping[str, Any] | None", document.get("readinessProbe")),
        document=document,
    )


def with_statsd_address(config: ProxyConfig, address: str) -> ProxyConfig:
    """Return the configuration with another statsd address, '' for none."""
    document = {**config.document, "statsdUdpAddress": address}
    if not address:
        del document["statsdUdpAddress"]
    return config._replace(statsd_udp_address=address, document=document)


def clean_path(path: str) -> str:
    """Return the path without '.', '..' and doubled slashes, as Go's path.Clean."""
    cleaned = posixpath.normpath(path)
    return cleaned[1:] if cleaned.startswith("//") else cleaned


def template_path(config: ProxyConfig, environ: Mapping[str, str]) -> str:
    """Return the user's own bootstrap template, '' for the built-in one."""
    chosen = (
        environ.get("ISTIO_BOOTSTRAP")
        or config.custom_config_file
        or config.bootstrap_template_path
    )
    return "" if clean_path(chosen or DEFAULT_TEMPLATE) == clean_path(DEFAULT_TEMPLATE) else chosen


def bootstrap_path(config: ProxyConfig, template: str) -> str:
    """Return where the bootstrap is written, cleaned. Source: bootstrap.md section 5.1."""
    suffix = "yaml" if template.endswith((".yaml", ".yaml.tmpl")) else "json"
    return clean_path(f"{config.config_path}/envoy-rev.{suffix}")


def _merged(sources: Sources, warnings: list[str]) -> Document:
    """Return the valid merge of all documents; without any, the schema is not even imported."""
    overlays = {
        sources.mesh_config_path: sources.mesh_config or "",
        "PROXY_CONFIG": sources.environment,
        f"annotation {CONFIG_ANNOTATION}": sources.annotations.get(CONFIG_ANNOTATION, ""),
    }
    given = {name: text for name, text in overlays.items() if text.strip() not in ("", "{}")}
    if not given:
        return dict(DEFAULTS)
    from bootstrap.merge import merge  # noqa: PLC0415 - most pods configure nothing

    merged, problems = merge(
        DEFAULTS,
        given,
        mesh_config=sources.mesh_config_path,
        service_cluster=sources.service_cluster_flag,
        warnings=warnings,
    )
    if problems:
        raise BootstrapError(problems)
    return merged


def _apply_concurrency(document: Document, sources: Sources, warnings: list[str]) -> None:
    """Set the number of workers. Source: bootstrap.md section 3.4."""
    if sources.concurrency_flag:
        warnings.append(
            f"--concurrency={sources.concurrency_flag}: this flag is deprecated;"
            " set concurrency in the proxy configuration"
        )
        document["concurrency"] = sources.concurrency_flag
    elif sources.cpu_limit:
        document.setdefault("concurrency", sources.cpu_limit)
    if document.get("concurrency") == 0 and 0 < sources.cpu_limit < sources.machine_cpus:
        warnings.append(
            f"concurrency=0: Envoy starts {sources.machine_cpus} workers on a limit of"
            f" {sources.cpu_limit} CPUs; leave concurrency unset to follow the limit"
        )


def _apply_annotations(
    document: Document, annotations: Mapping[str, str], warnings: list[str]
) -> None:
    """Set what has an annotation of its own. Source: bootstrap.md section 3.5, defect 37."""
    address = annotations.get(DISCOVERY_ANNOTATION)
    if address:
        from bootstrap.addresses import check_address  # noqa: PLC0415 - a rare annotation

        try:
            check_address(address)
        except ValueError as error:
            name = f"annotation {DISCOVERY_ANNOTATION}"
            raise BootstrapError([f"{name}={address!r}: {error}"]) from None
        document["discoveryAddress"] = address
    port = annotations.get(STATUS_ANNOTATION)
    if port is not None:
        document["statusPort"] = _status_port(port, warnings)
        if not document["statusPort"]:
            del document["statusPort"]  # proto JSON leaves zeros out


def _status_port(text: str, warnings: list[str]) -> int:
    if text.isascii() and text.isdigit() and len(text) <= len("65535") and int(text) <= 65535:  # noqa: PLR2004 - the largest port
        return int(text)
    name = f"annotation {STATUS_ANNOTATION}"
    warnings.append(f"{name}={text!r}: expected a port in 0..65535; the status server is off")
    return 0


def _seconds(text: str) -> float:
    return parse_duration(text) / SECOND
