"""Whatever a pod configures, its bootstrap is JSON, and says what the agent relies on."""

import json

from hypothesis import given
from hypothesis import strategies as st

from bootstrap.build import BootstrapInputs, build_bootstrap, grpc_bootstrap, localhost
from bootstrap.config import Sources, resolve_proxy_config
from bootstrap.node import NodeInputs, build_node, node_addresses
from bootstrap.options import read_options
from tests.property.strategies_bootstrap import (
    ANNOTATIONS,
    DOCUMENTS,
    ENVIRONS,
    POD_ADDRESSES,
    TEXT,
)


@given(DOCUMENTS, ANNOTATIONS, ENVIRONS, POD_ADDRESSES, TEXT)
def test_a_bootstrap_is_json_with_one_localhost(
    document: dict[str, object],
    annotations: dict[str, str],
    environ: dict[str, str],
    addresses: list[str],
    labels: str,
) -> None:
    config, _ = resolve_proxy_config(Sources(None, json.dumps(document), annotations))
    options, _ = read_options(environ)
    pairs = "".join(f"{key}={json.dumps(value)}\n" for key, value in annotations.items())
    node, _ = build_node(
        NodeInputs("sidecar", "", environ, addresses, config, labels, pairs, version="1.31.0")
    )

    text, warnings = build_bootstrap(BootstrapInputs(config, node, options))

    loaded = json.loads(text)
    admin = loaded["admin"]["address"]["socket_address"]
    assert admin["address"] == localhost(addresses, dual_stack=options.dual_stack)
    assert admin["port_value"] == config.proxy_admin_port
    assert text.encode()
    assert not [line for line in warnings if "\n" in line]
    assert json.loads(grpc_bootstrap(node, config.config_path))["node"]["id"] == node_id(node.id)


def node_id(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@given(st.dictionaries(st.just("ISTIO_META_") | st.just("ISTIO_METAJSON_X") | TEXT, TEXT), TEXT)
def test_no_environment_stops_the_node(environ: dict[str, str], text: str) -> None:
    config, _ = resolve_proxy_config(Sources(None, "", {}))
    kinds = {
        f"ISTIO_META_{name}": text for name in ("POD_PORTS", "ENABLE_HBONE", "LABELS", "NETWORK")
    }

    node, _ = build_node(
        NodeInputs("sidecar", text, {**kinds, **environ}, [text], config, text, text)
    )
    built, _ = build_bootstrap(BootstrapInputs(config, node, read_options(environ)[0]))

    assert json.loads(built)["node"]["metadata"]["PROXY_CONFIG"] == config.document


@given(
    TEXT,
    st.lists(st.tuples(st.sampled_from(["eth0", "net1"]), st.ip_addresses().map(str) | TEXT)),
    st.sets(st.sampled_from(["eth0", "net1"])),
)
def test_a_pods_addresses_are_addresses_once_each_interface_is_up(
    instance_ip: str, interfaces: list[tuple[str, str]], excluded: set[str]
) -> None:
    found = node_addresses(instance_ip, interfaces, excluded_interfaces=excluded)

    assert node_addresses("", [("eth0", each) for each in found]) or not found
    assert all(found)
