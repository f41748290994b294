"""The reference's own pairs of plain and injected manifests, where its files are at hand.

Source: status-lifecycle.md sections 10 and 11.
"""

from pathlib import Path
from typing import Any

import pytest

from agent.inject.configuration import Configuration
from agent.inject.manifest import Context, inject_document
from agent.inject.values import overlay
from agent.inject.yaml_text import dump, parse, split
from tests.fakes.injection import make_settings

REFERENCE = Path(__file__).parents[2].parent / "shared" / "data" / "injected-pods"
#: The reference's image; all other values are the chart's own.
IMAGES = {
    "global": {
        "hub": "registry.istio.io/testing",
        "tag": "latest",
        "proxy": {"image": "proxyv2"},
        "proxy_init": {"image": "proxyv2"},
    }
}
METADATA = {"ISTIO_META_TLS_CLIENT_KEY": "/etc/identity/client/keys/client-key.pem"}
#: By injected file: the plain one if it has another name, and what else it was made with.
MADE_WITH: dict[str, dict[str, Any]] = {
    "hello-cni": {
        "plain": "hello",
        "values": {
            "pilot": {"cni": {"enabled": True, "provider": "default"}},
            "global": {"network": "network1"},
        },
    },
    "hello-tproxy": {"plain": "hello", "mesh": {"defaultConfig": {"interceptionMode": "TPROXY"}}},
    "hello-classic": {"plain": "hello", "native": "false"},
    "job-classic": {"plain": "job", "native": "false"},
    "traffic-annotations": {"mesh": {"defaultConfig": {"proxyMetadata": METADATA}}},
}
#: By injected file: what differs, and why. Nothing does.
DIFFERENCES: dict[str, str] = {}
NAMES = (
    "gateway",
    "hello",
    "hello-classic",
    "hello-cni",
    "hello-probes",
    "hello-tproxy",
    "job",
    "job-classic",
    "multi-container",
    "named_port",
    "native-sidecar",
    "prometheus-scrape",
    "ready_live",
    "tcp-probes",
    "traffic-annotations",
)

pytestmark = pytest.mark.skipif(
    not REFERENCE.exists(), reason=f"the reference's files are not at {REFERENCE}"
)


def context(name: str) -> Context:
    made = MADE_WITH.get(name, {})
    values = overlay(IMAGES, made.get("values", {}))
    settings = make_settings(values, made.get("mesh"))
    return Context(Configuration(), settings, native=made.get("native", "true"))


def read(name: str) -> object:
    (document,) = split((REFERENCE / f"{name}.yaml").read_text())
    return parse(document)


def test_every_pair_is_compared() -> None:
    found = {path.name.removesuffix(".injected.yaml") for path in REFERENCE.glob("*.injected.*")}

    assert found == set(NAMES)
    assert set(DIFFERENCES) <= found


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DIFFERENCES])
def test_a_manifest_is_injected_as_by_the_reference(name: str) -> None:
    plain = read(MADE_WITH.get(name, {}).get("plain", name))

    result = inject_document(plain, context(name))

    assert result.after == read(f"{name}.injected")
    assert result.warnings == ()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_written_with_the_same_bytes(name: str) -> None:
    plain = read(MADE_WITH.get(name, {}).get("plain", name))

    text = dump(inject_document(plain, context(name)).after)

    assert f"{text}---\n" == (REFERENCE / f"{name}.injected.yaml").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_an_injected_manifest_is_injected_again_to_itself(name: str) -> None:
    injected = read(f"{name}.injected")

    assert inject_document(injected, context(name)).after == injected
