"""The Settings tree: flags, environment and the pod's files as typed values, once, at the edge.

Every unusable value is found before anything starts, and all of them are reported together.

Source: bootstrap.md sections 1.4, 2 and 3; style.md section 4.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from agent.cgroup import Limits, parse_memory, workers
from agent.cloud.settings import CloudSettings, parse_cloud
from agent.credentials.settings import parse_token
from agent.dns.settings import DnsSettings, parse_dns
from agent.errors import SettingsError
from agent.identity.settings import IdentitySettings, parse_identity
from agent.lifecycle.command_line import EnvoySettings, split_log_level
from agent.lifecycle.drain import drain_target
from agent.lifecycle.plan import Plan, parse_plan
from agent.proxy_flags import PROXY_TYPES
from agent.reader import Reader, parse_bool, parse_count, parse_text
from agent.scopes import LogSettings, parse_log
from agent.status.settings import StatusSettings, parse_status
from agent.version import BUILD
from agent.wasm.settings import WasmSettings, parse_wasm
from agent.xds.settings import XdsSettings, parse_xds
from bootstrap.addresses import ip_mode, ip_version
from bootstrap.build import bootstrap_path, localhost, template_path
from bootstrap.config import ProxyConfig, Sources, resolve_proxy_config
from bootstrap.downward import parse_downward
from bootstrap.errors import BootstrapError
from bootstrap.node import NodeInputs, excluded_interfaces, node_addresses
from bootstrap.options import Options, read_options
from iptables.flags import Parsed

SIDECAR: Final = "sidecar"
#: Interception modes in which the kernel sends connections to Envoy.
CAPTURING: Final = ("", "REDIRECT", "TPROXY")
GRPC_BOOTSTRAP: Final = "etc/istio/proxy/grpc-bootstrap.json"
#: Who Envoy runs as where the agent is root only to listen on the port of DNS.
UNPRIVILEGED: Final = (1337, 1337)
FIPS_CIPHERS: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384"
)


class World(NamedTuple):
    """What the settings depend on beside flags and environment."""

    mesh_config: str | None  #: text of the mesh configuration file
    labels: str | None  #: text of the pod's labels file
    annotations: str | None  #: text of the pod's annotations file
    #: (interface name, address) of everything up and not loopback, in the kernel's order.
    interface_addresses: Sequence[tuple[str, str]]
    cpus: int
    limits: Limits = Limits()  #: of this container
    is_root: bool = False  #: whether the agent has uid 0
    resolv_conf: str = ""  #: text of the resolver's configuration, where it is needed


class GrpcSettings(NamedTuple):
    """The bootstrap of applications that speak xDS themselves."""

    path: str = ""  #: where it is written; '' for nowhere. GRPC_XDS_BOOTSTRAP.
    certificates: str = ""  #: directory of the workload's certificates. OUTPUT_CERTS.


class Settings(NamedTuple):
    """All of it; a subject is handed its branch, never the tree."""

    log: LogSettings
    cloud: CloudSettings
    node: NodeInputs
    options: Options  #: of the bootstrap
    memory_limit_bytes: int  #: Envoy stays below it; 0 for none
    custom_config: bool  #: Envoy starts from a file of the user's own
    template: str  #: the user's own, of the bootstrap; '' for ours
    override_path: str  #: merged by Envoy over its configuration. ISTIO_BOOTSTRAP_OVERRIDE.
    grpc: GrpcSettings
    envoy_enabled: bool  #: DISABLE_ENVOY
    envoy: EnvoySettings
    restarts: int  #: AGENT_ENVOY_RESTARTS
    #: Ports that Envoy and the agent will listen on, each with what for.
    ports: Mapping[int, str]
    has_ipv6: bool
    admin_host: str
    plan: Plan
    drain_target: str
    #: Ports of Envoy's own health and metrics listeners.
    own_listeners: tuple[int, ...]
    status: StatusSettings
    identity: IdentitySettings
    xds: XdsSettings
    dns: DnsSettings
    wasm: WasmSettings


def parse_settings(
    flags: Parsed, environ: Mapping[str, str], world: World
) -> tuple[Settings, list[str]]:
    """Return the tree and warnings.

    Raises:
        SettingsError: with one line for each unusable value.
    """
    read = Reader(environ)
    proxy_type = flags.positionals[0] if flags.positionals else SIDECAR
    if proxy_type not in PROXY_TYPES:
        read.errors.append(
            f"invalid proxy Type: {proxy_type}; expected one of {', '.join(PROXY_TYPES)}"
        )
    _check_identity(read)
    annotations = parse_downward(world.annotations or "")[0]
    config = _proxy_config(read, flags, world, annotations)
    template = "" if config.custom_config_file else template_path(config, environ)
    options, warnings = read_options(environ)
    read.warnings += warnings
    names = {name for name, _ in world.interface_addresses}
    excluded, warnings = excluded_interfaces(annotations, names)
    read.warnings += warnings
    addresses = node_addresses(
        environ.get("INSTANCE_IP", ""), world.interface_addresses, excluded_interfaces=excluded
    )
    admin_host = localhost(addresses, dual_stack=options.dual_stack)
    versions = {ip_version(address) for address in addresses}
    has_envoy = not read.take("DISABLE_ENVOY", parse_bool, default=False)
    platform, platform_locality = _static_platform(read, world)
    is_local = bool(environ.get("AGENT_LOCAL_XDS"))
    cloud = parse_cloud(read, is_ipv6=ip_mode(addresses) == "ipv6")
    token = parse_token(read, metadata_host=cloud.gcp_host)
    identity = parse_identity(
        read,
        discovery_address=config.discovery_address,
        token=token,
        key_provider=config.document.get("privateKeyProvider"),
        has_control_plane=not is_local,
        envoy_enabled=has_envoy,
    )
    settings = Settings(
        log=parse_log(flags, read.errors),
        cloud=cloud,
        node=NodeInputs(
            proxy_type=proxy_type,
            domain=flags.text("domain"),
            environ=environ,
            addresses=addresses,
            proxy_config=config,
            labels_text=world.labels,
            annotations_text=world.annotations,
            version=BUILD.version,
            outlier_log_path=flags.text("outlierLogPath"),
            sts_port=flags.number("stsPort"),
            workload_socket_file=identity.socket_file,
            platform=platform,
            platform_locality=platform_locality,
        ),
        options=options,
        memory_limit_bytes=read.take(
            "AGENT_ENVOY_MEMORY_LIMIT", parse_memory, default=world.limits.memory_bytes
        ),
        custom_config=bool(config.custom_config_file),
        template=template,
        override_path=read.take("ISTIO_BOOTSTRAP_OVERRIDE", parse_text, default=""),
        grpc=GrpcSettings(
            path=read.take("GRPC_XDS_BOOTSTRAP", parse_text, default=GRPC_BOOTSTRAP),
            certificates=identity.output.directory if identity.output else "",
        ),
        envoy_enabled=has_envoy,
        envoy=_envoy(
            read,
            flags,
            config,
            template=template,
            ipv6_only=ip_mode(addresses) == "ipv6",
            is_root=world.is_root,
        ),
        restarts=read.take("AGENT_ENVOY_RESTARTS", parse_count, default=0),
        ports=_ports(read, config, options, is_sidecar=proxy_type == SIDECAR, has_envoy=has_envoy),
        has_ipv6=6 in versions,  # noqa: PLR2004 - IPv6
        admin_host=admin_host,
        plan=parse_plan(read, termination_seconds=config.termination_drain_duration_seconds),
        drain_target=drain_target(is_sidecar=proxy_type == SIDECAR),
        own_listeners=_own_listeners(options),
        status=parse_status(
            read,
            port=config.status_port,
            admin_host=admin_host,
            admin_port=config.proxy_admin_port,
            instance_ip=environ.get("INSTANCE_IP", ""),
            ipv6=admin_host == "::1",
            is_sidecar=proxy_type == SIDECAR,
            envoy_enabled=has_envoy,
            profiling=flags.is_on("profiling"),
            readiness_probe=config.readiness_probe,
            proxy_address=addresses[0],
        ),
        identity=identity,
        xds=parse_xds(
            read,
            config_path=config.config_path,
            discovery_address=config.discovery_address,
            tls=config.control_plane_tls,
            proxy_metadata=config.proxy_metadata,
            ipv4=4 in versions,  # noqa: PLR2004 - IPv4
            ipv6=6 in versions,  # noqa: PLR2004 - IPv6
            token=token,
        ),
        dns=parse_dns(
            read,
            is_sidecar=proxy_type == SIDECAR,
            is_root=world.is_root,
            is_local=is_local,
            domain=flags.text("domain"),
        ),
        wasm=parse_wasm(read),
    )
    if read.errors:
        raise SettingsError(read.errors)
    return settings, read.warnings


def _static_platform(read: Reader, world: World) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return metadata and locality that the environment gives, so that no cloud need be asked."""
    text = read.take("GCP_METADATA", parse_text, default="")
    if not text:
        return {}, {}
    from agent.cloud.platforms import gcp_static  # noqa: PLC0415 - few pods have it

    found = gcp_static(
        text,
        quota_project=read.take("GCP_QUOTA_PROJECT", parse_text, default=""),
        zone=read.take("GCP_ZONE", parse_text, default=""),
        resolv_conf=world.resolv_conf,
    )
    return found.metadata, found.locality


