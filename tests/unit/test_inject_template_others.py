"""Gateways, and applications that speak xDS themselves.

Source: status-lifecycle.md section 11.16.
"""

from typing import Any

from tests.fakes.injection import (
    annotations_of,
    container,
    inject_pod,
    make_pod,
    names,
    variable,
)

TEMPLATES = "inject.istio.io/templates"


def injected(
    template: str,
    *containers: dict[str, Any],
    annotations: dict[str, str] | None = None,
    values: dict[str, object] | None = None,
) -> dict[str, Any]:
    pod = make_pod(*containers, annotations={TEMPLATES: template, **(annotations or {})})
    return inject_pod(pod, values=values).pod


def test_a_gateway_is_its_proxy() -> None:
    proxy = {"name": "istio-proxy", "image": "auto", "ports": [{"containerPort": 80}]}
    values: dict[str, object] = {
        "gateways": {"securityContext": {"fsGroup": 1}, "seccompProfile": {"type": "x"}},
        "global": {"proxy": {"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}},
    }

    pod = injected(
        "gateway", proxy, annotations={"status.sidecar.istio.io/port": "0"}, values=values
    )

    found = container(pod)
    assert names(pod, "containers") == ["istio-proxy"]
    assert "initContainers" not in pod["spec"]
    assert found["args"][:2] == ["proxy", "router"]
    assert found["readinessProbe"]["periodSeconds"] == 15
    assert found["securityContext"] == {
        "runAsUser": 1337,
        "runAsGroup": 1337,
        "seccompProfile": {"type": "x"},
    }
    assert found["lifecycle"] == {"preStop": {"sleep": {"seconds": 1}}}
    assert [port["containerPort"] for port in found["ports"]] == [15090, 80]
    assert pod["spec"]["securityContext"] == {"fsGroup": 1}
    assert "security.istio.io/tlsMode" not in pod["metadata"]["labels"]


def test_a_gateways_name_is_not_cut() -> None:
    pod = make_pod(labels={"app": "a" * 64 + "-"}, annotations={TEMPLATES: "gateway"})

    labels = inject_pod(pod).pod["metadata"]["labels"]

    assert labels["service.istio.io/canonical-name"] == "a" * 64 + "-"


def test_an_application_that_speaks_xds_has_an_agent_without_envoy() -> None:
    app = {"name": "app", "image": "i", "readinessProbe": {"httpGet": {"port": 80}}}

    pod = injected("grpc-agent", app)

    proxy, application = container(pod), container(pod, "app")
    assert names(pod, "containers") == ["app", "istio-proxy"]
    assert proxy["lifecycle"]["postStart"]["exec"]["command"][-1] == (
        "--url=http://localhost:15020/healthz/ready"
    )
    assert proxy["readinessProbe"]["httpGet"]["port"] == 15020
    assert proxy["ports"] == [{"name": "mesh-metrics", "containerPort": 15020, "protocol": "TCP"}]
    assert [item["name"] for item in proxy["env"]][:2] == ["ISTIO_META_GENERATOR", "OUTPUT_CERTS"]
    assert [item["name"] for item in proxy["env"]][-2:] == [
        "ISTIO_META_DNS_CAPTURE",
        "DISABLE_ENVOY",
    ]
    assert {"ISTIO_CPU_LIMIT", "GOMEMLIMIT"} & {item["name"] for item in proxy["env"]} == set()
    assert application["readinessProbe"] == {"httpGet": {"port": 80}}
    assert {item["name"] for item in application["volumeMounts"]} == {
        "istio-data",
        "istio-xds",
        "workload-certs",
    }
    assert '"containers":["istio-proxy","app"]' in annotations_of(pod)["sidecar.istio.io/status"]
    assert '"containers":[{"name":"app"' in annotations_of(pod)["proxy.istio.io/overrides"]
    assert variable(pod, "ISTIO_KUBE_APP_PROBERS") is None


def test_without_a_status_port_such_an_agent_has_no_probe() -> None:
    pod = injected("grpc-agent", annotations={"status.sidecar.istio.io/port": "0"})

    assert "readinessProbe" not in container(pod)
    assert container(pod)["resources"]["limits"] == {"cpu": "2", "memory": "1Gi"}


def test_an_application_may_go_without_an_agent() -> None:
    pod = injected("grpc-simple", values={"global": {"istioNamespace": "mesh"}})

    (init,) = pod["spec"]["initContainers"]
    assert names(pod, "containers") == ["app"]
    assert init["name"] == "grpc-bootstrap-init"
    assert "dns:///istiod.mesh.svc:15010" in init["command"][-1]
    assert init["env"][-1] == {"name": "ISTIO_NAMESPACE", "value": "mesh\n"}
    assert container(pod, "app")["env"][0] == {
        "name": "GRPC_XDS_BOOTSTRAP",
        "value": "/var/lib/grpc/data/bootstrap.json",
    }
    assert annotations_of(pod)["sidecar.istio.io/rewriteAppHTTPProbers"] == "false"
    assert "istio.io/rev" not in annotations_of(pod)
