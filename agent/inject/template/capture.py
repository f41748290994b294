"""The init container that sets traffic capture up, or proves that the CNI plugin has.

Source: status-lifecycle.md section 11.7.
"""

from collections.abc import Callable, Mapping
from typing import Final

from agent.inject.annotations import TRAFFIC, VIRTUAL_INTERFACES
from agent.inject.api.types import Object
from agent.inject.template.container import init_image, proxy_resources, pull_policy
from agent.inject.template.pod import PROXY_ID, TemplatePod
from agent.inject.values import ProxyValues

INIT: Final = "istio-init"
VALIDATION: Final = "istio-validation"
#: Envoy's own listeners.
NEVER_CAPTURED: Final = "15090,15021"
AGENT_LOG_LEVEL: Final = "sidecar.istio.io/agentLogLevel"
#: What is captured, by the annotation that says it: the value that it stands in the place of.
DEFAULTS: Final[Mapping[str, Callable[[ProxyValues], str]]] = {
    "includeOutboundIPRanges": lambda proxy: proxy.include_ip_ranges,
    "excludeOutboundIPRanges": lambda proxy: proxy.exclude_ip_ranges,
    "includeInboundPorts": lambda proxy: proxy.include_inbound_ports,
    "excludeInboundPorts": lambda proxy: proxy.exclude_inbound_ports,
    "includeOutboundPorts": lambda proxy: proxy.include_outbound_ports,
    "excludeOutboundPorts": lambda proxy: proxy.exclude_outbound_ports,
}


def capture_containers(pod: TemplatePod) -> list[Object]:
    """Return the init container in a list, which is empty where nothing is captured."""
    if pod.interception_mode == "NONE":
        return []
    container: Object = {
        "name": VALIDATION if pod.values.cni_enabled else INIT,
        "image": init_image(pod),
        "args": _arguments(pod),
        "env": [{"name": name, "value": value} for name, value in pod.proxy_metadata],
        "resources": proxy_resources(pod),
        "securityContext": _security_context(pod),
        **pull_policy(pod),
    }
    return [container]


def traffic(pod: TemplatePod, name: str) -> str:
    """Return what the annotation of that name says, or the values do."""
    return pod.annotation(f"{TRAFFIC}{name}", DEFAULTS[name](pod.values.proxy))


def is_given(pod: TemplatePod, name: str) -> bool:
    """Return whether there is an annotation of that name, though it may be empty, or a value."""
    return f"{TRAFFIC}{name}" in pod.annotations or bool(DEFAULTS[name](pod.values.proxy))


def excluded_inbound_ports(pod: TemplatePod) -> str:
    """Return the inbound ports that users exclude, and the status port with them."""
    text = traffic(pod, "excludeInboundPorts")
    ports = [port for item in text.split(",") if (port := item.strip())]
    if pod.status_port in ("", "0") or pod.status_port in ports:
        return text
    return ",".join((*ports, pod.status_port))


def agent_log_level(pod: TemplatePod) -> str:
    """Return the argument with the log level of the agent's own programs."""
    return f"--log_output_level={pod.annotation(AGENT_LOG_LEVEL, pod.values.agent_log_level)}"


def _arguments(pod: TemplatePod) -> list[str]:
    values = pod.values
    excluded = excluded_inbound_ports(pod)
    arguments = [
        "istio-iptables",
        *("-p", str(pod.mesh.proxy_listen_port)),
        *("-z", str(pod.mesh.proxy_inbound_listen_port)),
        *("-u", str(PROXY_ID if pod.interception_mode == "TPROXY" else pod.user)),
        *("-m", pod.interception_mode),
        *("-i", traffic(pod, "includeOutboundIPRanges")),
        *("-x", traffic(pod, "excludeOutboundIPRanges")),
        *("-b", traffic(pod, "includeInboundPorts")),
        *("-d", f"{NEVER_CAPTURED},{excluded}" if excluded else NEVER_CAPTURED),
    ]
    for flag, name in (("-q", "includeOutboundPorts"), ("-o", "excludeOutboundPorts")):
        arguments += [flag, traffic(pod, name)] if is_given(pod, name) else []
    for flag, names in (
        ("-k", (VIRTUAL_INTERFACES, f"{TRAFFIC}kubevirtInterfaces")),
        ("-c", (f"{TRAFFIC}excludeInterfaces",)),
    ):
        given = [pod.annotations[name] for name in names if name in pod.annotations]
        arguments += [flag, given[0]] if given else []
    arguments.append(agent_log_level(pod))
    arguments += ["--log_as_json"] if values.log_as_json else []
    if values.cni_enabled:
        arguments += ["--run-validation", "--skip-rule-apply"]
    elif values.force_apply_iptables:
        arguments.append("--force-apply")
    return arguments + (["--native-nftables"] if values.native_nftables else [])


def _security_context(pod: TemplatePod) -> Object:
    values, proxy = pod.values, pod.values.proxy
    cni = values.cni_enabled
    added = {} if cni else {"add": ["NET_ADMIN", "NET_RAW"]}
    context: Object = {
        "allowPrivilegeEscalation": proxy.privileged,
        "privileged": proxy.privileged,
        "capabilities": {**added, "drop": ["ALL"]},
        "readOnlyRootFilesystem": cni,
        "runAsUser": pod.user if cni else 0,
        "runAsGroup": pod.group if cni else 0,
        "runAsNonRoot": cni,
    }
    if proxy.seccomp_profile:
        context["seccompProfile"] = proxy.seccomp_profile
    return context
