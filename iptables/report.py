"""What the log says before anything is done: the environment as found, the settings as understood.

Source: traffic-capture.md section 13.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from iptables.config import Actions, CaptureConfig, DnsCapture
from iptables.lists import Ranges, Selection

ENVIRONMENT: Final = (
    "ENVOY_PORT",
    "INBOUND_CAPTURE_PORT",
    "ISTIO_INBOUND_INTERCEPTION_MODE",
    "ISTIO_INBOUND_TPROXY_ROUTE_TABLE",
    "ISTIO_INBOUND_PORTS",
    "ISTIO_OUTBOUND_PORTS",
    "ISTIO_LOCAL_EXCLUDE_PORTS",
    "ISTIO_EXCLUDE_INTERFACES",
    "ISTIO_SERVICE_CIDR",
    "ISTIO_SERVICE_EXCLUDE_CIDR",
    "ISTIO_META_DNS_CAPTURE",
    "INVALID_DROP",
)


def environment(environ: Mapping[str, str], *, native_nftables: bool = False) -> str:
    """Return the variables that the reference's users look for, as they are."""
    lines = [f"{name}={environ.get(name, '')}" for name in ENVIRONMENT]
    backend = "nftables" if native_nftables else "iptables"
    return "\n".join([f"Istio {backend} environment:", *lines])


def settings(config: CaptureConfig, actions: Actions, *, dual_stack: bool) -> str:
    """Return the effective settings, one to a line."""
    inbound, outbound = config.inbound, config.outbound
    values: dict[str, object] = {
        "PROXY_PORT": config.listeners.outbound_port,
        "PROXY_INBOUND_CAPTURE_PORT": config.listeners.inbound_port,
        "PROXY_TUNNEL_PORT": config.listeners.tunnel_port,
        "PROXY_UID": _list(config.proxy.uids),
        "PROXY_GID": _list(config.proxy.gids),
        "INBOUND_INTERCEPTION_MODE": inbound.mode,
        "INBOUND_TPROXY_MARK": inbound.mark,
        "INBOUND_TPROXY_ROUTE_TABLE": inbound.route_table,
        "INBOUND_PORTS_INCLUDE": _selection(inbound.ports),
        "INBOUND_PORTS_EXCLUDE": _list(inbound.exclude_ports),
        "OUTBOUND_OWNER_GROUPS_INCLUDE": _selection(outbound.groups),
        "OUTBOUND_OWNER_GROUPS_EXCLUDE": _list(outbound.exclude_groups),
        "OUTBOUND_IP_RANGES_INCLUDE": _ranges(outbound.ranges),
        "OUTBOUND_IP_RANGES_EXCLUDE": _ranges(outbound.exclude_ranges),
        "OUTBOUND_PORTS_INCLUDE": _list(outbound.ports),
        "OUTBOUND_PORTS_EXCLUDE": _list(outbound.exclude_ports),
        "KUBE_VIRT_INTERFACES": _list(config.virtual_interfaces),
        "ENABLE_INBOUND_IPV6": config.families.ipv6,
        "DUAL_STACK": dual_stack,
        **_dns(config.dns),
        "DROP_INVALID": config.drop_invalid,
        "NETWORK_NAMESPACE": actions.network_namespace,
        "CNI_MODE": actions.cni_mode,
        "EXCLUDE_INTERFACES": _list(config.exclude_interfaces),
        "RECONCILE": actions.reconcile,
        "CLEANUP_ONLY": actions.cleanup_only,
        "FORCE_APPLY": actions.force_apply,
        "NATIVE_NFTABLES": actions.native_nftables,
        "FORCE_IPTABLES_BINARY": actions.forced_variant or "",
    }
    return "\n".join(["Istio config:", *(f"{name}={_text(values[name])}" for name in values)])


def _dns(capture: DnsCapture | None) -> dict[str, object]:
    servers = capture.servers if capture else DnsCapture().servers
    return {
        "DNS_CAPTURE": capture is not None,
        "CAPTURE_ALL_DNS": capture is not None and capture.is_all,
        "DNS_SERVERS": f"[{' '.join(servers.v4)}],[{' '.join(servers.v6)}]",
    }


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _list(items: Sequence[str]) -> str:
    return ",".join(items)


def _selection(selection: Selection) -> str:
    return "*" if selection.is_all else _list(selection.items)


def _ranges(ranges: Ranges) -> str:
    return "*" if ranges.is_all else _list(ranges.v4 + ranges.v6)
