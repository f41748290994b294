"""Pods as users write them, and what hostile clients write in their place."""

import copy
from typing import Any

from hypothesis import strategies as st

Object = dict[str, Any]

NAMES = st.sampled_from(["app", "web", "log", "a.b", "istio-proxy"])
PORTS = st.integers(1, 65535) | st.sampled_from(["http", "grpc", "gone"])
PATHS = st.sampled_from(["/", "/healthz?a=1&b=<2>", "relative"])
LABEL_VALUES = st.sampled_from(["", "web", "a" * 63, "true", "false"])
TEXT = st.text(max_size=12)

HANDLERS = st.one_of(
    st.fixed_dictionaries(
        {"httpGet": st.fixed_dictionaries({"port": PORTS}, optional={"path": PATHS, "host": TEXT})}
    ),
    st.fixed_dictionaries({"tcpSocket": st.fixed_dictionaries({"port": PORTS})}),
    st.fixed_dictionaries({"exec": st.just({"command": ["true"]})}),
)
GRPC = st.builds(lambda port: {"grpc": {"port": port}}, st.integers(0, 65535))
PROBES = st.builds(
    lambda handler, timing: {**handler, **timing},
    HANDLERS | GRPC,
    st.fixed_dictionaries(
        {}, optional={"timeoutSeconds": st.integers(0, 9), "periodSeconds": st.integers(0, 99)}
    ),
)
ENVIRONMENT = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["A", "B", "CA_ADDR"]), "value": TEXT}),
    max_size=2,
    unique_by=lambda item: item["name"],
)
CONTAINERS = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "image": st.sampled_from(["auto", "web:1", ""]),
        "args": st.lists(TEXT, max_size=2),
        "env": ENVIRONMENT,
        "ports": st.just([{"name": "http", "containerPort": 80}]),
        "readinessProbe": PROBES,
        "livenessProbe": PROBES,
        "startupProbe": PROBES,
        "lifecycle": st.fixed_dictionaries({}, optional={"preStop": HANDLERS}),
        "securityContext": st.fixed_dictionaries(
            {}, optional={"runAsUser": st.integers(0, 3000), "privileged": st.booleans()}
        ),
        "resources": st.fixed_dictionaries(
            {}, optional={"limits": st.just({"cpu": "2000m", "memory": "1024Mi"})}
        ),
        "volumeMounts": st.just([{"name": "v", "mountPath": "/etc/istio/proxy"}]),
    },
)
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        "note": TEXT,
        "prometheus.io/port": st.sampled_from(["80", "8080"]),
        "prometheus.io/scrape": st.sampled_from(["true", "false"]),
        "prometheus.istio.io/scrape-targets": st.sampled_from(["80,81:/x", ":/x"]),
        "sidecar.istio.io/interceptionMode": st.sampled_from(["REDIRECT", "TPROXY", "NONE"]),
        "status.sidecar.istio.io/port": st.sampled_from(["0", "15020", "15999"]),
        "sidecar.istio.io/proxyCPU": st.just("100m"),
        "traffic.sidecar.istio.io/excludeInboundPorts": st.sampled_from(["", "4, 5"]),
        "inject.istio.io/templates": st.sampled_from(
            ["sidecar", "gateway", "grpc-agent", "grpc-simple"]
        ),
        "proxy.istio.io/config": st.just("concurrency: 2\nproxyMetadata: {X: y}"),
    },
)
PODS = st.builds(
    lambda containers, before, labels, annotations, spec: {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": labels, "annotations": annotations},
        "spec": {"containers": containers, "initContainers": before, **spec},
    },
    st.lists(CONTAINERS, max_size=3, unique_by=lambda item: item["name"]),
    st.lists(
        st.fixed_dictionaries({"name": st.sampled_from(["init-1", "init-2"])}),
        max_size=2,
        unique_by=lambda item: item["name"],
    ),
    st.dictionaries(
        st.sampled_from(["app", "version", "topology.istio.io/network"]), LABEL_VALUES, max_size=2
    ),
    ANNOTATIONS,
    st.fixed_dictionaries(
        {},
        optional={
            "imagePullSecrets": st.just([{"name": ""}, {"name": "s"}]),
            "volumes": st.just([{"name": "v", "emptyDir": {}}]),
            "unknown": st.just({"a": 1}),
            "nodeName": st.just("n"),
        },
    ),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=12,
)


@st.composite
def broken_pods(draw: st.DrawFn) -> Object:
    """Return a pod of which one part is something else."""
    pod: Object = copy.deepcopy(draw(PODS))
    places: list[tuple[Any, Any]] = []
    pending: list[Any] = [pod]
    while pending:
        value = pending.pop()
        keys = value.keys() if isinstance(value, dict) else range(len(value))
        places += [(value, key) for key in keys]
        pending += [value[key] for key in keys if isinstance(value[key], dict | list)]
    where, key = draw(st.sampled_from(places))
    where[key] = draw(JSON)
    return pod
