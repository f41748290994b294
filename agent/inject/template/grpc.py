"""The templates for applications that speak xDS themselves, with an agent or without one.

Source: status-lifecycle.md section 11.16.
"""

from typing import Final

from agent.inject.api.types import Object
from agent.inject.template.container import proxy_image, proxy_resources, pull_policy
from agent.inject.template.environment import field, grpc_environment, render
from agent.inject.template.metadata import canonical_labels, common_annotations
from agent.inject.template.pod import PROXY, TemplatePod
from agent.inject.template.sidecar import (
    command,
    proxy_arguments,
    pull_secrets,
    readiness_probe,
)
from agent.inject.template.volumes import grpc_storage

REWRITE: Final = "sidecar.istio.io/rewriteAppHTTPProbers"
STATUS_PORT: Final = 15020
READY_URL: Final = f"http://localhost:{STATUS_PORT}/healthz/ready"
AGENT_BOOTSTRAP: Final = "/etc/istio/proxy/grpc-bootstrap.json"
#: Without an agent: what the init container makes, and where.
SIMPLE_DIRECTORY: Final = "/var/lib/grpc/data/"
SIMPLE_BOOTSTRAP: Final = "/var/lib/grpc/data/bootstrap.json"
SIMPLE_VOLUME: Final = "grpc-io-proxyless-bootstrap"
SIMPLE_IMAGE: Final = "busybox:1.28"
SIMPLE_SCRIPT: Final = """\
cat >/var/lib/grpc/data/bootstrap.json <<EOF
{
  "xds_servers": [
    {
      "server_uri": "dns:///istiod.%(namespace)s.svc:15010",
      "channel_creds": [{"type": "insecure"}],
      "server_features": ["xds_v3"]
    }
  ],
  "node": {
    "id": "sidecar~${INSTANCE_IP}~${POD_NAME}.${POD_NAMESPACE}~cluster.local",
    "metadata": {"GENERATOR": "grpc"}
  }
}
EOF
"""


def grpc_agent(pod: TemplatePod) -> Object:
    """Return what gives applications that speak xDS an agent without Envoy."""
    lifecycle = pod.values.proxy.lifecycle or {
        "postStart": command("pilot-agent", "wait", f"--url={READY_URL}")
    }
    has_status = pod.status_port != "0"
    storage = grpc_storage(pod)
    proxy: Object = {
        "name": PROXY,
        "image": proxy_image(pod),
        "ports": [{"containerPort": STATUS_PORT, "protocol": "TCP", "name": "mesh-metrics"}],
        "args": proxy_arguments(pod, "sidecar"),
        "lifecycle": lifecycle,
        "env": grpc_environment(pod),
        **pull_policy(pod),
        **({"readinessProbe": readiness_probe(pod, STATUS_PORT)} if has_status else {}),
        "resources": proxy_resources(pod),
        "volumeMounts": storage.mounts,
    }
    environment = render(
        [
            ("GRPC_XDS_EXPERIMENTAL_SECURITY_SUPPORT", "true"),
            ("GRPC_XDS_BOOTSTRAP", AGENT_BOOTSTRAP),
        ]
    )
    others: list[Object] = [
        {"name": name, "env": environment, "volumeMounts": [*storage.application_mounts]}
        for name in pod.applications
    ]
    return {
        "metadata": {
            "labels": canonical_labels(pod),
            "annotations": {**common_annotations(pod), REWRITE: "false"},
        },
        "spec": {
            "containers": [proxy, *others],
            "volumes": storage.volumes,
            **pull_secrets(pod),
        },
    }


def grpc_simple(pod: TemplatePod) -> Object:
    """Return what points applications that speak xDS at the control plane, without an agent."""
    namespace = pod.values.istio_namespace
    mount = {"name": SIMPLE_VOLUME, "mountPath": SIMPLE_DIRECTORY}
    environment = render(
        [
            ("GRPC_XDS_BOOTSTRAP", SIMPLE_BOOTSTRAP),
            ("GRPC_GO_LOG_VERBOSITY_LEVEL", "99"),
            ("GRPC_GO_LOG_SEVERITY_LEVEL", "info"),
        ]
    )
    init: Object = {
        "name": "grpc-bootstrap-init",
        "image": SIMPLE_IMAGE,
        "volumeMounts": [mount],
        "env": render(
            [
                ("INSTANCE_IP", field("status.podIP")),
                ("POD_NAME", field("metadata.name")),
                ("POD_NAMESPACE", field("metadata.namespace")),
                ("ISTIO_NAMESPACE", f"{namespace}\n"),
            ]
        ),
        "command": ["sh", "-c", SIMPLE_SCRIPT % {"namespace": namespace}],
    }
    containers = pod.spec.get("containers", ())
    return {
        "metadata": {"annotations": {REWRITE: "false"}},
        "spec": {
            "initContainers": [init],
            "containers": [
                {"name": item.get("name"), "env": environment, "volumeMounts": [mount]}
                for item in containers
            ],
            "volumes": [{"name": SIMPLE_VOLUME, "emptyDir": {}}],
        },
    }
