"""The template of a gateway: a pod that is nothing but a proxy.

Source: status-lifecycle.md section 11.16.
"""

from typing import Final

from agent.inject.api.types import Object
from agent.inject.template.container import proxy_image, pull_policy
from agent.inject.template.environment import gateway_environment
from agent.inject.template.metadata import canonical_labels, common_annotations
from agent.inject.template.pod import PROXY, TemplatePod
from agent.inject.template.sidecar import (
    HEALTH_PORT,
    proxy_arguments,
    pull_secrets,
    readiness_probe,
)
from agent.inject.template.volumes import gateway_storage

#: Lets the proxy, which is not root, listen on port 80.
LOW_PORTS: Final = {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}


def gateway(pod: TemplatePod) -> Object:
    """Return what makes a pod a gateway."""
    values, storage = pod.values, gateway_storage(pod)
    context: Object = {"runAsUser": pod.user, "runAsGroup": pod.group}
    if values.gateway_seccomp_profile:
        context["seccompProfile"] = values.gateway_seccomp_profile
    proxy: Object = {
        "name": PROXY,
        "image": proxy_image(pod),
        "ports": [{"containerPort": 15090, "protocol": "TCP", "name": "http-envoy-prom"}],
        "args": proxy_arguments(pod, "router"),
        **({"lifecycle": values.proxy.lifecycle} if values.proxy.lifecycle else {}),
        "env": gateway_environment(pod),
        **pull_policy(pod),
        # Annotations do not change it, and a status port of 0 does not take it away.
        "readinessProbe": readiness_probe(pod._replace(annotations={}), HEALTH_PORT),
        "securityContext": context,
        "volumeMounts": storage.mounts,
    }
    return {
        "metadata": {"labels": canonical_labels(pod), "annotations": common_annotations(pod)},
        "spec": {
            "securityContext": values.gateway_security_context or {"sysctls": [LOW_PORTS]},
            "containers": [proxy],
            "volumes": storage.volumes,
            **pull_secrets(pod),
        },
    }