def _check_identity(read: Reader) -> None:
    for name, field in (("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace")):
        if not read.take(name, parse_text, default=""):
            read.errors.append(
                f"{name} is not set: expected the pod's own, as fieldRef {field} gives it"
            )


def _proxy_config(
    read: Reader, flags: Parsed, world: World, annotations: Mapping[str, str]
) -> ProxyConfig:
    """Return the effective configuration, or the built-in one with the problems noted."""
    sources = Sources(
        mesh_config=world.mesh_config,
        environment=read.take("PROXY_CONFIG", parse_text, default=""),
        annotations=annotations,
        concurrency_flag=flags.number("concurrency"),
        cpu_limit=_cpus(read, world.limits),
        service_cluster_flag=flags.text("serviceCluster"),
        template_flag=flags.text("templateFile"),
        mesh_config_path=flags.text("meshConfig"),
        machine_cpus=world.cpus,
    )
    try:
        config, warnings = resolve_proxy_config(sources)
    except BootstrapError as error:
        read.errors += error.problems
        return resolve_proxy_config(Sources(mesh_config=None, environment="", annotations={}))[0]
    read.warnings += warnings
    return config


def _cpus(read: Reader, limits: Limits) -> int:
    """Return how many of Envoy's workers the container can keep busy, 0 for any number."""
    limit = read.take("ISTIO_CPU_LIMIT", parse_count, default=0) or workers(limits.cpus)
    source = read.take("AGENT_CONCURRENCY_FROM", parse_cpu_source, default="limit")
    return workers(limits.requested_cpus) or limit if source == "request" else limit


