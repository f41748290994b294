"""Source: status-lifecycle.md section 11.9."""

import pytest

from agent.inject.pipeline import InjectionError
from tests.fakes.injection import annotations_of, container, inject_pod, make_pod, variable


def test_the_order_is_the_references() -> None:
    pod = inject_pod(
        make_pod(annotations={"sidecar.istio.io/bootstrapOverride": "map"}),
        values={
            "global": {"network": "n", "multiCluster": {"clusterName": "c"}},
            "pilot": {"env": {"COMPLIANCE_POLICY": "fips-140-3"}},
        },
        mesh={
            "inboundTrafficPolicy": {"mode": "LOCALHOST"},
            "defaultConfig": {"proxyMetadata": {"B": "2", "A": "1"}},
        },
        environment={"EXTRA": "x"},
    ).pod

    assert [item["name"] for item in container(pod)["env"]] == [
        "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION",
        "PILOT_CERT_PROVIDER",
        "CA_ADDR",
        *("POD_NAME", "POD_NAMESPACE", "INSTANCE_IP", "SERVICE_ACCOUNT", "HOST_IP"),
        "ISTIO_CPU_LIMIT",
        "PROXY_CONFIG",
        "ISTIO_META_POD_PORTS",
        "ISTIO_META_APP_CONTAINERS",
        "GOMEMLIMIT",
        "COMPLIANCE_POLICY",
        "GODEBUG",
        "ISTIO_META_NODE_NAME",
        "ISTIO_META_INTERCEPTION_MODE",
        "ISTIO_META_WORKLOAD_NAME",
        "ISTIO_META_OWNER",
        "ISTIO_BOOTSTRAP_OVERRIDE",
        "ISTIO_META_MESH_ID",
        "TRUST_DOMAIN",
        "A",
        "B",
        "EXTRA",
        "ISTIO_META_CLUSTER_ID",
        "ISTIO_META_NETWORK",
    ]
    assert pod["metadata"]["labels"]["topology.istio.io/network"] == "n"


def test_the_ca_is_where_the_values_say() -> None:
    def address(values: dict[str, object]) -> str | None:
        return variable(inject_pod(make_pod(), values=values).pod, "CA_ADDR")

    assert address({}) == "istiod.istio-system.svc:15012"
    assert address({"revision": "canary"}) == "istiod-canary.istio-system.svc:15012"
    assert address({"global": {"caAddress": "ca:443"}}) == "ca:443"


def test_ports_are_listed_one_on_a_line() -> None:
    pod = make_pod(
        {"name": "a", "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}]},
        {"name": "b", "ports": [{"containerPort": 90, "hostPort": 91, "hostIP": "1.2.3.4"}]},
        initContainers=[{"name": "c", "ports": [{"containerPort": 1}]}],
    )

    assert variable(inject_pod(pod).pod, "ISTIO_META_POD_PORTS") == (
        '[\n    {"name":"http","containerPort":80,"protocol":"TCP"}\n'
        '    ,{"hostPort":91,"containerPort":90,"hostIP":"1.2.3.4"}\n]'
    )
    assert variable(inject_pod(make_pod()).pod, "ISTIO_META_POD_PORTS") == "[\n]"


def test_the_workload_may_have_a_name_of_its_own() -> None:
    named = make_pod(labels={"service.istio.io/workload-name": "other"})
    nameless = make_pod()
    del nameless["metadata"]["name"]

    assert variable(inject_pod(named).pod, "ISTIO_META_WORKLOAD_NAME") == "other"
    assert variable(inject_pod(named).pod, "ISTIO_META_OWNER") == (
        "kubernetes://apis/v1/namespaces/default/pods/web-1"
    )
    assert variable(inject_pod(nameless).pod, "ISTIO_META_WORKLOAD_NAME") is None
    assert variable(inject_pod(nameless).pod, "ISTIO_META_OWNER") is None


def test_the_mesh_has_an_id_of_its_own_or_its_trust_domain() -> None:
    domain = inject_pod(make_pod(), mesh={"trustDomain": "td"}).pod
    named = inject_pod(make_pod(), values={"global": {"meshID": "m"}}).pod

    assert variable(domain, "ISTIO_META_MESH_ID") == "td"
    assert variable(domain, "TRUST_DOMAIN") == "td"
    assert variable(named, "ISTIO_META_MESH_ID") == "m"


def test_datadogs_variables_come_with_its_tracer() -> None:
    pod = make_pod(annotations={"apm.datadoghq.com/env": '{"DD_B":"2","DD_A":1}'})

    traced = inject_pod(pod, values={"global": {"proxy": {"tracer": "datadog"}}}).pod

    assert (variable(traced, "DD_A"), variable(traced, "DD_B")) == ("1", "2")
    assert variable(inject_pod(pod).pod, "DD_A") is None


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_json_annotation_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InjectionError, match="expected a JSON object"):
        inject_pod(make_pod(annotations={"sidecar.istio.io/userVolume": text}))


@pytest.mark.parametrize(
    ("image", "annotations", "version"),
    [
        ("web:1.2", {}, "1.2"),
        ("reg:5000/web:1.2@sha256:ab", {}, "1.2@sha256:ab"),
        ("reg:5000/web@sha256:ab", {}, "sha256:ab"),
        ("web", {}, None),
        ("web:1", {"resource.opentelemetry.io/service.version": "9"}, "9"),
    ],
)
def test_open_telemetry_names_the_service(
    image: str, annotations: dict[str, str], version: str | None
) -> None:
    enriched = {"opentelemetry": {"serviceAttributeEnrichment": "OTEL_SEMANTIC_CONVENTIONS"}}

    pod = inject_pod(
        make_pod({"name": "app", "image": image}, annotations=annotations),
        mesh={"extensionProviders": [enriched]},
    ).pod

    shown = f"service.version={version}," if version else ""
    assert variable(pod, "OTEL_RESOURCE_ATTRIBUTES") == (
        f"service.namespace=default,{shown}service.instance.id=default.$(POD_NAME).app"
    )


def test_url_variables_and_labels_name_cluster_and_network() -> None:
    urls = {"ISTIO_META_CLUSTER_ID": "east", "ISTIO_META_NETWORK": "one"}
    values = {"global": {"network": "n", "multiCluster": {"clusterName": "c"}}}

    by_url = inject_pod(make_pod(), values=values, environment=urls).pod
    labelled = make_pod(labels={"topology.istio.io/network": "mine"})
    by_label = inject_pod(labelled, values=values, environment=urls).pod

    assert variable(by_url, "ISTIO_META_CLUSTER_ID") == "east"
    assert variable(by_url, "ISTIO_META_NETWORK") == "one"
    assert variable(by_label, "ISTIO_META_NETWORK") == "mine"
    assert by_label["metadata"]["labels"]["topology.istio.io/network"] == "mine"
    for pod in (by_url, by_label):
        listed = [item["name"] for item in container(pod)["env"]]
        assert listed.count("ISTIO_META_CLUSTER_ID") == listed.count("ISTIO_META_NETWORK") == 1
    assert "istio.io/rev" in annotations_of(by_url)
