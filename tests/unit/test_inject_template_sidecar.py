"""Source: status-lifecycle.md sections 11.6 to 11.9; decision D6."""

import json
from typing import Any

import pytest

from tests.fakes.injection import (
    annotations_of,
    container,
    inject_pod,
    make_pod,
    names,
    variable,
)

CNI = {"pilot": {"cni": {"enabled": True, "provider": "default"}}}
TRAFFIC = "traffic.sidecar.istio.io/"


Object = dict[str, Any]


def injected(
    annotations: Object | None = None,
    *,
    proxy: Object | None = None,
    values: Object | None = None,
    config: Object | None = None,
    native: bool = True,
    before: list[Object] | None = None,
) -> Object:
    return inject_pod(
        make_pod(annotations=annotations, initContainers=before or []),
        native=native,
        values=values or {"global": {"proxy": proxy or {}}},
        mesh={"defaultConfig": config} if config else None,
    ).pod


def init_arguments(annotations: Object) -> list[str]:
    found: list[str] = injected(annotations)["spec"]["initContainers"][0]["args"]
    return found


def test_labels_say_who_the_workload_is() -> None:
    def labels(**given: str) -> dict[str, str]:
        renamed = {
            name.replace("__", "/").replace("_", "-"): value for name, value in given.items()
        }
        pod = make_pod(labels=renamed)
        found: dict[str, str] = inject_pod(pod).pod["metadata"]["labels"]
        return {name.rpartition("/")[2]: value for name, value in found.items()}

    assert labels()["canonical-name"] == "web"
    assert labels()["canonical-revision"] == "latest"
    assert labels()["tlsMode"] == "istio"
    assert labels(**{"app.kubernetes.io__name": "shop"})["canonical-name"] == "shop"
    assert (
        labels(**{"service.istio.io__canonical_name": "x", "app.kubernetes.io__name": "y"})[
            "canonical-name"
        ]
        == "x"
    )
    assert labels(version="v1")["canonical-revision"] == "v1"
    assert labels(app="", version="")["canonical-name"] == "web-1"
    assert labels(app="a" * 62 + "-b")["canonical-name"] == "a" * 62
    assert labels(**{"security.istio.io__tlsMode": "disabled"})["tlsMode"] == "disabled"


def test_a_tunnel_is_labelled() -> None:
    pod = injected(config={"proxyMetadata": {"ISTIO_META_ENABLE_HBONE": "true"}})

    assert pod["metadata"]["labels"]["networking.istio.io/tunnel"] == "http"


def test_default_containers_are_not_changed() -> None:
    name = "kubectl.kubernetes.io/default-container"

    assert annotations_of(injected())[name] == "app"
    assert annotations_of(injected({name: "other"}))[name] == "other"


def test_capture_follows_the_annotations() -> None:
    arguments = init_arguments(
        {
            f"{TRAFFIC}includeOutboundIPRanges": "",
            f"{TRAFFIC}excludeOutboundIPRanges": "10.0.0.0/8",
            f"{TRAFFIC}includeInboundPorts": "80",
            f"{TRAFFIC}excludeInboundPorts": " 81 ",
            f"{TRAFFIC}includeOutboundPorts": "",
            f"{TRAFFIC}excludeOutboundPorts": "90",
            f"{TRAFFIC}kubevirtInterfaces": "net1",
            f"{TRAFFIC}excludeInterfaces": "eth1",
            "istio.io/reroute-virtual-interfaces": "net2",
            "sidecar.istio.io/agentLogLevel": "default:debug",
        }
    )

    assert arguments == [
        *("istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT"),
        *("-i", "", "-x", "10.0.0.0/8", "-b", "80", "-d", "15090,15021,81,15020"),
        *("-q", "", "-o", "90", "-k", "net2", "-c", "eth1", "--log_output_level=default:debug"),
    ]


def test_ports_to_exclude_include_the_status_port_once() -> None:
    def excluded(ports: str, **annotations: str) -> str:
        arguments = init_arguments({f"{TRAFFIC}excludeInboundPorts": ports, **annotations})
        return arguments[arguments.index("-d") + 1]

    status = "status.sidecar.istio.io/port"

    assert excluded("") == "15090,15021,15020"
    assert excluded("4, 5") == "15090,15021,4,5,15020"
    assert excluded("15020,4") == "15090,15021,15020,4"
    assert excluded("4, 5", **{status: "0"}) == "15090,15021,4, 5"
    assert excluded("", **{status: "0"}) == "15090,15021"
    assert excluded("", **{status: " 15999 "}) == "15090,15021,15999"


