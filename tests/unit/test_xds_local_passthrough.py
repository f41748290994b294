"""The built-in configuration, decoded by Envoy's own classes, is what the golden files say."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format

from agent.protobuf.classes import load, message_class
from agent.xds.local.convert import convert
from agent.xds.local.passthrough import VERSION, passthrough
from agent.xds.resources import CLUSTER, LISTENER
from agent.xds.snapshot import Snapshot, make_snapshot

GOLDEN = Path(__file__).parents[1] / "golden" / "xds"
CASES = {
    "passthrough_ipv4": passthrough(ipv4=True, ipv6=False),
    "passthrough_ipv6": passthrough(ipv4=False, ipv6=True),
    "passthrough_dual": passthrough(ipv4=True, ipv6=True),
    "passthrough_tproxy": passthrough(ipv4=True, ipv6=False, tproxy=True),
}


def decoded(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return what the bytes mean, as JSON."""
    documents = []
    for type_url, by_name in snapshot.resources.items():
        for resource in by_name.values():
            for package in re.findall(rb"type\.googleapis\.com/([\w.]+\.v3)\.", resource.body):
                load(f"{package.decode()}.Any")
            made = message_class(type_url)
            assert made
            parsed = made.FromString(resource.body)
            content = json_format.MessageToJson(parsed, preserving_proto_field_name=True)
            documents.append({"@type": type_url, **json.loads(content)})
    return documents


@pytest.mark.parametrize("case", CASES)
def test_the_bytes_mean_what_the_golden_file_says(
    case: str,
    update_golden: bool,  # noqa: FBT001 - a fixture
) -> None:
    """The golden files are such as AGENT_LOCAL_XDS=<directory> takes."""
    path = GOLDEN / f"{case}.yaml"
    if update_golden:
        path.write_text(yaml.safe_dump_all(decoded(CASES[case]), sort_keys=False))

    _, resources = convert({path.name: path.read_bytes()})

    golden = decoded(make_snapshot("", resources))
    assert decoded(CASES[case]) == golden


def test_a_pod_without_known_address_is_taken_for_ipv4() -> None:
    assert passthrough(ipv4=False, ipv6=False) == CASES["passthrough_ipv4"]


def test_names_are_those_that_istiod_gives() -> None:
    snapshot = CASES["passthrough_dual"]

    assert snapshot.version == VERSION
    assert set(snapshot.resources[LISTENER]) == {"virtualInbound", "virtualOutbound"}
    assert set(snapshot.resources[CLUSTER]) == {
        "PassthroughCluster",
        "BlackHoleCluster",
        "InboundPassthroughCluster",
        "InboundPassthroughClusterIpv6",
    }
