"""Volumes of an injected pod, and where the proxy mounts them.

Source: status-lifecycle.md sections 11.9 and 11.16.
"""

import posixpath
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, cast

from agent.inject.api.types import Object
from agent.inject.template.environment import BOOTSTRAP_OVERRIDE, json_annotation
from agent.inject.template.pod import TemplatePod

USER_VOLUME: Final = "sidecar.istio.io/userVolume"
USER_MOUNT: Final = "sidecar.istio.io/userVolumeMount"
GKE_CA: Final = "GkeWorkloadCertificate"
GKE_DRIVER: Final = "workloadcertificates.security.cloud.google.com"
TOKEN_SECONDS: Final = 43200
MEMORY: Final[Object] = {"emptyDir": {"medium": "Memory"}}
EMPTY: Final[Object] = {"emptyDir": {}}
#: Left open: another template, such as that of a SPIFFE provider, may say what it is.
OPEN: Final[Object] = {}

SOCKET: Final = "credential-socket"
CERTIFICATES: Final = "workload-certs"
GKE_CERTIFICATES: Final = "gke-workload-certificate"
DATA: Final = "istio-data"
ENVOY: Final = "istio-envoy"
XDS: Final = "istio-xds"
REVOCATIONS: Final = "istio-ca-crl"
BOOTSTRAP: Final = "custom-bootstrap-volume"
LIGHTSTEP: Final = "lightstep-certs"
#: Mounts come in this order; those of the user come last.
MOUNTED: Final = (
    "workload-socket",
    SOCKET,
    CERTIFICATES,
    GKE_CERTIFICATES,
    "istiod-ca-cert",
    REVOCATIONS,
    DATA,
    BOOTSTRAP,
    ENVOY,
    XDS,
    "istio-token",
    "istio-certs",
    "istio-podinfo",
    LIGHTSTEP,
)


class Storage(NamedTuple):
    """What a template adds to the pod's volumes, and to the proxy's mounts."""

    volumes: list[Object]
    mounts: list[Object]
    #: Of an application that speaks xDS itself: what it reads of its agent.
    application_mounts: Sequence[Object] = ()


class _Part(NamedTuple):
    """A volume, and where the proxy has it."""

    name: str
    source: Object
    #: '' where it is not mounted.
    path: str
    is_read_only: bool = False

    @property
    def volume(self) -> Object:
        return {"name": self.name, **self.source}

    @property
    def mount(self) -> Object:
        mount: Object = {"name": self.name, "mountPath": self.path}
        return {**mount, "readOnly": True} if self.is_read_only else mount


def sidecar_storage(pod: TemplatePod) -> Storage:
    """Return the volumes and mounts of a sidecar."""
    return _storage(_parts(pod), pod)


def gateway_storage(pod: TemplatePod) -> Storage:
    """Return those of a gateway: nothing fills them but itself, and users add none."""
    parts = _without(_parts(pod), REVOCATIONS, LIGHTSTEP)
    filled = [
        part._replace(source=EMPTY) if part.name in (SOCKET, CERTIFICATES) else part
        for part in parts
    ]
    return _storage(filled, pod._replace(annotations={}))


def grpc_storage(pod: TemplatePod) -> Storage:
    """Return those of an agent without Envoy, which has no use for a bootstrap of its own."""
    parts = [
        part._replace(
            name=XDS if part.name == ENVOY else part.name,
            path="" if part.name == BOOTSTRAP else part.path,
        )
        for part in _without(_parts(pod), SOCKET, REVOCATIONS, LIGHTSTEP)
    ]
    mounts = {part.name: part.mount for part in parts}
    shared = (DATA, XDS, GKE_CERTIFICATES, CERTIFICATES)
    return _storage(parts, pod)._replace(
        application_mounts=[mounts[name] for name in shared if name in mounts]
    )


def _storage(parts: list[_Part], pod: TemplatePod) -> Storage:
    volumes = [part.volume for part in parts if part.name != LIGHTSTEP]
    volumes += [{"name": name, **source} for name, source in _of_user(pod, USER_VOLUME)]
    volumes += [part.volume for part in parts if part.name == LIGHTSTEP]
    mounted = sorted(
        (part for part in parts if part.path), key=lambda part: MOUNTED.index(part.name)
    )
    mounts = [part.mount for part in mounted]
    mounts += [{"name": name, **mount} for name, mount in _of_user(pod, USER_MOUNT)]
    return Storage(volumes, mounts)


