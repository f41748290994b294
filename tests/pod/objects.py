"""Pods as the API server hands them to a kubelet: manifests as values, defaults filled in."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

Json = Mapping[str, Any]
Policy = Literal["Always", "OnFailure", "Never"]

#: What a container has unless it drops them: the usual runtimes' set. Linux, capability.h.
CAPABILITIES: Final = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "NET_RAW": 13,
    "SYS_CHROOT": 18,
    "MKNOD": 27,
    "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}
ADDED: Final = {**CAPABILITIES, "NET_ADMIN": 12, "SYS_ADMIN": 21}
#: What the admission of service accounts adds to every pod.
ACCOUNT_DIRECTORY: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
API_ACCESS: Final[Json] = {
    "name": "kube-api-access",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt"}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ]
    },
}


class HttpGet(NamedTuple):
    """A question over HTTP or HTTPS."""

    port: int
    path: str = "/"
    scheme: str = "HTTP"
    headers: tuple[tuple[str, str], ...] = ()


class TcpSocket(NamedTuple):
    """A connection."""

    port: int


class Grpc(NamedTuple):
    """A question to the health service."""

    port: int
    service: str = ""


class Exec(NamedTuple):
    """A program run in the container."""

    command: tuple[str, ...]


class Sleep(NamedTuple):
    """A pause."""

    seconds: float


Handler = HttpGet | TcpSocket | Grpc | Exec | Sleep


class Probe(NamedTuple):
    """A question that is asked again and again."""

    handler: Handler
    initial_delay_seconds: float = 0
    period_seconds: float = 10
    timeout_seconds: float = 1
    success_threshold: int = 1
    failure_threshold: int = 3


class Security(NamedTuple):
    """Who a container's programs are, and what they may do."""

    uid: int | None = None  #: the image's, without
    gid: int | None = None
    is_never_root: bool = False
    capabilities: frozenset[int] = frozenset(CAPABILITIES.values())
    read_only_root: bool = False
    no_new_privileges: bool = False


class Mount(NamedTuple):
    """Where a container has a volume."""

    volume: str
    path: str
    read_only: bool = False
    sub_path: str = ""


class Container(NamedTuple):
    """A container of any kind."""

    name: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    directory: str
    env: tuple[Json, ...]  #: as it stands in the manifest
    ports: Mapping[str, int]  #: by name, or by the number where there is none
    resources: Json
    security: Security
    mounts: tuple[Mount, ...]
    restartable: bool  #: of an init container: a native sidecar
    startup: Probe | None
    readiness: Probe | None
    liveness: Probe | None
    post_start: Handler | None
    pre_stop: Handler | None

    def probes(self) -> Iterator[tuple[str, Probe]]:
        """Yield the probes that there are, by their names."""
        for kind in ("startup", "readiness", "liveness"):
            probe = getattr(self, kind)
            if probe:
                yield kind, probe


class Workload(NamedTuple):
    """One pod of a workload, not yet placed on a node."""

    kind: str  #: of the workload
    name: str
    namespace: str
    service_account: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    init_containers: tuple[Container, ...]
    containers: tuple[Container, ...]
    volumes: tuple[Json, ...]
    policy: Policy
    grace_seconds: float
    sysctls: Mapping[str, str]
    #: Of every container, beside its own one; that of the volumes comes first.
    groups: tuple[int, ...] = ()
    #: Of the volumes.
    fs_group: int | None = None

    def all_containers(self) -> tuple[Container, ...]:
        return (*self.init_containers, *self.containers)

    def container(self, name: str) -> Container:
        return next(each for each in self.all_containers() if each.name == name)


def parse_workload(manifest: Json) -> Workload:
    """Return the pod of a Pod, of a Deployment or of a Job, as the API server admits it."""
    kind = manifest["kind"]
    template = manifest if kind == "Pod" else manifest["spec"]["template"]
    spec = admit(template["spec"])
    metadata = {**manifest["metadata"], **template.get("metadata", {})}
    pod_security = spec.get("securityContext", {})
    fs_group = pod_security.get("fsGroup")
    groups = [fs_group] if fs_group is not None else []
    return Workload(
        kind=kind,
        name=manifest["metadata"]["name"],
        namespace=manifest["metadata"].get("namespace", "default"),
        service_account=spec.get("serviceAccountName", "default"),
        labels=metadata.get("labels", {}),
        annotations=metadata.get("annotations", {}),
        init_containers=_containers(spec.get("initContainers", ()), pod_security),
        containers=_containers(spec["containers"], pod_security),
        volumes=tuple(spec.get("volumes", ())),
        policy=spec.get("restartPolicy", "Always"),
        grace_seconds=spec.get("terminationGracePeriodSeconds", 30),
        sysctls={each["name"]: each["value"] for each in pod_security.get("sysctls", ())},
        groups=(*groups, *pod_security.get("supplementalGroups", ())),
        fs_group=fs_group,
    )


