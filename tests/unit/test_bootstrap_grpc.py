import json

import pytest

from bootstrap.build import grpc_bootstrap
from bootstrap.config import DEFAULTS, from_document
from bootstrap.grpc import certificate_files
from bootstrap.node import Node, NodeInputs, build_node

ENVIRON = {
    "POD_NAME": "pod1",
    "POD_NAMESPACE": "fake-namespace",
    "ISTIO_META_CUSTOM": "untyped",
    "ENVOY_SKIP_DEPRECATED_LOGS": "false",
    "ENVOY_STATUS_PORT": "0",
    "ENVOY_PROMETHEUS_PORT": "0",
}


def pod() -> Node:
    config = from_document(DEFAULTS)
    node, _ = build_node(NodeInputs("sidecar", "", ENVIRON, ["127.0.0.1"], config))
    return node


def test_an_application_gets_its_control_plane_and_certificates() -> None:
    """The known shape of bootstrap.md section 7."""
    text = grpc_bootstrap(pod(), "./etc/istio/proxy", certificates="/cert/path")

    assert json.loads(text) == {
        "xds_servers": [
            {
                "server_uri": "unix:///etc/istio/proxy/XDS",
                "channel_creds": [{"type": "insecure"}],
                "server_features": ["xds_v3"],
            }
        ],
        "node": {
            "id": "sidecar~127.0.0.1~pod1.fake-namespace~fake-namespace.svc.cluster.local",
            "locality": {},
            "metadata": {
                "PROXY_CONFIG": DEFAULTS,
                "GENERATOR": "grpc",
                "INSTANCE_IPS": "127.0.0.1",
                "ISTIO_VERSION": "unknown",
                "METADATA_DISCOVERY": "false",
                "NAME": "pod1",
                "NAMESPACE": "fake-namespace",
                "PILOT_SAN": ["istiod.istio-system.svc"],
                "WORKLOAD_IDENTITY_SOCKET_FILE": "socket",
            },
        },
        "certificate_providers": {
            "default": {
                "plugin_name": "file_watcher",
                "config": {
                    "certificate_file": "/cert/path/cert-chain.pem",
                    "private_key_file": "/cert/path/key.pem",
                    "ca_certificate_file": "/cert/path/root-cert.pem",
                    "refresh_interval": "900s",
                },
            }
        },
        "server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%s",
    }


def test_without_certificates_there_is_no_provider() -> None:
    assert "certificate_providers" not in json.loads(grpc_bootstrap(pod(), "x"))


def test_an_absolute_path_has_four_slashes() -> None:
    assert '"unix:////a/XDS"' in grpc_bootstrap(pod(), "/a/")


def test_the_file_is_indented() -> None:
    assert grpc_bootstrap(pod(), "x").startswith('{\n  "node": {\n    "id": ')


def test_the_files_of_the_certificate_provider_are_expected() -> None:
    text = grpc_bootstrap(pod(), "x", certificates="/c")

    assert certificate_files(text) == ("/c/cert-chain.pem", "/c/key.pem", "/c/root-cert.pem")
    assert certificate_files(grpc_bootstrap(pod(), "x")) == ()


@pytest.mark.parametrize(
    "providers",
    [
        "[]",
        '{"a": 1}',
        '{"a": {"plugin_name": "other", "config": {"certificate_file": "/c"}}}',
        '{"a": {"plugin_name": "file_watcher"}}',
        '{"a": {"plugin_name": "file_watcher", "config": {"certificate_file": 1}}}',
    ],
)
def test_other_providers_expect_no_files(providers: str) -> None:
    assert certificate_files(f'{{"certificate_providers": {providers}}}') == ()


def test_a_bootstrap_that_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="expected"):
        certificate_files("[]")