def test_values_shape_the_capture() -> None:
    values: Object = {
        "global": {
            "logAsJson": True,
            "nativeNftables": True,
            "imagePullPolicy": "Always",
            "proxy_init": {"forceApplyIptables": True},
            "proxy": {
                "includeIPRanges": "10.0.0.0/8",
                "includeOutboundPorts": "1",
                "excludeOutboundPorts": "2",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }
    }

    init = injected(values=values)["spec"]["initContainers"][0]

    assert init["args"][9:] == [
        *("-i", "10.0.0.0/8", "-x", "", "-b", "*", "-d", "15090,15021,15020"),
        *("-q", "1", "-o", "2", "--log_output_level=default:info", "--log_as_json"),
        *("--force-apply", "--native-nftables"),
    ]
    assert init["imagePullPolicy"] == "Always"
    assert init["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_where_nothing_is_captured_there_is_no_init_container() -> None:
    mode = {"sidecar.istio.io/interceptionMode": "NONE"}
    mine = [{"name": "mine", "image": "x"}]

    assert names(injected(mode), "initContainers") == ["istio-proxy"]
    assert names(injected(mode, native=False, before=mine), "initContainers") == ["mine"]
    assert "initContainers" not in injected(mode, native=False)["spec"]


def test_with_cni_capture_is_proved_and_the_plugin_is_told() -> None:
    pod = injected(
        {f"{TRAFFIC}excludeOutboundPorts": "", "istio.io/reroute-virtual-interfaces": "net1"},
        values={**CNI, "global": {"proxy": {"privileged": True}}},
    )

    validation = pod["spec"]["initContainers"][0]
    assert validation["name"] == "istio-validation"
    assert validation["args"][-2:] == ["--run-validation", "--skip-rule-apply"]
    assert validation["securityContext"] == {
        "capabilities": {"drop": ["ALL"]},
        "privileged": True,
        "runAsUser": 1337,
        "runAsGroup": 1337,
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": True,
    }
    found = annotations_of(pod)
    assert found[f"{TRAFFIC}excludeOutboundPorts"] == ""
    assert found["istio.io/reroute-virtual-interfaces"] == "net1"
    assert found["sidecar.istio.io/interceptionMode"] == "REDIRECT"
    assert f"{TRAFFIC}excludeOutboundIPRanges" not in found


@pytest.mark.parametrize(
    ("given", "networks"),
    [
        ("", "default/istio-cni"),
        ("alt", "alt, default/istio-cni"),
        ("a, default/istio-cni", "a, default/istio-cni"),
        ('[{"name": "alt"}]', '[{"name": "alt"}, {"name": "default/istio-cni"}]'),
        ("[]", '[{"name": "default/istio-cni"}]'),
        ('[{"name": "default/istio-cni"}]', '[{"name": "default/istio-cni"}]'),
        ("[x", "[x"),
    ],
)
def test_multus_is_told_of_one_more_network(given: str, networks: str) -> None:
    name = "k8s.v1.cni.cncf.io/networks"
    multus = {"pilot": {"cni": {"enabled": True, "provider": "multus"}}}

    assert annotations_of(injected({name: given}, values=multus))[name] == networks


@pytest.mark.parametrize(
    ("annotations", "proxy", "config", "tag", "image"),
    [
        ({}, "proxyv2", {}, "1.0", "hub/proxyv2:1.0"),
        ({}, "other.io/p:2", {}, "1.0", "other.io/p:2"),
        ({"proxyImage": "my.io/p:3"}, "proxyv2", {}, "1.0", "my.io/p:3"),
        ({"proxyImage": "plain"}, "proxyv2", {}, "1.0", "hub/proxyv2:1.0"),
        ({"proxyImageType": "debug"}, "proxyv2", {}, "1.0-distroless", "hub/proxyv2:1.0-debug"),
        ({}, "proxyv2", {"image": {"imageType": "debug"}}, "1.0", "hub/proxyv2:1.0-debug"),
        ({"proxyImageType": "default"}, "proxyv2", {}, "1.0-debug", "hub/proxyv2:1.0"),
        ({}, "proxyv2", {}, "", "hub/proxyv2"),
    ],
)
def test_an_image_is_chosen_and_has_its_type(
    annotations: dict[str, str], proxy: str, config: Object, tag: str, image: str
) -> None:
    values: Object = {"global": {"hub": "hub", "tag": tag, "proxy": {"image": proxy}}}

    pod = injected(
        {f"sidecar.istio.io/{name}": value for name, value in annotations.items()},
        values=values,
        config=config,
    )

    assert container(pod)["image"] == image


def test_the_variant_is_the_type_of_images_that_say_none() -> None:
    values: Object = {"global": {"hub": "h", "tag": "1", "variant": "distroless"}}

    pod = injected(values=values)

    assert container(pod)["image"] == "h/mesh-agent:1-distroless"
    assert container(pod, "istio-init")["image"] == "h/mesh-agent:1-distroless"


def test_arguments_follow_values_and_annotations() -> None:
    values: Object = {
        "global": {
            "sts": {"servicePort": 463},
            "logAsJson": True,
            "proxy": {"outlierLogPath": "/dev/stdout", "clusterDomain": "mesh.local"},
        }
    }

    pod = injected(
        {
            "sidecar.istio.io/logLevel": "debug",
            "sidecar.istio.io/componentLogLevel": "dns:trace",
            "sidecar.istio.io/agentLogLevel": "all:debug",
        },
        values=values,
    )

    assert container(pod)["args"] == [
        *("proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.mesh.local"),
        *("--proxyLogLevel=debug", "--proxyComponentLogLevel=dns:trace"),
        *("--log_output_level=all:debug", "--stsPort=463", "--log_as_json"),
        "--outlierLogPath=/dev/stdout",
    ]


def lifecycle(pod: Object) -> object:
    return container(pod).get("lifecycle")


def test_hooks_drain_or_hold_or_are_the_meshs_own() -> None:
    hold = {"holdApplicationUntilProxyStarts": True}
    own = {"preStop": {"exec": {"command": ["x"]}}}
    drain = ["pilot-agent", "request", "--debug-port=15020", "POST", "drain"]

    assert lifecycle(injected()) == {"preStop": {"exec": {"command": drain}}}
    assert lifecycle(injected(config=hold)) == {"preStop": {"exec": {"command": drain}}}
    assert lifecycle(injected(native=False)) is None
    assert lifecycle(injected(native=False, config=hold)) == {
        "postStart": {"exec": {"command": ["pilot-agent", "wait"]}}
    }
    assert lifecycle(injected(proxy={"lifecycle": own}, config=hold, native=False)) == own


def test_a_held_application_comes_after_the_proxy() -> None:
    held = injected(native=False, proxy={"holdApplicationUntilProxyStarts": True})

    assert names(held, "containers") == ["istio-proxy", "app"]
    assert names(injected(native=False), "containers") == ["app", "istio-proxy"]


def test_the_hook_asks_the_status_port_if_there_is_one() -> None:
    port = "status.sidecar.istio.io/port"

    assert "--debug-port=15999" in json.dumps(lifecycle(injected(annotations={port: "15999"})))
    assert lifecycle(injected(annotations={port: "0"})) is None


def test_probes_follow_annotations_and_values() -> None:
    readiness = "readiness.status.sidecar.istio.io/"

    proxy = container(
        injected(
            {f"{readiness}initialDelaySeconds": "2", f"{readiness}periodSeconds": "3"},
            proxy={"readinessFailureThreshold": 9, "startupProbe": {"failureThreshold": 5}},
        )
    )

    assert proxy["readinessProbe"] == {
        "httpGet": {"path": "/healthz/ready", "port": 15021},
        "initialDelaySeconds": 2,
        "timeoutSeconds": 3,
        "periodSeconds": 3,
        "failureThreshold": 9,
    }
    assert proxy["startupProbe"]["failureThreshold"] == 5
    assert "startupProbe" not in container(injected(proxy={"startupProbe": {"enabled": False}}))


def test_without_a_status_port_there_are_no_probes() -> None:
    for found in (
        injected({"status.sidecar.istio.io/port": "0"}),
        injected(proxy={"statusPort": 0}),
    ):
        assert not {"readinessProbe", "startupProbe"} & set(container(found))


def test_resources_are_those_of_annotations_alone_or_the_meshs() -> None:
    asked = container(
        injected({"sidecar.istio.io/proxyCPU": "4000m", "sidecar.istio.io/proxyMemoryLimit": "2Gi"})
    )
    some = {"limits": {"cpu": None, "memory": 0}}

    assert asked["resources"] == {"requests": {"cpu": "4"}, "limits": {"memory": "2Gi"}}
    assert container(injected(proxy={"resources": some}))["resources"] == {
        "limits": {"memory": "0"},
        "requests": {"cpu": "100m", "memory": "128Mi"},
    }


def security(pod: Object) -> Object:
    found: Object = container(pod)["securityContext"]
    return found


def test_the_proxy_has_no_more_rights_than_it_needs() -> None:
    root = {"runAsUser": 0, "runAsGroup": 1337, "runAsNonRoot": False}
    binding = {"sidecar.istio.io/capNetBindService": "true"}

    assert security(injected())["capabilities"] == {"drop": ["ALL"]}
    transparent = security(injected(config={"interceptionMode": "TPROXY"}, annotations=binding))
    assert transparent["capabilities"]["add"] == ["NET_ADMIN", "NET_BIND_SERVICE"]
    assert transparent | root == transparent
    assert security(injected(proxy={"capNetBindService": "true"}))["capabilities"]["add"] == [
        "NET_BIND_SERVICE"
    ]
    traced = security(
        injected(config={"proxyMetadata": {"IPTABLES_TRACE_LOGGING": "true"}}, annotations=binding)
    )
    assert traced["capabilities"] == {"add": ["NET_ADMIN"], "drop": ["ALL"]}
    assert traced["privileged"]
    assert traced["allowPrivilegeEscalation"]
    assert traced["readOnlyRootFilesystem"]
    assert traced | root == traced
    assert security(injected(proxy={"seccompProfile": {"type": "Unconfined"}}))[
        "seccompProfile"
    ] == {"type": "Unconfined"}


def test_secrets_and_pull_policy_come_from_the_values() -> None:
    values: Object = {"global": {"imagePullSecrets": ["a"], "imagePullPolicy": "Never"}}

    pod = inject_pod(make_pod(imagePullSecrets=[{"name": "mine"}]), values=values).pod

    assert names(pod, "imagePullSecrets") == ["a", "mine"]
    assert container(pod)["imagePullPolicy"] == "Never"
    assert variable(pod, "ISTIO_META_APP_CONTAINERS") == "app"
