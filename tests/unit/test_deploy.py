"""The manifests in deploy/ agree with the code: names, ports, paths, rights and selectors.

Source: status-lifecycle.md section 11.15.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.inject.api.form import normal
from agent.inject.api.workloads import kind_of
from agent.inject.cluster.objects import COLLECTIONS
from agent.inject.configuration import parse_configuration
from agent.inject.selectors import parse_selector
from agent.inject.values import HUB, IMAGE, TAG
from agent.inject.webhook.cli import FLAGS
from agent.inject.webhook.registration import PATH, PORT, Registration, registration
from agent.inject.webhook.server import FINISH_SECONDS
from bootstrap.template.render import render
from iptables.flags import parse_flags

Object = dict[str, Any]
DEPLOY = Path(__file__).parents[2] / "deploy"
DOCUMENTS: list[Object] = [
    document
    for name in ("injector", "certificate", "webhook")
    for document in yaml.safe_load_all((DEPLOY / f"{name}.yaml").read_text())
]
IMAGE_NAME = f"{HUB}/{IMAGE}:{TAG}"


def the(kind: str, name: str = "") -> Object:
    (found,) = [
        document
        for document in DOCUMENTS
        if document["kind"] == kind and name in ("", document["metadata"]["name"])
    ]
    return found


def certificate() -> Object:
    return the("Certificate", "mesh-agent-injector")


def pod() -> Object:
    found: Object = the("Deployment")["spec"]["template"]
    return found


def container() -> Object:
    containers: list[Object] = pod()["spec"]["containers"]
    (found,) = containers
    return found


def test_every_object_of_a_namespace_is_in_the_control_planes() -> None:
    clusterwide = {"ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration"}

    for document in DOCUMENTS:
        expected = None if document["kind"] in clusterwide else "istio-system"
        assert document["metadata"].get("namespace") == expected


def test_the_deployment_is_one_that_the_api_takes() -> None:
    kind = kind_of(the("Deployment"))
    problems: list[str] = []

    assert kind
    normal(the("Deployment"), kind.struct, "", problems)

    assert problems == []


def test_the_arguments_are_the_commands_own() -> None:
    command, *words = container()["args"]
    flags = parse_flags(FLAGS, words)

    assert command == "injector"
    assert flags.text("revision") == "mesh-agent"
    assert flags.text("image") == container()["image"] == IMAGE_NAME
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {
        "webhook": flags.number("port"),
        "monitoring": flags.number("monitoring-port"),
    }
    assert pod()["metadata"]["annotations"]["prometheus.io/port"] == str(ports["monitoring"])


def test_every_file_that_is_named_is_mounted() -> None:
    flags = parse_flags(FLAGS, container()["args"][1:])
    mounts = {mount["mountPath"]: mount["name"] for mount in container()["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod()["spec"]["volumes"]}
    files = {
        "tlsCertFile": ("certificate", "tls.crt"),
        "tlsKeyFile": ("certificate", "tls.key"),
        "meshConfigFile": ("mesh", "mesh"),
        "valuesFile": ("inject", "values"),
        "injectConfigFile": ("inject", "config"),
    }

    for flag, (volume, name) in files.items():
        directory, _, found = flags.text(flag).rpartition("/")
        assert (mounts[directory], found) == (volume, name)
    secret = volumes["certificate"]["secret"]["secretName"]
    assert secret == certificate()["spec"]["secretName"]


def test_a_root_that_stays_signs_the_certificate() -> None:
    issuer = the("Issuer", certificate()["spec"]["issuerRef"]["name"])
    root = the("Certificate", "mesh-agent-injector-root")["spec"]

    assert issuer["spec"] == {"ca": {"secretName": root["secretName"]}}
    assert root["isCA"]
    assert the("Issuer", root["issuerRef"]["name"])["spec"] == {"selfSigned": {}}


def test_the_service_leads_to_the_pods() -> None:
    service, names = the("Service"), {port["name"] for port in container()["ports"]}

    assert service["spec"]["selector"].items() <= pod()["metadata"]["labels"].items()
    assert {port["targetPort"] for port in service["spec"]["ports"]} == names
    assert {port["port"] for port in service["spec"]["ports"]} >= {PORT}
    (name,) = certificate()["spec"]["dnsNames"]
    assert name == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"


def test_the_injector_does_not_wait_for_itself() -> None:
    labels = pod()["metadata"]["labels"]

    for hook in the("MutatingWebhookConfiguration")["webhooks"]:
        assert not parse_selector(hook["objectSelector"]).matches(labels)


def test_the_role_allows_what_is_read_and_nothing_else() -> None:
    allowed = {
        (group, resource)
        for rule in the("ClusterRole")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if set(rule["verbs"]) == {"list", "watch"}
    }
    read = {
        (parts[2] if parts[1] == "apis" else "", parts[-1])
        for collection in COLLECTIONS
        if (parts := collection.path.split("/"))
    }

    assert allowed == read
    binding = the("ClusterRoleBinding")
    assert binding["roleRef"]["name"] == the("ClusterRole")["metadata"]["name"]
    assert binding["subjects"][0]["name"] == pod()["spec"]["serviceAccountName"]


def test_an_injector_answers_while_another_is_replaced_or_evicted() -> None:
    deployment, budget = the("Deployment")["spec"], the("PodDisruptionBudget")["spec"]
    drain = next(flag.default for flag in FLAGS if flag.name == "drain")
    assert isinstance(drain, float)

    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert deployment["replicas"] > budget["minAvailable"] > 0
    assert budget["selector"]["matchLabels"].items() <= pod()["metadata"]["labels"].items()
    grace = pod()["spec"].get("terminationGracePeriodSeconds", 30)
    assert grace > drain + FINISH_SECONDS


def test_the_injector_has_no_rights_that_it_does_not_need() -> None:
    context = container()["securityContext"]

    assert context["runAsNonRoot"]
    assert context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert all(mount["readOnly"] for mount in container()["volumeMounts"])


def test_the_webhook_is_what_the_command_prints() -> None:
    found = the("MutatingWebhookConfiguration")
    named = certificate()["metadata"]

    injected = found["metadata"].pop("annotations")

    assert injected == {"cert-manager.io/inject-ca-from": f"{named['namespace']}/{named['name']}"}
    assert found == registration(Registration("mesh-agent-injector", revision="mesh-agent"))
    assert found["webhooks"][0]["clientConfig"]["service"]["path"] == PATH


@pytest.mark.parametrize("native", [True, False])
def test_istiod_can_inject_the_image(*, native: bool) -> None:
    values = yaml.safe_load((DEPLOY / "istiod-values.yaml").read_text())
    (name,) = values["sidecarInjectorWebhook"]["templates"]
    text = values["sidecarInjectorWebhook"]["templates"][name]

    rendered, warnings = render(text, {"NativeSidecars": native}, {}, path=name)

    assert (name, warnings) == ("mesh-agent", [])
    assert yaml.safe_load(rendered) == {
        "spec": {
            "initContainers" if native else "containers": [
                {"name": "istio-proxy", "image": IMAGE_NAME}
            ]
        }
    }
    assert parse_configuration(values["sidecarInjectorWebhook"], source="x")[1] == []
