"""The Settings tree: flags, environment and the pod's files as typed values, once, at the edge.

Every unusable value is found before anything starts, and all of them are reported together.

Source: bootstrap.md sections 1.4, 2 and 3; style.md section 4.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from agent.errors import SettingsError
from agent.lifecycle.command_line import EnvoySettings, split_log_level
from agent.lifecycle.drain import DrainSettings, drain_target, parse_drain
from agent.proxy_flags import PROXY_TYPES
from agent.reader import Reader, parse_bool, parse_int, parse_text
from agent.scopes import LogSettings, parse_log
from agent.status.settings import StatusSettings, parse_status
from agent.version import BUILD
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


class Settings(NamedTuple):
    """All of it; a subject is handed its branch, never the tree."""

    log: LogSettings
    node: NodeInputs
    options: Options  #: of the bootstrap
    custom_config: bool  #: Envoy starts from a file of the user's own
    envoy: EnvoySettings
    #: Ports that Envoy and the agent will listen on, each with what for.
    ports: Mapping[int, str]
    has_ipv6: bool
    admin_host: str
    drain: DrainSettings
    drain_target: str
    status: StatusSettings
    xds: XdsSettings


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
    settings = Settings(
        log=parse_log(flags, read.errors),
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
        ),
        options=options,
        custom_config=bool(config.custom_config_file),
        envoy=_envoy(read, flags, config, ipv6_only=ip_mode(addresses) == "ipv6"),
        ports=_ports(read, config, options, is_sidecar=proxy_type == SIDECAR),
        has_ipv6=6 in versions,  # noqa: PLR2004 - IPv6
        admin_host=admin_host,
        drain=parse_drain(
            read,
            termination_seconds=config.termination_drain_duration_seconds,
            ignored_ports=_own_listeners(options),
        ),
        drain_target=drain_target(is_sidecar=proxy_type == SIDECAR),
        status=parse_status(
            read,
            port=config.status_port,
            admin_host=admin_host,
            admin_port=config.proxy_admin_port,
            instance_ip=environ.get("INSTANCE_IP", ""),
            ipv6=admin_host == "::1",
            is_sidecar=proxy_type == SIDECAR,
            envoy_enabled=True,
            profiling=flags.is_on("profiling"),
        ),
        xds=parse_xds(
            read,
            config_path=config.config_path,
            discovery_address=config.discovery_address,
            tls=config.control_plane_tls,
            proxy_metadata=config.proxy_metadata,
            ipv4=4 in versions,  # noqa: PLR2004 - IPv4
            ipv6=6 in versions,  # noqa: PLR2004 - IPv6
        ),
    )
    if read.errors:
        raise SettingsError(read.errors)
    return settings, read.warnings


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
        cpu_limit=read.take("ISTIO_CPU_LIMIT", parse_int, default=0),
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
    template = template_path(config, read.values)
    if template and not config.custom_config_file:
        read.errors.append(
            f"bootstrap template {template!r}: templates are not supported yet; "
            "remove it, or give a whole configuration as customConfigFile"
        )
    if read.take("DISABLE_ENVOY", parse_bool, default=False):
        read.errors.append("DISABLE_ENVOY=true: running without Envoy is not supported yet")
    return config


def _envoy(read: Reader, flags: Parsed, config: ProxyConfig, *, ipv6_only: bool) -> EnvoySettings:
    level, components, warnings = split_log_level(
        flags.text("proxyLogLevel"), flags.text("proxyComponentLogLevel")
    )
    read.warnings += warnings
    flush = config.file_flush_interval_seconds
    policy = read.take("COMPLIANCE_POLICY", parse_text, default="")
    ciphers = ("GRPC_SSL_CIPHER_SUITES", FIPS_CIPHERS)
    return EnvoySettings(
        binary=config.binary_path,
        config_file=config.custom_config_file or bootstrap_path(config),
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
    read: Reader, config: ProxyConfig, options: Options, *, is_sidecar: bool
) -> dict[int, str]:
    ports = {
        config.proxy_admin_port: "Envoy's admin port",
        config.status_port: "the agent's status port",
        options.status_port: "Envoy's health listener",
        options.prometheus_port: "Envoy's metrics listener",
    }
    mode = read.take("ISTIO_META_INTERCEPTION_MODE", parse_text, default="")
    if is_sidecar and mode in CAPTURING:
        ports |= {15001: "outbound capture", 15006: "inbound capture"}
    ports.pop(0, None)
    return ports
