"""The template of a pod with a sidecar.

Source: status-lifecycle.md sections 11.6 to 11.9.
"""

from typing import Final

from agent.inject.annotations import READINESS
from agent.inject.api.types import Object
from agent.inject.template.capture import agent_log_level, capture_containers
from agent.inject.template.container import proxy_image, proxy_resources, pull_policy
from agent.inject.template.environment import sidecar_environment
from agent.inject.template.metadata import (
    capture_annotations,
    common_annotations,
    sidecar_labels,
)
from agent.inject.template.pod import PROXY, PROXY_ID, TemplatePod
from agent.inject.template.volumes import Storage, sidecar_storage

LOG_LEVEL: Final = "sidecar.istio.io/logLevel"
COMPONENT_LOG_LEVEL: Final = "sidecar.istio.io/componentLogLevel"
CAP_NET_BIND_SERVICE: Final = "sidecar.istio.io/capNetBindService"
#: Envoy's health listener.
HEALTH_PORT: Final = 15021
PROBE_TIMEOUT_SECONDS: Final = 3


def sidecar(pod: TemplatePod) -> Object:
    """Return what makes a pod one with a sidecar."""
    annotations = common_annotations(pod)
    if pod.values.cni_enabled:
        annotations |= capture_annotations(pod)
    storage = sidecar_storage(pod)
    proxy = _proxy(pod, storage)
    before = capture_containers(pod)
    spec: Object = {"volumes": storage.volumes, **pull_secrets(pod)}
    if pod.native:
        spec["initContainers"] = [*before, {**proxy, "restartPolicy": "Always"}]
    else:
        spec["containers"] = [proxy]
        if before:
            spec["initContainers"] = before
    return {"metadata": {"labels": sidecar_labels(pod), "annotations": annotations}, "spec": spec}


def pull_secrets(pod: TemplatePod) -> Object:
    """Return the secrets that images are pulled with, if there are any."""
    names = pod.values.image_pull_secrets
    return {"imagePullSecrets": [{"name": name} for name in names]} if names else {}


def proxy_arguments(pod: TemplatePod, kind: str) -> list[str]:
    """Return the arguments of `agent proxy`, those that every template has."""
    values, proxy = pod.values, pod.values.proxy
    component_level = pod.annotation(COMPONENT_LOG_LEVEL, proxy.component_log_level)
    return [
        *("proxy", kind),
        *("--domain", f"$(POD_NAMESPACE).svc.{proxy.cluster_domain}"),
        f"--proxyLogLevel={pod.annotation(LOG_LEVEL, proxy.log_level)}",
        f"--proxyComponentLogLevel={component_level}",
        agent_log_level(pod),
        *([f"--stsPort={values.sts_port}"] if values.sts_port else []),
        *(["--log_as_json"] if values.log_as_json else []),
    ]


def readiness_probe(pod: TemplatePod, port: int) -> Object:
    """Return the proxy's readiness probe, with the delays that annotations ask for."""
    proxy = pod.values.proxy

    def asked(name: str, default: int) -> int:
        return int(pod.annotation(f"{READINESS}{name}", str(default)))

    return {
        "httpGet": {"path": "/healthz/ready", "port": port},
        "initialDelaySeconds": asked("initialDelaySeconds", proxy.readiness_initial_delay_seconds),
        "periodSeconds": asked("periodSeconds", proxy.readiness_period_seconds),
        "timeoutSeconds": PROBE_TIMEOUT_SECONDS,
        "failureThreshold": asked("failureThreshold", proxy.readiness_failure_threshold),
    }


def _proxy(pod: TemplatePod, storage: Storage) -> Object:
    outliers = pod.values.proxy.outlier_log_path
    return {
        "name": PROXY,
        "image": proxy_image(pod),
        "ports": [{"containerPort": 15090, "protocol": "TCP", "name": "http-envoy-prom"}],
        "args": [
            *proxy_arguments(pod, "sidecar"),
            *([f"--outlierLogPath={outliers}"] if outliers else []),
        ],
        **_lifecycle(pod),
        "env": sidecar_environment(pod),
        **pull_policy(pod),
        **_probes(pod),
        "securityContext": _security_context(pod),
        "resources": proxy_resources(pod),
        "volumeMounts": storage.mounts,
    }


def _lifecycle(pod: TemplatePod) -> Object:
    """Return the hooks: the mesh's own, or what holds the application back, or what drains."""
    if pod.values.proxy.lifecycle:
        return {"lifecycle": pod.values.proxy.lifecycle}
    if pod.holds_application:
        return {"lifecycle": {"postStart": command("pilot-agent", "wait")}}
    if not pod.native or pod.status_port == "0":
        return {}
    request = command("pilot-agent", "request", f"--debug-port={pod.status_port}", "POST", "drain")
    return {"lifecycle": {"preStop": request}}


def command(*words: str) -> Object:
    """Return a hook that runs a command."""
    return {"exec": {"command": list(words)}}


def _probes(pod: TemplatePod) -> Object:
    if pod.status_port == "0":
        return {}
    proxy = pod.values.proxy
    probes: Object = {"readinessProbe": readiness_probe(pod, HEALTH_PORT)}
    if proxy.startup_probe:
        probes["startupProbe"] = {
            "httpGet": {"path": "/healthz/ready", "port": HEALTH_PORT},
            "periodSeconds": 1,
            "timeoutSeconds": PROBE_TIMEOUT_SECONDS,
            "failureThreshold": proxy.startup_failure_threshold,
        }
    return probes


def _security_context(pod: TemplatePod) -> Object:
    """Return how the proxy runs. Source: status-lifecycle.md section 11.8."""
    proxy = pod.values.proxy
    traces = dict(pod.proxy_metadata).get("IPTABLES_TRACE_LOGGING") == "true"
    binds = pod.annotation(CAP_NET_BIND_SERVICE, proxy.cap_net_bind_service) == "true"
    transparent = pod.interception_mode == "TPROXY"
    added = [
        *(["NET_ADMIN"] if transparent or traces else []),
        *(["NET_BIND_SERVICE"] if binds and not traces else []),
    ]
    is_root = bool(added)
    context: Object = {
        "allowPrivilegeEscalation": proxy.privileged or traces,
        "privileged": proxy.privileged or traces,
        "capabilities": {**({"add": added} if added else {}), "drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsUser": 0 if is_root else pod.user,
        "runAsGroup": PROXY_ID if is_root and not traces else pod.group,
        "runAsNonRoot": not is_root,
    }
    if proxy.seccomp_profile:
        context["seccompProfile"] = proxy.seccomp_profile
    return context
