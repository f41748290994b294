"""The settings of the status server.

Source: status-lifecycle.md section 2.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.reader import Reader, parse_bool, parse_count, parse_period, parse_port, parse_text
from agent.status.probes import Probe, parse_probers
from agent.status.scrape import Target, parse_annotations

if TYPE_CHECKING:
    from agent.status.application.settings import HealthSettings

#: Capture lets what comes from here reach the application directly (5.3).
PROBE_SOURCE_V4 = "127.0.0.6"
PROBE_SOURCE_V6 = "::6"


class ProbeSettings(NamedTuple):
    """How the application is probed."""

    #: By decoded request path. ISTIO_KUBE_APP_PROBERS.
    probers: Mapping[str, Probe] = {}
    #: Where the application is: the pod's address. INSTANCE_IP.
    host: str = "127.0.0.1"
    source: str = PROBE_SOURCE_V4
    #: Whether HTTPS probes negotiate a version at all. ISTIO_ENABLE_HTTP2_PROBING.
    offers_alpn: bool = True
    #: Whether each prober's connection serves its next probe, too, unless who asks wants it closed.
    #: ENABLE_PROBE_KEEPALIVE_CONNECTIONS.
    keeps_connections: bool = False


class ScrapeSettings(NamedTuple):
    """What is merged into the metrics page, and who may read it."""

    #: Envoy's own page, on localhost; None to leave it out. ENVOY_PROMETHEUS_PORT.
    envoy_port: int | None = 15090
    #: Pages of the application. ISTIO_PROMETHEUS_ANNOTATIONS.
    targets: tuple[Target, ...] = ()
    #: Refuse all but this pod. METRICS_LOCALHOST_ACCESS_ONLY.
    localhost_only: bool = False
    #: Leave out what a strict reader would refuse the whole page for. AGENT_METRICS_STRICT.
    strict: bool = False


class ReadinessSettings(NamedTuple):
    """What Envoy must have before the pod gets traffic, and how long it has to say so."""

    #: For the configuration that it has received. AGENT_READINESS_CONFIG_TIMEOUT.
    config_seconds: float = 1.0
    #: For whether it serves. AGENT_READINESS_LIVE_TIMEOUT.
    live_seconds: float = 3.0
    #: Listeners that are active, those of the bootstrap included. AGENT_READINESS_MIN_LISTENERS.
    min_listeners: int = 0


class StatusSettings(NamedTuple):
    """What the status server does."""

    port: int  #: to listen on; 0 for any, in tests
    admin_host: str
    admin_port: int
    envoy_enabled: bool
    probes: ProbeSettings = ProbeSettings()
    scrape: ScrapeSettings = ScrapeSettings()
    readiness: ReadinessSettings = ReadinessSettings()
    profiling: bool = True
    #: Nobody but this agent configures Envoy. AGENT_LOCAL_XDS.
    is_local: bool = False
    #: The application's health is reported to the control plane. ProxyConfig readinessProbe.
    health: "HealthSettings | None" = None


def parse_status(
    read: Reader,
    *,
    port: int,
    admin_host: str,
    admin_port: int,
    instance_ip: str,
    ipv6: bool,
    is_sidecar: bool,
    envoy_enabled: bool,
    profiling: bool = True,
    readiness_probe: Mapping[str, Any] | None = None,
    proxy_address: str = "localhost",
) -> StatusSettings:
    """Return the status branch; a table or scrape configuration that is wrong is an error.

    Args:
        read: the environment.
        port: the status port, after annotations.
        admin_host: of Envoy, as the bootstrap has it (D8).
        admin_port: of Envoy.
        instance_ip: the pod's address, empty for this host.
        ipv6: whether the pod is one of IPv6.
        is_sidecar: gateways never scrape an application.
        envoy_enabled: False in proxyless mode.
        profiling: whether the profiling paths exist.
        readiness_probe: ProxyConfig's, as canonical proto JSON; None where it has none.
        proxy_address: the first of the node's.
    """
    probes = _parse_probes(read, instance_ip, ipv6=ipv6)
    is_local = bool(read.take("AGENT_LOCAL_XDS", parse_text, default=""))
    return StatusSettings(
        port=port,
        admin_host=admin_host,
        admin_port=admin_port,
        envoy_enabled=envoy_enabled,
        probes=probes,
        scrape=_parse_scrape(read, port, is_sidecar=is_sidecar, envoy_enabled=envoy_enabled),
        readiness=_parse_readiness(read),
        profiling=profiling,
        is_local=is_local,
        health=None if is_local else _parse_health(read, readiness_probe, proxy_address, probes),
    )


def _parse_health(
    read: Reader, probe: Mapping[str, Any] | None, proxy_address: str, probes: ProbeSettings
) -> "HealthSettings | None":
    if probe is None:
        return None
    from agent.status.application.settings import parse_health  # noqa: PLC0415 -- virtual machines

    return parse_health(
        read,
        probe,
        host="localhost" if probes.host == "localhost" else proxy_address,
        source=probes.source,
        offers_alpn=probes.offers_alpn,
    )


def _parse_readiness(read: Reader) -> ReadinessSettings:
    usual = ReadinessSettings()
    return ReadinessSettings(
        read.take("AGENT_READINESS_CONFIG_TIMEOUT", parse_period, default=usual.config_seconds),
        read.take("AGENT_READINESS_LIVE_TIMEOUT", parse_period, default=usual.live_seconds),
        read.take("AGENT_READINESS_MIN_LISTENERS", parse_count, default=usual.min_listeners),
    )


def _parse_ports(text: str) -> frozenset[int]:
    return frozenset(parse_port(item.strip()) for item in text.split(",") if item.strip())


def _parse_probes(read: Reader, instance_ip: str, *, ipv6: bool) -> ProbeSettings:
    table = parse_probers(read.values.get("ISTIO_KUBE_APP_PROBERS", ""))
    read.errors.extend(f"ISTIO_KUBE_APP_PROBERS: {error}" for error in table.errors)
    read.warnings.extend(f"ISTIO_KUBE_APP_PROBERS: {warning}" for warning in table.warnings)
    host = instance_ip or ("::1" if ipv6 else "127.0.0.1")
    if read.take("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", parse_bool, default=False):
        host = "localhost"
    return ProbeSettings(
        probers=table.probes,
        host=host,
        source=PROBE_SOURCE_V6 if ipv6 else PROBE_SOURCE_V4,
        offers_alpn=read.take("ISTIO_ENABLE_HTTP2_PROBING", parse_bool, default=True),
        keeps_connections=read.take(
            "ENABLE_PROBE_KEEPALIVE_CONNECTIONS", parse_bool, default=False
        ),
    )


def _parse_scrape(
    read: Reader, port: int, *, is_sidecar: bool, envoy_enabled: bool
) -> ScrapeSettings:
    targets: tuple[Target, ...] = ()
    text = read.values.get("ISTIO_PROMETHEUS_ANNOTATIONS")
    if is_sidecar and text is not None:
        no_ports: frozenset[int] = frozenset()
        https = read.take("AGENT_METRICS_HTTPS_PORTS", _parse_ports, default=no_ports)
        plan = parse_annotations(text, port, https)
        targets = plan.targets
        if plan.error:
            read.errors.append(plan.error)
    envoy_port = read.take("ENVOY_PROMETHEUS_PORT", parse_port, default=15090)
    merges = read.take("PILOT_AGENT_MERGE_ENVOY_STATS", parse_bool, default=True)
    return ScrapeSettings(
        envoy_port=envoy_port if merges and envoy_enabled else None,
        targets=targets,
        localhost_only=read.take("METRICS_LOCALHOST_ACCESS_ONLY", parse_bool, default=False),
        strict=read.take("AGENT_METRICS_STRICT", parse_bool, default=False),
    )