def parse_cpu_source(text: str) -> str:
    """Return what Envoy's number of workers follows: 'limit' or 'request'."""
    if text not in ("limit", "request"):
        raise ValueError("expected 'limit' or 'request'")
    return text


def _envoy(
    read: Reader,
    flags: Parsed,
    config: ProxyConfig,
    *,
    template: str,
    ipv6_only: bool,
    is_root: bool,
) -> EnvoySettings:
    level, components, warnings = split_log_level(
        flags.text("proxyLogLevel"), flags.text("proxyComponentLogLevel")
    )
    read.warnings += warnings
    flush = config.file_flush_interval_seconds
    policy = read.take("COMPLIANCE_POLICY", parse_text, default="")
    ciphers = ("GRPC_SSL_CIPHER_SUITES", FIPS_CIPHERS)
    serves_dns = read.take("DNS_PROXY_ADDR", parse_text, default="").endswith(":53")
    return EnvoySettings(
        binary=config.binary_path,
        config_file=config.custom_config_file or bootstrap_path(config, template),
        drain_seconds=int(config.drain_duration_seconds),
        ipv6_only=ipv6_only,
        file_flush_interval_ms=1000 if flush is None else round(flush * 1000),
        file_flush_min_size_kb=config.file_flush_min_size_kb,
        log_level=level,
        component_log_level=components,
        skip_deprecated_logs=read.take("ENVOY_SKIP_DEPRECATED_LOGS", parse_bool, default=True),
        core_dump=read.take("ISTIO_ENVOY_ENABLE_CORE_DUMP", parse_bool, default=False),
        concurrency=config.concurrency or 0,
        environment=(ciphers,) if policy in ("fips-140-2", "fips-140-3") else (),
        user=UNPRIVILEGED if is_root and serves_dns else None,
    )


def _own_listeners(options: Options) -> tuple[int, ...]:
    """Return the ports of Envoy's own health and metrics listeners."""
    return tuple(
        filter(
            None,
            (
                options.status_port,
                options.prometheus_port,
                options.secure_metrics_port,
                options.secure_merged_metrics_port,
            ),
        )
    )


def _ports(
    read: Reader, config: ProxyConfig, options: Options, *, is_sidecar: bool, has_envoy: bool
) -> dict[int, str]:
    uses = [(config.status_port, "the agent's status port")]
    if has_envoy:
        uses += [
            (config.proxy_admin_port, "Envoy's admin port"),
            (options.status_port, "Envoy's health listener"),
            (options.prometheus_port, "Envoy's metrics listener"),
            (options.secure_metrics_port, "Envoy's secure metrics listener"),
            (options.secure_merged_metrics_port, "Envoy's secure merged metrics listener"),
        ]
    mode = read.take("ISTIO_META_INTERCEPTION_MODE", parse_text, default="")
    if is_sidecar and has_envoy and mode in CAPTURING:
        uses += [(15001, "outbound capture"), (15006, "inbound capture")]
    ports: dict[int, str] = {}
    for port, use in uses:
        if port and port in ports:
            read.errors.append(f"port {port} is both {ports[port]} and {use}: change one of them")
        ports[port] = use
    ports.pop(0, None)  # that is, off
    return ports
