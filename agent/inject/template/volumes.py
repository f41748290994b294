"""Volumes of an injected pod, and where the proxy mounts them.

Source: status-lifecycle.md sections 11.9 and 11.16.
"""

import posixpath
from typing import Any, Final, cast

from agent.inject.api.types import Object
from agent.inject.template.environment import BOOTSTRAP_OVERRIDE, json_annotation
from agent.inject.template.pod import TemplatePod

USER_VOLUME: Final = "sidecar.istio.io/userVolume"
USER_MOUNT: Final = "sidecar.istio.io/userVolumeMount"
GKE_CA: Final = "GkeWorkloadCertificate"
GKE_VOLUME: Final = "gke-workload-certificate"
GKE_DRIVER: Final = "workloadcertificates.security.cloud.google.com"
CREDENTIALS: Final = "/var/run/secrets/workload-spiffe-credentials"
DATA: Final = "/var/lib/istio/data"
CONFIGURATION: Final = "/etc/istio/proxy"
TOKEN_SECONDS: Final = 43200
MEMORY: Final[Object] = {"emptyDir": {"medium": "Memory"}}
EMPTY: Final[Object] = {"emptyDir": {}}
#: Left open: another template, such as that of a SPIFFE provider, may say what it is.
OPEN: Final[Object] = {}


def sidecar_volumes(pod: TemplatePod) -> list[Object]:
    """Return the volumes of a pod with a sidecar, in the order of the status annotation."""
    return [
        _volume("workload-socket", OPEN),
        _volume("credential-socket", OPEN),
        _certificates(pod, OPEN),
        *_bootstrap_override(pod),
        _volume("istio-envoy", MEMORY),
        *_of_every_agent(pod),
        _revocations(pod),
        *_mtls_certificates(pod),
        *user_volumes(pod),
        *_lightstep(pod),
    ]


def gateway_volumes(pod: TemplatePod) -> list[Object]:
    """Return the volumes of a gateway."""
    return [
        _volume("workload-socket", OPEN),
        _volume("credential-socket", EMPTY),
        _certificates(pod, EMPTY),
        *_bootstrap_override(pod),
        _volume("istio-envoy", MEMORY),
        *_of_every_agent(pod),
        *_mtls_certificates(pod),
    ]


def grpc_volumes(pod: TemplatePod) -> list[Object]:
    """Return the volumes of a pod whose application speaks xDS itself."""
    return [
        _volume("workload-socket", OPEN),
        _certificates(pod, OPEN),
        *_bootstrap_override(pod),
        _volume("istio-xds", MEMORY),
        *_of_every_agent(pod),
        *_mtls_certificates(pod),
        *user_volumes(pod),
    ]


def sidecar_mounts(pod: TemplatePod) -> list[Object]:
    """Return the mounts of a sidecar."""
    return [
        _mount("workload-socket", "/var/run/secrets/workload-spiffe-uds"),
        _mount("credential-socket", "/var/run/secrets/credential-uds"),
        certificates_mount(pod),
        *_root_mount(pod),
        *(
            [_mount("istio-ca-crl", "/var/run/secrets/istio/crl")]
            if pod.values.pilot_cert_provider == "istiod"
            else []
        ),
        _mount("istio-data", DATA),
        *_override_mount(pod),
        _mount("istio-envoy", CONFIGURATION),
        *_last_mounts(pod),
        *_lightstep_mount(pod),
        *user_mounts(pod),
    ]


def gateway_mounts(pod: TemplatePod) -> list[Object]:
    """Return the mounts of a gateway."""
    return [
        _mount("workload-socket", "/var/run/secrets/workload-spiffe-uds"),
        _mount("credential-socket", "/var/run/secrets/credential-uds"),
        certificates_mount(pod),
        *_root_mount(pod),
        _mount("istio-data", DATA),
        *_override_mount(pod),
        _mount("istio-envoy", CONFIGURATION),
        *_last_mounts(pod),
    ]


def grpc_mounts(pod: TemplatePod) -> list[Object]:
    """Return the mounts of an agent without Envoy."""
    return [
        _mount("workload-socket", "/var/run/secrets/workload-spiffe-uds"),
        certificates_mount(pod),
        *_root_mount(pod),
        *application_mounts(pod)[:2],
        *_last_mounts(pod),
        *user_mounts(pod),
    ]


def application_mounts(pod: TemplatePod) -> list[Object]:
    """Return what an application that speaks xDS itself reads of its agent."""
    return [
        _mount("istio-data", DATA),
        _mount("istio-xds", CONFIGURATION),
        certificates_mount(pod),
    ]


def certificates_mount(pod: TemplatePod) -> Object:
    """Return where certificates that somebody else issues are."""
    if pod.values.ca_name == GKE_CA:
        return _mount(GKE_VOLUME, CREDENTIALS, read_only=True)
    return _mount("workload-certs", CREDENTIALS)