def admit(spec: Json) -> Json:
    """Return a pod's spec with the volume by which its programs reach the API server."""
    if not spec.get("automountServiceAccountToken", True):
        return spec
    mount = {"name": API_ACCESS["name"], "mountPath": ACCOUNT_DIRECTORY, "readOnly": True}

    def mounted(containers: Sequence[Json]) -> list[Json]:
        return [
            {**one, "volumeMounts": [*one.get("volumeMounts", ()), mount]} for one in containers
        ]

    return {
        **spec,
        "initContainers": mounted(spec.get("initContainers", ())),
        "containers": mounted(spec["containers"]),
        "volumes": [*spec.get("volumes", ()), API_ACCESS],
    }


def _containers(found: Sequence[Json], pod_security: Json) -> tuple[Container, ...]:
    return tuple(_container(each, pod_security) for each in found)


def _container(found: Json, pod_security: Json) -> Container:
    ports = {
        str(each.get("name", each["containerPort"])): int(each["containerPort"])
        for each in found.get("ports", ())
    }
    lifecycle = found.get("lifecycle", {})
    return Container(
        name=found["name"],
        image=found.get("image", ""),
        command=tuple(found.get("command", ())),
        args=tuple(found.get("args", ())),
        directory=found.get("workingDir", ""),
        env=tuple(found.get("env", ())),
        ports=ports,
        resources=found.get("resources", {}),
        security=parse_security({**pod_security, **found.get("securityContext", {})}),
        mounts=tuple(
            Mount(
                each["name"],
                each["mountPath"],
                read_only=each.get("readOnly", False),
                sub_path=each.get("subPath", ""),
            )
            for each in found.get("volumeMounts", ())
        ),
        restartable=found.get("restartPolicy") == "Always",
        startup=_probe(found.get("startupProbe"), ports),
        readiness=_probe(found.get("readinessProbe"), ports),
        liveness=_probe(found.get("livenessProbe"), ports),
        post_start=_handler(lifecycle.get("postStart"), ports),
        pre_stop=_handler(lifecycle.get("preStop"), ports),
    )


def parse_security(found: Json) -> Security:
    """Return what a securityContext says, the pod's under the container's."""
    changes = found.get("capabilities", {})
    dropped = changes.get("drop", ())
    kept = {} if "ALL" in dropped else {k: v for k, v in CAPABILITIES.items() if k not in dropped}
    added = {name: ADDED[name] for name in changes.get("add", ())}
    return Security(
        uid=found.get("runAsUser"),
        gid=found.get("runAsGroup"),
        is_never_root=found.get("runAsNonRoot", False),
        capabilities=frozenset({**kept, **added}.values()),
        read_only_root=found.get("readOnlyRootFilesystem", False),
        no_new_privileges=not found.get("allowPrivilegeEscalation", True),
    )


def _probe(found: Json | None, ports: Mapping[str, int]) -> Probe | None:
    handler = _handler(found, ports)
    if not found or not handler:
        return None
    timings = {
        "initial_delay_seconds": "initialDelaySeconds",
        "period_seconds": "periodSeconds",
        "timeout_seconds": "timeoutSeconds",
        "success_threshold": "successThreshold",
        "failure_threshold": "failureThreshold",
    }
    return Probe(handler, **{key: found[name] for key, name in timings.items() if name in found})


def _handler(found: Json | None, ports: Mapping[str, int]) -> Handler | None:
    for kind, value in (found or {}).items():
        match kind:
            case "httpGet":
                headers = ((each["name"], each["value"]) for each in value.get("httpHeaders", ()))
                path, scheme = value.get("path", "/"), value.get("scheme", "HTTP")
                return HttpGet(_port(value["port"], ports), path, scheme, tuple(headers))
            case "tcpSocket":
                return TcpSocket(_port(value["port"], ports))
            case "grpc":
                return Grpc(value["port"], value.get("service") or "")
            case "exec":
                return Exec(tuple(value["command"]))
            case "sleep":
                return Sleep(value["seconds"])
    return None


def _port(found: int | str, ports: Mapping[str, int]) -> int:
    return ports[found] if isinstance(found, str) else found


def application_ports(workload: Workload, container: str) -> dict[int, str]:
    """Return the ports that a container's program is expected to serve, and what is spoken there.

    Those that are declared, and those that the sidecar was told to probe in the container's place:
    "http", "https", "grpc" or "tcp".
    """
    declared = workload.container(container).ports
    spoken = {
        port: next((kind for kind in ("grpc", "http") if name.startswith(kind)), "tcp")
        for name, port in declared.items()
    }
    for path, prober in probers(workload).items():
        if path.split("/")[2] == container:
            spoken.update(_probed(prober))
    return spoken


def probers(workload: Workload) -> dict[str, Json]:
    """Return what the injector told the sidecar to probe, by path on the status port."""
    variables = (each for one in workload.all_containers() for each in one.env)
    text = next((v["value"] for v in variables if v["name"] == "ISTIO_KUBE_APP_PROBERS"), "{}")
    found: dict[str, Json] = json.loads(text)
    return found


def _probed(prober: Json) -> Iterator[tuple[int, str]]:
    if "httpGet" in prober:
        yield prober["httpGet"]["port"], prober["httpGet"].get("scheme", "HTTP").lower()
    if "grpc" in prober:
        yield prober["grpc"]["port"], "grpc"
    if "tcpSocket" in prober:
        yield prober["tcpSocket"]["port"], "tcp"
