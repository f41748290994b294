"""What is asked of a control plane. Source: xds-identity-dns.md sections 2.17, 10.3."""

import pytest
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format

from agent.query.request import parse_type, write_node, write_subscription
from agent.xds.discovery import Kind
from agent.xds.resources import ABBREVIATIONS, CLUSTER, LISTENER
from bootstrap.node import Node

NODE = Node(
    id="sidecar~10.0.0.1~web.shop~shop.svc.cluster.local",
    cluster="web.shop",
    locality={"region": "r", "zone": "z"},
    metadata={"NAMESPACE": "shop", "AUTO_REGISTER_GROUP": "web", "LABELS": {"app": "web"}},
    typed_keys=frozenset(),
    addresses=("10.0.0.1",),
)
MESSAGES = {
    Kind.SOTW: discovery_pb2.DiscoveryRequest,
    Kind.DELTA: discovery_pb2.DeltaDiscoveryRequest,
}


@pytest.mark.parametrize(("type_url", "short"), ABBREVIATIONS.items())
def test_a_type_has_a_short_name(type_url: str, short: str) -> None:
    assert parse_type(short) == parse_type(short.upper()) == type_url


@pytest.mark.parametrize("type_url", [CLUSTER, "istio.io/debug", "type.googleapis.com/a.B"])
def test_a_type_url_stands_for_itself(type_url: str) -> None:
    assert parse_type(type_url) == type_url


def test_another_word_is_no_type() -> None:
    with pytest.raises(ValueError, match=r"type 'listeners': expected one of cds, ecds, eds, lds"):
        parse_type("listeners")


@pytest.mark.parametrize("kind", Kind)
def test_a_subscription_has_type_names_and_node(kind: Kind) -> None:
    raw = write_subscription(kind, LISTENER, ("a", "b"), write_node(NODE))

    found = json_format.MessageToDict(MESSAGES[kind].FromString(raw))

    names = found.pop("resourceNames" if kind is Kind.SOTW else "resourceNamesSubscribe")
    assert names == ["a", "b"]
    assert found == {
        "typeUrl": LISTENER,
        "node": {
            "id": NODE.id,
            "cluster": "web.shop",
            "locality": {"region": "r", "zone": "z"},
            # Without AUTO_REGISTER_GROUP: who only looks is no workload that comes and goes.
            "metadata": {"NAMESPACE": "shop", "LABELS": {"app": "web"}},
        },
    }
