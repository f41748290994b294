"""Manifests as values."""

import pytest
import yaml

from tests.pod.cgroups import own_groups, settings
from tests.pod.environment import (
    Placed,
    command,
    common_user,
    expand,
    format_map,
    hosts,
    quantity,
    resolv_conf,
    variables,
)
from tests.pod.objects import (
    ACCOUNT_DIRECTORY,
    Exec,
    Grpc,
    HttpGet,
    Probe,
    Security,
    TcpSocket,
    Workload,
    application_ports,
    parse_security,
    parse_workload,
    probers,
)
from tests.pod.volumes import (
    File,
    Files,
    HostPath,
    NotFoundError,
    Scratch,
    Sources,
    content,
    nested,
)

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}, annotations: {a: "1", b: "say \\"hi\\"\\n"}}
spec:
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 5
  serviceAccountName: clerk
  securityContext: {runAsUser: 7, sysctls: [{name: net.a, value: "0"}]}
  initContainers:
  - {name: first, image: i, securityContext: {runAsUser: 0}}
  - name: istio-proxy
    image: proxy
    restartPolicy: Always
    env:
    - name: ISTIO_KUBE_APP_PROBERS
      value: '{"/app-health/web/readyz":{"httpGet":{"port":8443,"scheme":"HTTPS"}},
        "/app-health/web/livez":{"grpc":{"port":9,"service":null}},
        "/app-lifecycle/web/poststartz":{"tcpSocket":{"port":93}},
        "/app-health/other/livez":{"httpGet":{"port":1}}}'
  containers:
  - name: web
    image: web:1
    args: [$(NAME), $(UNKNOWN), $$(NAME), "$(CPU)"]
    ports: [{name: http, containerPort: 80}, {containerPort: 81}]
    env:
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: GREETING, value: hello $(NAME) on $(LATER) in $(PATH)}
    - {name: LATER, value: x}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "1"}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: "1"}}}
    - {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: ASKED, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    - {name: IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}
    - {name: NODE_IPS, valueFrom: {fieldRef: {fieldPath: status.hostIPs}}}
    - name: EMPTY
    resources: {limits: {cpu: 1500m}}
    readinessProbe:
      httpGet: {port: http, path: /r, httpHeaders: [{name: a, value: b}]}
      periodSeconds: 2
    livenessProbe: {grpc: {port: 9}}
    startupProbe: {exec: {command: [true]}, failureThreshold: 9}
    lifecycle: {postStart: {tcpSocket: {port: http}}, preStop: {exec: {command: [stop]}}}
    volumeMounts: [{name: v, mountPath: /v, readOnly: true}]
"""


@pytest.fixture
def workload() -> Workload:
    return parse_workload(yaml.safe_load(POD))


@pytest.fixture
def placed(workload: Workload) -> Placed:
    return Placed(
        name="web",
        uid="u",
        workload=workload,
        ip="10.0.0.2",
        node_name="node",
        node_ip="10.0.0.1",
        node_resources={"cpu": "4", "memory": "2Gi"},
        other_ip="fd00::2",
    )


def test_a_pod_has_its_defaults_filled_in(workload: Workload) -> None:
    web = workload.container("web")

    assert (workload.namespace, workload.policy, workload.grace_seconds) == (
        "default",
        "OnFailure",
        5,
    )
    assert workload.sysctls == {"net.a": "0"}
    assert web.readiness == Probe(HttpGet(80, "/r", "HTTP", (("a", "b"),)), period_seconds=2)
    assert web.liveness == Probe(Grpc(9))
    assert web.startup
    assert web.startup.failure_threshold == 9
    assert (web.post_start, web.pre_stop) == (TcpSocket(80), Exec(("stop",)))
    assert [kind for kind, _ in web.probes()] == ["startup", "readiness", "liveness"]
    assert [each.restartable for each in workload.init_containers] == [False, True]


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_a_workload_is_a_template_of_pods(kind: str) -> None:
    spec = {"containers": [{"name": "a", "image": "i"}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    manifest = {
        "kind": kind,
        "metadata": {"name": "w", "namespace": "n"},
        "spec": {"template": template},
    }

    made = parse_workload(manifest)

    assert (made.kind, made.name, made.namespace, made.labels) == (kind, "w", "n", {"a": "b"})
    assert (made.policy, made.grace_seconds) == ("Always", 30)


def test_a_container_overrides_what_its_pod_says_of_security(workload: Workload) -> None:
    users = [each.security.uid for each in workload.all_containers()]

    assert users == [0, 7, 7]
    assert common_user(workload.all_containers()) is None
    assert common_user(workload.containers) == 7


def test_the_group_of_the_volumes_is_one_of_all_containers() -> None:
    security = {"fsGroup": 9, "supplementalGroups": [8]}
    spec = {"containers": [{"name": "a", "image": "i"}], "securityContext": security}

    made = parse_workload({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec})

    assert (made.groups, made.fs_group) == ((9, 8), 9)


def test_capabilities_are_dropped_then_added() -> None:
    both = {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]}

    assert parse_security({"capabilities": both}).capabilities == {12, 13}
    assert parse_security({"capabilities": {"drop": ["NET_RAW"]}}).capabilities == (
        Security().capabilities - {13}
    )
    assert parse_security({"allowPrivilegeEscalation": False}).no_new_privileges
    assert not parse_security({}).no_new_privileges


def test_variables_refer_to_the_pod_its_resources_and_those_before(placed: Placed) -> None:
    web = placed.workload.container("web")

    environ = variables(placed, web)

    assert environ["GREETING"] == "hello web on $(LATER) in $(PATH)"
    assert (environ["CPU"], environ["MEMORY"], environ["ASKED"]) == ("2", str(2 << 30), "1500")
    assert (environ["APP"], environ["EMPTY"]) == ("web", "")
    assert (environ["IPS"], environ["NODE_IPS"]) == ("10.0.0.2,fd00::2", "10.0.0.1")
    assert environ["KUBERNETES_SERVICE_HOST"]
    assert command(web, ("run",), environ) == ["run", "web", "$(UNKNOWN)", "$(NAME)", "2"]
    assert command(web._replace(command=("other", "$(APP)"), args=()), ("run",), environ) == [
        "other",
        "web",
    ]


def test_a_field_that_there_is_not_is_refused(placed: Placed) -> None:
    with pytest.raises(KeyError):
        placed.field("spec.nothing")


def test_a_source_of_variables_that_there_is_not_is_refused(placed: Placed) -> None:
    variable = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}

    with pytest.raises(KeyError):
        variables(placed, placed.workload.container("web")._replace(env=(variable,)))


@pytest.mark.parametrize(
    ("text", "value"), [("100m", "1/10"), ("1Gi", str(1 << 30)), ("2", "2"), ("5k", "5000")]
)
def test_a_quantity_has_a_unit(text: str, value: str) -> None:
    assert str(quantity(text)) == value


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)$(A)", "11"),
        ("$$(A)", "$(A)"),
        ("$(B)", "$(B)"),
        ("$A", "$A"),
        ("$$$(A)", "$1"),
        ("$()", "$()"),
        ("$(A", "$(A"),
    ],
)
def test_references_are_expanded_once(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded


def test_limits_are_the_kernels_control_groups() -> None:
    limits = {"cpu": "1500m", "memory": "64Mi"}

    assert settings({"limits": limits}) == {
        "memory": {"memory.limit_in_bytes": str(64 << 20)},
        "cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"},
    }
    assert settings({"requests": limits}) == {}
    assert own_groups("4:memory:/a\n2:cpu,cpuacct:/\n0::/b\n") == {
        "memory": "/sys/fs/cgroup/memory/a",
        "cpu": "/sys/fs/cgroup/cpu",
        "cpuacct": "/sys/fs/cgroup/cpuacct",
    }


def test_the_downward_api_quotes_values(workload: Workload) -> None:
    assert format_map(workload.annotations) == 'a="1"\nb="say \\"hi\\"\\n"'


def test_a_pod_knows_itself_and_its_nameserver(placed: Placed) -> None:
    assert "10.0.0.2\tweb\nfd00::2\tweb\n" in hosts(placed)
    assert resolv_conf(placed, "10.0.0.1") == (
        "search default.svc.cluster.local svc.cluster.local cluster.local\n"
        "nameserver 10.0.0.1\n"
        "options ndots:5\n"
    )


def test_an_application_serves_what_is_declared_and_what_is_probed(workload: Workload) -> None:
    assert application_ports(workload, "web") == {
        80: "http",
        81: "tcp",
        8443: "https",
        9: "grpc",
        93: "tcp",
    }
    assert len(probers(workload)) == 4


SOURCES = Sources(
    config_maps={("default", "c"): {"k": "v", "l": "w"}},
    secrets={("default", "s"): {"p": "secret"}},
    token=lambda placed, audience: f"{placed.workload.service_account} for {audience}",
)


@pytest.mark.parametrize(
    ("volume", "files"),
    [
        ({"configMap": {"name": "c"}}, {"k": File("v"), "l": File("w")}),
        (
            {"configMap": {"name": "c", "items": [{"key": "k", "path": "x/y", "mode": 0o400}]}},
            {"x/y": File("v", 0o400)},
        ),
        ({"configMap": {"name": "none", "optional": True}}, {}),
        ({"secret": {"secretName": "s", "defaultMode": 0o440}}, {"p": File("secret", 0o440)}),
        (
            {
                "downwardAPI": {
                    "items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]
                }
            },
            {"l": File('app="web"')},
        ),
        (
            {
                "projected": {
                    "defaultMode": 0o440,
                    "sources": [
                        {"serviceAccountToken": {"path": "t", "audience": "istio-ca"}},
                        {"secret": {"name": "s", "items": [{"key": "p", "path": "q", "mode": 4}]}},
                    ],
                }
            },
            {"t": File("clerk for istio-ca", 0o440), "q": File("secret", 4)},
        ),
    ],
)
def test_a_volume_has_the_files_of_its_source(
    placed: Placed, volume: dict[str, object], files: dict[str, File]
) -> None:
    assert content({"name": "v", **volume}, placed, SOURCES) == Files(files)


def test_a_token_is_for_the_user_of_all_containers_alone(placed: Placed) -> None:
    alone = placed._replace(workload=placed.workload._replace(init_containers=()))
    volume = {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}

    assert content(volume, alone, SOURCES) == Files({"t": File("clerk for ", 0o600, 7)})


def test_the_group_of_a_pods_volumes_may_read_them(placed: Placed) -> None:
    workload = placed.workload._replace(fs_group=7)
    shared = placed._replace(workload=workload)
    projected = {"sources": [{"serviceAccountToken": {"path": "t"}}]}

    assert content({"name": "v"}, shared, SOURCES) == Scratch(0o2777, 7)
    assert content({"name": "v", "configMap": {"name": "c"}}, shared, SOURCES) == Files(
        {"k": File("v", 0o644, gid=7), "l": File("w", 0o644, gid=7)}
    )
    assert content({"name": "v", "projected": projected}, shared, SOURCES) == Files(
        {"t": File("clerk for ", 0o640, gid=7)}
    )


def test_a_pod_may_reach_the_api_server_unless_it_says_otherwise(placed: Placed) -> None:
    silent = {**yaml.safe_load(POD)["spec"], "automountServiceAccountToken": False}
    manifest = {"kind": "Pod", "metadata": {"name": "p"}, "spec": silent}
    volume = placed.workload.volumes[-1]
    sources = SOURCES._replace(config_maps={("default", "kube-root-ca.crt"): {"ca.crt": "pem"}})

    for container in placed.workload.all_containers():
        assert container.mounts[-1].path == ACCOUNT_DIRECTORY
    assert content(volume, placed, sources) == Files(
        {"token": File("clerk for "), "ca.crt": File("pem"), "namespace": File("default")}
    )
    assert parse_workload(manifest).volumes == ()


def test_a_volume_may_start_empty_or_be_the_nodes(placed: Placed) -> None:
    assert content({"name": "v"}, placed, SOURCES) == Scratch()
    assert content({"name": "v", "emptyDir": {"medium": "Memory"}}, placed, SOURCES) == Scratch()
    assert content({"name": "v", "hostPath": {"path": "/x"}}, placed, SOURCES) == HostPath("/x")


@pytest.mark.parametrize("kind", [{"configMap": {"name": "no"}}, {"secret": {"secretName": "no"}}])
def test_a_pod_needs_the_objects_of_its_volumes(placed: Placed, kind: dict[str, object]) -> None:
    with pytest.raises(NotFoundError, match="default/no"):
        content({"name": "v", **kind}, placed, SOURCES)


def test_volumes_may_be_mounted_in_others() -> None:
    mounts = [("crl", "/s/istio/crl"), ("ca", "/s/istio"), ("other", "/s/istio2")]

    assert list(nested(iter(mounts))) == [("ca", "crl")]
