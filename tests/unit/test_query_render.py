"""Resources for people: as files of resources have them, and with nothing secret in them."""

import json
from typing import Any

import pytest
import yaml
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import extension_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.common.aws.v3 import credential_provider_pb2
from envoy.extensions.filters.http.wasm.v3 import wasm_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2, tls_pb2
from google.protobuf import any_pb2, struct_pb2
from google.protobuf.message import Message
from udpa.type.v1 import typed_struct_pb2  # type: ignore[import-untyped]  # xds-protos has none

from agent.protobuf.wire import WireError, message
from agent.query.render import PULL_SECRET, render
from agent.query.wire import REDACTED
from agent.xds.discovery import Resource
from agent.xds.local.convert import convert
from agent.xds.resources import (
    CLUSTER,
    EXTENSION,
    LISTENER,
    NAME_TABLE,
    PROXY_CONFIG,
    SECRET,
)
from tests.fakes.dns_table import TABLE, serialised

KEY = "-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----\n"
PREFIX = "type.googleapis.com/"


def shown(type_url: str, body: Message | bytes) -> dict[str, Any]:
    raw = body if isinstance(body, bytes) else body.SerializeToString()
    found = render(Resource(type_url, "", "", raw))
    assert KEY not in json.dumps(found)
    return found


def unknown(type_url: str, content: bytes) -> any_pb2.Any:
    return any_pb2.Any(type_url=type_url, value=content)


def test_a_resource_begins_with_its_type_and_has_the_names_of_the_proto() -> None:
    found = shown(CLUSTER, cluster_pb2.Cluster(name="one", alt_stat_name="x"))

    assert list(found.items()) == [("@type", CLUSTER), ("name", "one"), ("alt_stat_name", "x")]


def test_what_is_shown_can_be_served_again() -> None:
    listener = listener_pb2.Listener(name="one")
    tls = tls_pb2.UpstreamTlsContext(sni="example")
    chain = listener.filter_chains.add()
    chain.transport_socket.typed_config.Pack(tls)

    text = yaml.safe_dump_all([shown(LISTENER, listener)], sort_keys=False)

    _, resources = convert({"a.yaml": text.encode()})
    assert listener_pb2.Listener.FromString(resources[0].body) == listener


def test_an_extension_of_an_unknown_type_is_shown_by_numbers() -> None:
    listener = listener_pb2.Listener(name="one")
    chain = listener.filter_chains.add()
    for content in (message((1, "text"), (2, message((1, 7)))), b"\xff"):
        chain.filters.add(name="x").typed_config.CopyFrom(unknown(f"{PREFIX}stats.P", content))

    found = shown(LISTENER, listener)

    configs = [each["typed_config"] for each in found["filter_chains"][0]["filters"]]
    assert configs == [
        {"@type": f"{PREFIX}stats.P", "1": "text", "2": {"1": 7}},
        {"@type": f"{PREFIX}stats.P", "value": "/w=="},
    ]


def test_a_resource_of_an_unknown_type_is_shown_by_numbers() -> None:
    assert shown("a.b/C", message((1, "x"))) == {"@type": "a.b/C", "1": "x"}
    assert shown("a.b/C", b"text") == {"@type": "a.b/C", "value": "text"}
    assert shown("a.b/C", b"") == {"@type": "a.b/C"}


def test_an_answer_to_debug_is_the_json_that_it_is() -> None:
    found = shown("istio.io/debug", b'[{"proxy": "a"}]')

    assert found == {"@type": "istio.io/debug", "value": [{"proxy": "a"}]}


def test_a_resource_that_its_class_cannot_read_is_shown_by_numbers() -> None:
    assert shown(CLUSTER, message((1, b"\xff"))) == {"@type": CLUSTER, "1": "/w=="}


def test_the_agents_own_types_are_read() -> None:
    table = shown(NAME_TABLE, serialised(TABLE))["table"]
    proxy_config = shown(PROXY_CONFIG, message((34, "certificate"), (6, "istiod")))

    assert table["productpage.ns1.svc.cluster.local"] == {
        "ips": ["9.9.9.9"],
        "registry": "Kubernetes",
        "shortname": "productpage",
        "namespace": "ns1",
    }
    assert proxy_config["ca_certificates_pem"] == "certificate"
    with pytest.raises(WireError):
        shown(NAME_TABLE, b"\xff")


