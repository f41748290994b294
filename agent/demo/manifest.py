"""The pod that the demo runs, as values: what an injector and a kubelet make of a deployment.

Arguments, environment, annotations and volumes are those of a deployment "hello" after injection
with the default settings of a dual-stack mesh; fields such as the pod's address are filled in as
the kubelet does.

Source: bootstrap.md section 1.10.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

APPLICATION_PORT: Final = 8080
READINESS_PATH: Final = "/healthz/ready"
PROBE_PATH: Final = "/app-health/web/readyz"

#: Arguments of the init container `istio-init`.
INIT_ARGS: Final = (
    *("istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT"),
    *("-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020"),
    "--log_output_level=default:info",
)
#: Arguments of the container `istio-proxy`.
PROXY_ARGS: Final = (
    *("proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local"),
    *("--proxyLogLevel=warning", "--proxyComponentLogLevel=misc:error"),
    "--log_output_level=default:info",
)
#: Command of its postStart hook.
WAIT_ARGS: Final = ("wait",)

#: Where its volumes are mounted, relative to its root directory.
VOLUMES: Final = (
    "var/run/secrets/workload-spiffe-uds",
    "var/run/secrets/credential-uds",
    "var/run/secrets/workload-spiffe-credentials",
    "var/run/secrets/istio/crl",
    "var/lib/istio/data",
    "etc/istio/proxy",
    "var/run/secrets/tokens",
)
LABELS_PATH: Final = "etc/istio/pod/labels"
ANNOTATIONS_PATH: Final = "etc/istio/pod/annotations"

LABELS: Final = {
    "app": "hello",
    "security.istio.io/tlsMode": "istio",
    "service.istio.io/canonical-name": "hello",
    "service.istio.io/canonical-revision": "latest",
}

DEFAULT_ENVOY: Final = "/usr/local/bin/envoy"
#: Set by the image.
IMAGE_ENVIRONMENT: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
#: The mesh's `proxyMetadata`: variables of both containers. Without this one, IPv6 of a pod that
#: has IPv4 is not captured. Source: traffic-capture.md section 3.1.
PROXY_METADATA: Final = {"ISTIO_DUAL_STACK": "true"}
#: Of the init container.
INIT_ENVIRONMENT: Final = {**IMAGE_ENVIRONMENT, **PROXY_METADATA}


def environment(pod_ip: str, host_ip: str) -> dict[str, str]:
    """Return the variables of the container `istio-proxy`.

    The last two are the demo's own: the application's readiness probe, as the injector rewrites
    it, and resources from the agent itself, because there is no control plane.
    """
    target = {"path": "/readyz", "port": APPLICATION_PORT}
    probers = {PROBE_PATH: {"httpGet": target, "timeoutSeconds": 1}}
    return {
        **IMAGE_ENVIRONMENT,
        "PILOT_CERT_PROVIDER": "istiod",
        "CA_ADDR": "istiod.istio-system.svc:15012",
        "POD_NAME": "hello-5d4b8f6c7d-x2x9k",
        "POD_NAMESPACE": "default",
        "INSTANCE_IP": pod_ip,
        "SERVICE_ACCOUNT": "default",
        "HOST_IP": host_ip,
        "ISTIO_CPU_LIMIT": "2",
        "PROXY_CONFIG": json.dumps({"proxyMetadata": PROXY_METADATA}) + "\n",
        "ISTIO_META_POD_PORTS": '[\n    {"name":"http","containerPort":8080}\n]',
        "ISTIO_META_APP_CONTAINERS": "hello",
        "GOMEMLIMIT": "1073741824",
        "ISTIO_META_CLUSTER_ID": "Kubernetes",
        "ISTIO_META_NODE_NAME": "node",
        "ISTIO_META_INTERCEPTION_MODE": "REDIRECT",
        "ISTIO_META_WORKLOAD_NAME": "hello",
        "ISTIO_META_OWNER": "kubernetes://apis/apps/v1/namespaces/default/deployments/hello",
        "ISTIO_META_MESH_ID": "cluster.local",
        "TRUST_DOMAIN": "cluster.local",
        **PROXY_METADATA,
        "ISTIO_KUBE_APP_PROBERS": json.dumps(probers),
        "AGENT_LOCAL_XDS": "builtin",
    }


def expand(arguments: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return a container's arguments with `$(NAME)` replaced, as the kubelet does.

    A name that is not set stays as it is.
    """
    return [
        re.sub(r"\$\((\w+)\)", lambda match: environ.get(match[1], match[0]), argument)
        for argument in arguments
    ]


def annotations(envoy: str) -> dict[str, str]:
    """Return the pod's annotations.

    The proxy configuration names Envoy where it is not in its place, and asks for the counters of
    listeners, which Envoy does not keep in a mesh by default.
    """
    config: dict[str, object] = {"proxyStatsMatcher": {"inclusionPrefixes": ["listener."]}}
    if envoy != DEFAULT_ENVOY:
        config["binaryPath"] = envoy
    return {
        "istio.io/rev": "default",
        "kubectl.kubernetes.io/default-container": "hello",
        "prometheus.io/path": "/stats/prometheus",
        "prometheus.io/port": "15020",
        "prometheus.io/scrape": "true",
        "proxy.istio.io/config": json.dumps(config),
    }


def downward(values: Mapping[str, str]) -> str:
    """Return labels or annotations as a downward API volume shows them: key="value" lines."""
    return "\n".join(f"{key}={json.dumps(values[key])}" for key in sorted(values))
