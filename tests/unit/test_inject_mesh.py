"""Source: status-lifecycle.md sections 11.3 and 11.9; bootstrap.md section 3.3."""

import json
from typing import Any

import pytest

from agent.inject.mesh import (
    Mesh,
    ProxyConfigResource,
    decode_resource,
    discovery_address,
    effective_proxy_config,
    parse_mesh,
    proxy_config_json,
)
from agent.inject.values import Values, parse_values
from bootstrap.config import CONFIG_ANNOTATION
from bootstrap.errors import BootstrapError


def values(document: dict[str, object] | None = None) -> Values:
    return parse_values(document or {})[0]


def mesh(text: str = "") -> Mesh:
    found, problems = parse_mesh(text, values(), source="mesh")
    assert problems == []
    return found


def effective(found: Mesh, annotation: str = "", **labels: str) -> dict[str, Any]:
    annotations = {CONFIG_ANNOTATION: annotation} if annotation else {}
    return effective_proxy_config(found, namespace="prod", labels=labels, annotations=annotations)


def written(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(proxy_config_json(document))
    return found


def test_without_a_text_it_is_what_the_chart_would_write() -> None:
    found = mesh()

    assert found.trust_domain == "cluster.local"
    assert (found.proxy_listen_port, found.proxy_inbound_listen_port) == (15001, 15006)
    assert found.status_port == 15020
    assert found.prometheus_merge
    assert not found.inbound_localhost
    assert proxy_config_json(found.default_config) == "{}\n"


def test_the_control_plane_is_where_the_values_say() -> None:
    canary = values({"revision": "canary", "global": {"istioNamespace": "mesh"}})

    found, _ = parse_mesh("", canary, source="mesh")

    assert discovery_address(canary) == "istiod-canary.mesh.svc:15012"
    assert written(dict(found.default_config)) == {
        "discoveryAddress": "istiod-canary.mesh.svc:15012"
    }
    assert found.root_namespace == "mesh"


def test_a_text_is_read() -> None:
    found = mesh(
        """
        trustDomain: td
        rootNamespace: root
        proxyListenPort: 1
        proxyInboundListenPort: 2
        enablePrometheusMerge: false
        inboundTrafficPolicy: {mode: LOCALHOST}
        extensionProviders:
        - name: x
        - opentelemetry: {serviceAttributeEnrichment: OTEL_SEMANTIC_CONVENTIONS}
        defaultConfig: {statusPort: 15999}
        """
    )

    assert (found.trust_domain, found.root_namespace) == ("td", "root")
    assert (found.proxy_listen_port, found.proxy_inbound_listen_port) == (1, 2)
    assert not found.prometheus_merge
    assert found.inbound_localhost
    assert found.otel_enrichment
    assert found.status_port == 15999


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "mesh: expected JSON or YAML"),
        ("- a", "mesh: expected an object, found list"),
        ("trustDomain: 5", "mesh: trustDomain=5: expected text; put it in quotes"),
        ("proxyListenPort: 0", "mesh: proxyListenPort=0: expected a port in 1..65535"),
        ("defaultConfig: {statusPort: x}", "mesh: defaultConfig.statusPort='x': expected"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, problem: str) -> None:
    _, problems = parse_mesh(text, values(), source="mesh")

    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_a_text_without_content_is_the_default_mesh() -> None:
    assert mesh("# nothing\n").status_port == 15020


def test_the_annotation_is_over_the_mesh_and_variables_merge() -> None:
    found = mesh("defaultConfig: {concurrency: 3, proxyMetadata: {A: '1', B: '2'}}")

    merged = effective(found, "concurrency: 0\nproxyMetadata: {B: '3'}\ndiscoveryAddress: foo:123")

    assert written(merged) == {
        "discoveryAddress": "foo:123",
        "concurrency": 0,
        "proxyMetadata": {"A": "1", "B": "3"},
    }
    assert found.default_config["concurrency"] == 3


def test_resources_of_the_cluster_have_their_places() -> None:
    def resource(namespace: str, number: int, **labels: str) -> ProxyConfigResource:
        return ProxyConfigResource(namespace, labels, {"concurrency": number})

    root = resource("istio-system", 1)
    own = resource("prod", 2)
    selecting = resource("prod", 3, app="web")
    other = resource("other", 4)
    found = mesh("defaultConfig: {concurrency: 9}")

    def number(*resources: ProxyConfigResource, annotation: str = "", **labels: str) -> object:
        return effective(found._replace(resources=resources), annotation, **labels)["concurrency"]

    assert number(other) == 9
    assert number(own, root) == 2
    assert number(root) == 1
    assert number(own, root, annotation="concurrency: 5") == 5
    assert number(own, selecting, annotation="concurrency: 5", app="web") == 3
    assert number(own, selecting, app="api") == 2


def test_a_pod_of_the_root_namespace_has_its_resources_once() -> None:
    resource = ProxyConfigResource("istio-system", {}, {"concurrency": 1})

    found = effective_proxy_config(
        mesh()._replace(resources=(resource,)),
        namespace="istio-system",
        labels={},
        annotations={},
    )

    assert found["concurrency"] == 1


def test_an_unusable_annotation_is_an_error_that_names_it() -> None:
    with pytest.raises(BootstrapError, match=r"annotation proxy.istio.io/config: concurrency='x'"):
        effective(mesh(), "concurrency: x")


def test_proxy_config_leaves_defaults_out_and_has_protobufs_order() -> None:
    found = effective(
        mesh(),
        """
        proxyMetadata: {Z: "1", A: "<"}
        image: {imageType: debug}
        holdApplicationUntilProxyStarts: false
        terminationDrainDuration: 5s
        drainDuration: 90s
        tracing: {sampling: 5, zipkin: {address: "z:1"}}
        interceptionMode: REDIRECT
        configPath: ./etc/istio/proxy
        statNameLength: 189
        controlPlaneAuthPolicy: NONE
        """,
    )

    assert proxy_config_json(found) == (
        '{"drainDuration":"90s","tracing":{"zipkin":{"address":"z:1"},"sampling":5.0},'
        r'"proxyMetadata":{"A":"\u003c","Z":"1"},"holdApplicationUntilProxyStarts":false,'
        '"image":{"imageType":"debug"}}\n'
    )


def test_resources_are_read_as_proxy_configuration() -> None:
    document = {
        "metadata": {"namespace": "prod"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "concurrency": 0,
            "environmentVariables": {"A": "1"},
            "image": {"imageType": "distroless"},
            "other": 1,
        },
    }

    assert decode_resource(document) == ProxyConfigResource(
        "prod",
        {"app": "web"},
        {"concurrency": 0, "proxyMetadata": {"A": "1"}, "image": {"imageType": "distroless"}},
    )
    assert decode_resource({"metadata": {"namespace": "a"}, "spec": {}}) == ProxyConfigResource(
        "a", {}, {}
    )


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metadata": {}, "spec": []},
        {"metadata": {}, "spec": {"concurrency": "x"}},
        {"metadata": {}, "spec": {"selector": {"matchLabels": []}}},
    ],
)
def test_resources_that_cannot_be_read_are_none(document: dict[str, Any]) -> None:
    assert decode_resource(document) is None