def tls_secret() -> secret_pb2.Secret:
    secret = secret_pb2.Secret(name="default")
    pair = secret.tls_certificate
    pair.certificate_chain.inline_string = "chain"
    pair.private_key.inline_bytes = KEY.encode()
    pair.password.inline_string = "word"
    pair.private_key_provider.provider_name = "cryptomb"
    pair.private_key_provider.typed_config.Pack(struct_pb2.Value(string_value="word"))
    return secret


def test_a_secret_is_shown_without_its_keys() -> None:
    found = shown(SECRET, tls_secret())

    assert found == {
        "@type": SECRET,
        "name": "default",
        "tls_certificate": {
            "certificate_chain": {"inline_string": "chain"},
            "private_key": {"inline_string": REDACTED},
            "password": {"inline_string": REDACTED},
            "private_key_provider": {"provider_name": "cryptomb"},
        },
    }


def test_ticket_keys_and_generic_secrets_are_left_out() -> None:
    tickets = secret_pb2.Secret(name="a")
    tickets.session_ticket_keys.keys.add(inline_bytes=b"1" * 80)
    generic = secret_pb2.Secret(name="b")
    generic.generic_secret.secret.inline_string = "word"
    generic.generic_secret.secrets["x"].inline_string = "word"

    assert shown(SECRET, tickets)["session_ticket_keys"] == {}
    assert shown(SECRET, generic)["generic_secret"] == {"secret": {"inline_string": REDACTED}}


def test_a_secret_text_says_that_it_was_blanked() -> None:
    provider = credential_provider_pb2.InlineCredentialProvider(
        access_key_id="id", secret_access_key=REDACTED[:1]
    )
    body = provider.SerializeToString()

    found = shown(f"{PREFIX}{provider.DESCRIPTOR.full_name}", body)

    assert (found["access_key_id"], found["secret_access_key"]) == ("id", REDACTED)


def test_a_secret_that_cannot_be_read_is_not_shown_at_all() -> None:
    with pytest.raises(WireError, match="a secret that cannot be read is not shown"):
        shown(SECRET, b"\xff")


def test_keys_within_other_resources_are_blanked() -> None:
    cluster = cluster_pb2.Cluster(name="one")
    context = tls_pb2.UpstreamTlsContext(sni="x")
    pair = context.common_tls_context.tls_certificates.add()
    pair.private_key.inline_bytes = KEY.encode()
    pair.certificate_chain.inline_bytes = f"chain\n{KEY}".encode()
    cluster.transport_socket.typed_config.Pack(context)
    struct = struct_pb2.Struct()
    struct["key"] = KEY
    cluster.metadata.filter_metadata["x"].CopyFrom(struct)

    found = shown(CLUSTER, cluster)

    typed = found["transport_socket"]["typed_config"]
    assert typed["sni"] == "x"
    assert typed["common_tls_context"]["tls_certificates"] == [
        {"certificate_chain": {}, "private_key": {"inline_string": REDACTED}}
    ]
    assert found["metadata"]["filter_metadata"]["x"] == {"key": REDACTED}


def test_a_key_in_an_unknown_extension_is_blanked() -> None:
    found = shown("a.b/C", message((1, KEY), (2, b"\xff" + KEY.encode())))

    assert found == {"@type": "a.b/C", "1": REDACTED, "2": REDACTED}


def test_the_pull_secret_of_a_wasm_module_is_blanked() -> None:
    """R-3: typed, and as a struct."""
    wasm = wasm_pb2.Wasm()
    values = wasm.config.vm_config.environment_variables.key_values
    values[PULL_SECRET] = "docker config"
    values["A"] = "b"
    typed = extension_pb2.TypedExtensionConfig(name="a")
    typed.typed_config.Pack(wasm)
    struct = typed_struct_pb2.TypedStruct(type_url=f"{PREFIX}x.Wasm")
    struct.value["key_values"] = {PULL_SECRET: "docker config"}
    loose = extension_pb2.TypedExtensionConfig(name="b")
    loose.typed_config.Pack(struct)

    found = [shown(EXTENSION, typed), shown(EXTENSION, loose)]

    assert "docker config" not in json.dumps(found)
    vm = found[0]["typed_config"]["config"]["vm_config"]
    assert vm["environment_variables"]["key_values"]["A"] == "b"


def test_a_resource_that_is_no_object_is_a_value() -> None:
    values = struct_pb2.ListValue()
    values.extend([1, 2])

    assert shown(f"{PREFIX}google.protobuf.ListValue", values)["value"] == [1, 2]
