"""A real Envoy accepts what we generate."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import envoy
import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from bootstrap.build import BootstrapInputs, build_bootstrap, build_document
from bootstrap.config import Sources, resolve_proxy_config
from bootstrap.files import make_gate
from bootstrap.node import NodeInputs, build_node
from bootstrap.options import read_options
from bootstrap.template.parameters import parameters
from bootstrap.template.render import render
from tests.fakes.bootstrap_cases import CASES, GOLDEN, case_inputs
from tests.property.strategies_bootstrap import ANNOTATIONS, DOCUMENTS, ENVIRONS, POD_ADDRESSES

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

ENVOY = Path(envoy.__file__).parent / "_bin" / "envoy"
INJECTED = sorted(
    (Path(__file__).parents[2].parent / "shared" / "data" / "injected-pods").glob("*.injected.yaml")
)
TEMPLATE = Path(__file__).parents[1] / "golden" / "bootstrap-template" / "whole.json.tmpl"
#: Extensions that a stock Envoy lacks.
NOT_STOCK = {"ambient", "tracing_lightstep"}

MUTUAL = {"mode": "MUTUAL", "clientCertificate": "c", "privateKey": "k", "caCertificates": "r"}
MESH = {"mode": "ISTIO_MUTUAL"}
NO_ROOT = {"mode": "SIMPLE"}
KEEPALIVE = {"probes": 3, "time": "10s", "interval": "5s"}
BOTH = ["fd00::1", "10.0.0.1"]
TRUE = "true"


def inputs(
    document: Mapping[str, object],
    *,
    environ: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    addresses: list[str] | None = None,
) -> BootstrapInputs:
    environ = {"POD_NAME": "v0", "POD_NAMESPACE": "default", **(environ or {})}
    annotations = annotations or {}
    config, _ = resolve_proxy_config(Sources(None, json.dumps(document), annotations))
    pairs = "".join(f"{key}={json.dumps(value)}\n" for key, value in annotations.items())
    node, _ = build_node(
        NodeInputs("sidecar", "", environ, addresses or ["10.0.0.1"], config, None, pairs)
    )
    return BootstrapInputs(config, node, read_options(environ)[0])


def complaint(path: Path) -> str:
    """Return why Envoy refuses the file, '' where it does not."""
    command = [str(ENVOY), "--mode", "validate", "-l", "critical", "-c", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stderr or "no reason given" if done.returncode else ""


def validate(given_inputs: BootstrapInputs, folder: Path) -> str:
    path = folder / "envoy-rev.json"
    path.write_text(build_bootstrap(given_inputs)[0])
    return complaint(path)


@pytest.mark.parametrize("name", sorted(set(CASES) - NOT_STOCK))
def test_a_golden_bootstrap_is_accepted(name: str) -> None:
    assert complaint(GOLDEN / f"{name}.json") == ""


@pytest.mark.parametrize("name", sorted(set(CASES) - NOT_STOCK))
def test_what_a_template_of_the_users_own_yields_is_accepted(name: str, tmp_path: Path) -> None:
    case = case_inputs(name)
    document, _ = build_document(case)
    path = tmp_path / "envoy-rev.json"

    text, warnings = render(TEMPLATE.read_text(), parameters(case, document), {}, path="template")
    path.write_text(text)

    assert complaint(path) == ""
    assert warnings == []


@pytest.mark.parametrize(
    "variant",
    [
        inputs({}, addresses=["fd00::1"]),
        inputs({}, addresses=BOTH, environ={"ISTIO_DUAL_STACK": TRUE}),
        inputs(
            {"proxyMetadata": {"METRICS_LOCALHOST_ACCESS_ONLY": TRUE}, "statsCompression": False},
            addresses=BOTH,
            environ={"ISTIO_DUAL_STACK": TRUE, "ENVOY_SECURE_METRICS_PORT": "15091"},
        ),
        inputs(
            {"tracing": {"datadog": {"address": "$(HOST_IP):8126"}, "tlsSettings": NO_ROOT}},
            environ={"HOST_IP": "fd00::9"},
        ),
        inputs(
            {
                "tracing": {"zipkin": {"address": "z:9411"}, "tlsSettings": MESH},
                "envoyMetricsService": {"address": "m:1", "tlsSettings": MUTUAL},
                "envoyAccessLogService": {"address": "a:1", "tcpKeepalive": KEEPALIVE},
                "statsdUdpAddress": "[fd00::1]:8125",
            }
        ),
        inputs(
            {},
            environ={
                "ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL": TRUE,
                "EXIT_ON_ZERO_ACTIVE_CONNECTIONS": TRUE,
                "HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED": "false",
                "ISTIO_DELTA_XDS": "false",
            },
        ),
        inputs({}, environ={"ISTIO_META_ENABLE_SELF_DISCOVERY": TRUE}),
        inputs({})._replace(memory_limit_bytes=2**30, log_as_json=True),
        inputs(
            {},
            annotations={
                "sidecar.istio.io/statsFlushInterval": "1500ms",
                "sidecar.istio.io/statsEvictionInterval": "4500ms",
            },
        ),
    ],
    ids=[
        "ipv6", "dual stack", "local secure metrics", "datadog", "services", "switches",
        "self discovery", "memory and json logs", "intervals",
    ],
)  # fmt: skip
def test_a_variant_is_accepted(variant: BootstrapInputs, tmp_path: Path) -> None:
    assert validate(variant, tmp_path) == ""


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(DOCUMENTS, ANNOTATIONS, ENVIRONS, POD_ADDRESSES)
def test_what_pods_may_configure_is_accepted(
    tmp_path: Path,
    document: dict[str, object],
    annotations: dict[str, str],
    environ: dict[str, str],
    addresses: list[str],
) -> None:
    built = inputs(document, environ=environ, annotations=annotations, addresses=addresses)

    assert validate(built, tmp_path) == ""


@pytest.mark.skipif(not INJECTED, reason="no injected pods beside the repository")
@pytest.mark.parametrize("path", INJECTED, ids=lambda path: path.name)
def test_an_injected_pods_bootstrap_is_accepted_without_a_warning(
    path: Path, tmp_path: Path
) -> None:
    pod = injected_pod(path)
    containers = pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
    (proxy,) = (each for each in containers if each["name"] == "istio-proxy")
    # What a reference to a field or a resource would give: one text that fits them all.
    environ = {each["name"]: each.get("value", "2") for each in proxy["env"]}
    annotations = pod["metadata"].get("annotations", {})
    config, warnings = resolve_proxy_config(Sources(None, environ["PROXY_CONFIG"], annotations))
    labels = "".join(f'{key}="{value}"\n' for key, value in pod["metadata"]["labels"].items())
    pairs = "".join(f"{key}={json.dumps(value)}\n" for key, value in annotations.items())

    node, more = build_node(
        NodeInputs(proxy["args"][1], "", environ, ["10.0.0.1"], config, labels, pairs)
    )

    assert warnings == more == []
    assert validate(BootstrapInputs(config, node, read_options(environ)[0]), tmp_path) == ""


def injected_pod(path: Path) -> Any:  # noqa: ANN401 - YAML
    """Return the first pod, or the template of the first workload's pods."""
    objects = [each for each in yaml.safe_load_all(path.read_text()) if each]
    pods = (each if each["kind"] == "Pod" else each["spec"].get("template") for each in objects)
    return next(filter(None, pods))


def test_envoy_reads_its_bootstrap_through_the_gate(tmp_path: Path) -> None:
    path = tmp_path / "proxy" / "envoy-rev.json"
    text, _ = build_bootstrap(inputs({"extraStatTags": [f"tag{number}" for number in range(4000)]}))
    assert len(text) > 200_000
    gate = make_gate(str(path), text)
    child = subprocess.Popen([ENVOY, "--mode", "validate", "-l", "critical", "-c", path])

    try:
        while not gate.open():
            assert child.poll() is None
        while not gate.write():
            assert child.poll() is None
        assert child.wait(timeout=60) == 0
    finally:
        child.kill()
        child.wait()

    assert path.read_text() == text


def test_an_envoy_at_a_gate_that_is_given_up_ends_with_an_error(tmp_path: Path) -> None:
    gate = make_gate(str(tmp_path / "envoy-rev.json"), "{}")
    child = subprocess.Popen(
        [ENVOY, "--disable-hot-restart", "-l", "off", "-c", gate.path],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not gate.open():
            assert child.poll() is None

        gate.remove()

        assert child.wait(timeout=60) == 1
    finally:
        child.kill()
        child.wait()