def user_volumes(pod: TemplatePod) -> list[Object]:
    """Return the volumes that the user's annotation adds."""
    return [_volume(name, source) for name, source in _user_objects(pod, USER_VOLUME)]


def user_mounts(pod: TemplatePod) -> list[Object]:
    """Return the mounts that the user's annotation adds."""
    return [{"name": name, **mount} for name, mount in _user_objects(pod, USER_MOUNT)]


def _user_objects(pod: TemplatePod, annotation: str) -> list[tuple[str, Object]]:
    found = sorted(json_annotation(pod, annotation).items())
    for name, value in found:
        if not isinstance(value, dict):
            raise ValueError(f"annotation {annotation}[{name!r}]: expected an object")  # noqa: TRY004 - the user's text
    return found


def _volume(name: str, source: Object) -> Object:
    return {"name": name, **source}


def _mount(name: str, path: str, *, read_only: bool = False) -> Object:
    mount: Object = {"name": name, "mountPath": path}
    return {**mount, "readOnly": True} if read_only else mount


def _certificates(pod: TemplatePod, source: Object) -> Object:
    if pod.values.ca_name == GKE_CA:
        return _volume(GKE_VOLUME, {"csi": {"driver": GKE_DRIVER}})
    return _volume("workload-certs", source)


def _bootstrap_override(pod: TemplatePod) -> list[Object]:
    if BOOTSTRAP_OVERRIDE not in pod.annotations:
        return []
    source = {"configMap": {"name": pod.annotations[BOOTSTRAP_OVERRIDE]}}
    return [_volume("custom-bootstrap-volume", source)]


def _override_mount(pod: TemplatePod) -> list[Object]:
    if BOOTSTRAP_OVERRIDE not in pod.annotations:
        return []
    return [_mount("custom-bootstrap-volume", "/etc/istio/custom-bootstrap")]


def _of_every_agent(pod: TemplatePod) -> list[Object]:
    token = {
        "path": "istio-token",
        "expirationSeconds": TOKEN_SECONDS,
        "audience": pod.values.token_audience,
    }
    items = [
        {"path": name, "fieldRef": {"fieldPath": f"metadata.{name}"}}
        for name in ("labels", "annotations")
    ]
    return [
        _volume("istio-data", EMPTY),
        _volume("istio-podinfo", {"downwardAPI": {"items": items}}),
        _volume("istio-token", {"projected": {"sources": [{"serviceAccountToken": token}]}}),
        *_root_certificate(pod),
    ]


def _root_certificate(pod: TemplatePod) -> list[Object]:
    values = pod.values
    if values.pilot_cert_provider != "istiod":
        return []
    if not values.cluster_trust_bundles:
        name = values.trust_bundle_name or "istio-ca-root-cert"
        return [_volume("istiod-ca-cert", {"configMap": {"name": name}})]
    bundle = {
        "name": f"istio.io:istiod-ca:{values.trust_bundle_name or 'root-cert'}",
        "path": "root-cert.pem",
    }
    return [_volume("istiod-ca-cert", {"projected": {"sources": [{"clusterTrustBundle": bundle}]}})]


def _root_mount(pod: TemplatePod) -> list[Object]:
    if pod.values.pilot_cert_provider != "istiod":
        return []
    return [_mount("istiod-ca-cert", "/var/run/secrets/istio")]


def _revocations(pod: TemplatePod) -> Object:
    name = pod.values.crl_config_map or "istio-ca-crl"
    return _volume("istio-ca-crl", {"configMap": {"name": name, "optional": True}})


def _mtls_certificates(pod: TemplatePod) -> list[Object]:
    if not pod.values.mount_mtls_certs:
        return []
    account = pod.spec.get("serviceAccountName") or "default"
    return [
        _volume("istio-certs", {"secret": {"secretName": f"istio.{account}", "optional": True}})
    ]


def _last_mounts(pod: TemplatePod) -> list[Object]:
    mtls = [_mount("istio-certs", "/etc/certs/", read_only=True)]
    return [
        _mount("istio-token", "/var/run/secrets/tokens"),
        *(mtls if pod.values.mount_mtls_certs else []),
        _mount("istio-podinfo", "/etc/istio/pod"),
    ]


def _tracer_tls(pod: TemplatePod) -> Object | None:
    tracing = cast("dict[str, Any]", pod.proxy_config.get("tracing", {}))
    settings: Object | None = tracing.get("tlsSettings")
    return settings if pod.values.proxy.tracer == "lightstep" else None


def _lightstep(pod: TemplatePod) -> list[Object]:
    if _tracer_tls(pod) is None:
        return []
    source = {"secret": {"secretName": "lightstep.cacert", "optional": True}}
    return [_volume("lightstep-certs", source)]


def _lightstep_mount(pod: TemplatePod) -> list[Object]:
    settings = _tracer_tls(pod)
    if settings is None:
        return []
    directory = posixpath.dirname(settings.get("caCertificates", "")) or "."
    return [_mount("lightstep-certs", directory, read_only=True)]