def _without(parts: Collection[_Part], *names: str) -> list[_Part]:
    return [part for part in parts if part.name not in names]


def _parts(pod: TemplatePod) -> list[_Part]:
    """Return all parts that the pod has, in the order of the status annotation."""
    values = pod.values
    revocations = {"name": values.crl_config_map or REVOCATIONS, "optional": True}
    account = pod.spec.get("serviceAccountName") or "default"
    certificates = {"secretName": f"istio.{account}", "optional": True}
    has_roots = values.pilot_cert_provider == "istiod"
    return [
        _Part("workload-socket", OPEN, "/var/run/secrets/workload-spiffe-uds"),
        _Part(SOCKET, OPEN, "/var/run/secrets/credential-uds"),
        _certificates(pod),
        *_bootstrap(pod),
        _Part(ENVOY, MEMORY, "/etc/istio/proxy"),
        _Part(DATA, EMPTY, "/var/lib/istio/data"),
        _Part("istio-podinfo", _pod_info(), "/etc/istio/pod"),
        _Part("istio-token", _token(pod), "/var/run/secrets/tokens"),
        *([_Part("istiod-ca-cert", _root(pod), "/var/run/secrets/istio")] if has_roots else []),
        _Part(
            REVOCATIONS,
            {"configMap": revocations},
            "/var/run/secrets/istio/crl" if has_roots else "",
        ),
        *(
            [_Part("istio-certs", {"secret": certificates}, "/etc/certs/", is_read_only=True)]
            if values.mount_mtls_certs
            else []
        ),
        *_lightstep(pod),
    ]


def _certificates(pod: TemplatePod) -> _Part:
    """Return where certificates that somebody else issues are."""
    path = "/var/run/secrets/workload-spiffe-credentials"
    if pod.values.ca_name != GKE_CA:
        return _Part(CERTIFICATES, OPEN, path)
    return _Part(GKE_CERTIFICATES, {"csi": {"driver": GKE_DRIVER}}, path, is_read_only=True)


def _bootstrap(pod: TemplatePod) -> list[_Part]:
    name = pod.annotations.get(BOOTSTRAP_OVERRIDE)
    source = {"configMap": {"name": name}}
    return [] if name is None else [_Part(BOOTSTRAP, source, "/etc/istio/custom-bootstrap")]


def _pod_info() -> Object:
    items = [
        {"path": name, "fieldRef": {"fieldPath": f"metadata.{name}"}}
        for name in ("labels", "annotations")
    ]
    return {"downwardAPI": {"items": items}}


def _token(pod: TemplatePod) -> Object:
    token = {
        "path": "istio-token",
        "expirationSeconds": TOKEN_SECONDS,
        "audience": pod.values.token_audience,
    }
    return {"projected": {"sources": [{"serviceAccountToken": token}]}}


def _root(pod: TemplatePod) -> Object:
    name = pod.values.trust_bundle_name
    if not pod.values.cluster_trust_bundles:
        return {"configMap": {"name": name or "istio-ca-root-cert"}}
    bundle = {"name": f"istio.io:istiod-ca:{name or 'root-cert'}", "path": "root-cert.pem"}
    return {"projected": {"sources": [{"clusterTrustBundle": bundle}]}}


def _lightstep(pod: TemplatePod) -> list[_Part]:
    tracing = cast("dict[str, Any]", pod.proxy_config.get("tracing", {}))
    settings: Object | None = tracing.get("tlsSettings")
    if settings is None or pod.values.proxy.tracer != "lightstep":
        return []
    directory = posixpath.dirname(settings.get("caCertificates", "")) or "."
    source = {"secret": {"secretName": "lightstep.cacert", "optional": True}}
    return [_Part(LIGHTSTEP, source, directory, is_read_only=True)]


def _of_user(pod: TemplatePod, annotation: str) -> list[tuple[str, Object]]:
    """Return the volumes, or the mounts, that the user's annotation adds, by their names."""
    found = sorted(json_annotation(pod, annotation).items())
    for name, value in found:
        if not isinstance(value, dict):
            raise ValueError(f"annotation {annotation}[{name!r}]: expected an object")  # noqa: TRY004 - the user's text
    return found
