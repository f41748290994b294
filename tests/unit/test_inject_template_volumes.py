"""Source: status-lifecycle.md section 11.9."""

import json
from typing import Any

import pytest

from agent.inject.pipeline import InjectionError
from tests.fakes.injection import container, inject_pod, make_pod, names


def injected(
    annotations: dict[str, str] | None = None,
    *,
    values: dict[str, Any] | None = None,
    config: object = None,
) -> dict[str, Any]:
    mesh = {"defaultConfig": config} if config else None
    pod = make_pod(annotations=annotations, volumes=[{"name": "mine", "emptyDir": {}}])
    return inject_pod(pod, values=values, mesh=mesh).pod


def volume(pod: dict[str, Any], name: str) -> dict[str, Any]:
    found = next(item for item in pod["spec"]["volumes"] if item["name"] == name)
    return {key: value for key, value in found.items() if key != "name"}


def mounts(pod: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["mountPath"] for item in container(pod)["volumeMounts"]}


def test_volumes_of_the_user_come_last() -> None:
    assert names(injected(), "volumes")[-1] == "mine"


def test_sockets_are_left_open_for_others_to_fill() -> None:
    assert volume(injected(), "workload-socket") == {}


def test_another_ca_mounts_its_own_certificates() -> None:
    pod = injected(values={"global": {"caName": "GkeWorkloadCertificate"}})

    assert volume(pod, "gke-workload-certificate") == {
        "csi": {"driver": "workloadcertificates.security.cloud.google.com"}
    }
    assert "workload-certs" not in names(pod, "volumes")
    mount = next(
        item
        for item in container(pod)["volumeMounts"]
        if item["name"] == "gke-workload-certificate"
    )
    assert mount["readOnly"]


def test_the_root_certificate_has_several_sources() -> None:
    named = injected(values={"global": {"trustBundleName": "roots"}})
    bundle = injected(values={"pilot": {"env": {"ENABLE_CLUSTER_TRUST_BUNDLE_API": "true"}}})
    other = injected(values={"global": {"pilotCertProvider": "kubernetes"}})

    assert volume(named, "istiod-ca-cert") == {"configMap": {"name": "roots"}}
    assert volume(bundle, "istiod-ca-cert")["projected"]["sources"] == [
        {"clusterTrustBundle": {"name": "istio.io:istiod-ca:root-cert", "path": "root-cert.pem"}}
    ]
    assert "istiod-ca-cert" not in names(other, "volumes")
    assert "istio-ca-crl" in names(other, "volumes")
    assert {"istiod-ca-cert", "istio-ca-crl"} & set(mounts(other)) == set()


def test_values_add_volumes() -> None:
    pod = injected(
        values={"global": {"mountMtlsCerts": True}, "pilot": {"crlConfigMapName": "crl"}}
    )

    assert volume(pod, "istio-certs") == {
        "secret": {"secretName": "istio.default", "optional": True}
    }
    assert mounts(pod)["istio-certs"] == "/etc/certs/"
    assert volume(pod, "istio-ca-crl")["configMap"]["name"] == "crl"


def test_lightstep_has_its_roots() -> None:
    tracing = {
        "tracing": {
            "lightstep": {"address": "l:1", "accessToken": "t"},
            "tlsSettings": {"mode": "SIMPLE", "caCertificates": "/etc/lightstep/ca.pem"},
        }
    }
    lightstep = {"global": {"proxy": {"tracer": "lightstep"}}}

    assert mounts(injected(config=tracing, values=lightstep))["lightstep-certs"] == "/etc/lightstep"
    assert "lightstep-certs" not in mounts(injected(values=lightstep))
    assert "lightstep-certs" not in mounts(injected(config=tracing))


def test_annotations_add_volumes() -> None:
    pod = injected(
        {
            "sidecar.istio.io/bootstrapOverride": "map",
            "sidecar.istio.io/userVolume": json.dumps({"b": {"emptyDir": {}}, "a": {"csi": {}}}),
            "sidecar.istio.io/userVolumeMount": json.dumps({"a": {"mountPath": "/a"}}),
        }
    )

    assert volume(pod, "custom-bootstrap-volume") == {"configMap": {"name": "map"}}
    assert mounts(pod)["custom-bootstrap-volume"] == "/etc/istio/custom-bootstrap"
    assert names(pod, "volumes")[-3:] == ["a", "b", "mine"]
    assert mounts(pod)["a"] == "/a"


def test_an_annotation_with_something_else_is_refused() -> None:
    with pytest.raises(InjectionError, match=r"userVolume\['a'\]: expected an object"):
        injected({"sidecar.istio.io/userVolume": '{"a": 5}'})
